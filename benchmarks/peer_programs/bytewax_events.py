"""Bytewax: JSON events parsed, filtered, mapped, written as JSON lines; one file per worker.

Whole batches go through one step, which is the fastest form this system offers.
"""

from __future__ import annotations

import os
from pathlib import Path

import bytewax.operators as op
import orjson
from bytewax.connectors.files import DirSource
from bytewax.dataflow import Dataflow
from bytewax_lines import LinesSink
from bytewax_times import note_record

_BOUGHT = ("cart", "buy")
_INPUT, _BATCH = Path(os.environ["BENCH_INPUT"]), int(os.environ["BENCH_BATCH"])


def to_orders(lines: list[str]) -> list[str]:
    note_record()
    loads, dumps = orjson.loads, orjson.dumps
    orders = []
    for line in lines:
        event = loads(line)
        if event["kind"] in _BOUGHT:
            total = event["cents"] * event["quantity"]
            order = {"id": event["id"], "user": event["user"], "total": total}
            orders.append(dumps(order).decode())
    return orders


flow = Dataflow("events")
lines = op.input("lines", flow, DirSource(_INPUT, batch_size=_BATCH))
orders = op.flat_map_batch("orders", lines, to_orders)
op.output("out", orders, LinesSink())
