"""Bytewax: JSON events parsed, filtered, mapped, written as JSON lines; one file per worker.

Whole batches go through one step, which is the fastest form this system offers.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.files import DirSource
from bytewax.dataflow import Dataflow
from bytewax_lines import LinesSink
from bytewax_times import note_record

_BOUGHT = ("cart", "buy")


def to_orders(lines: list[str]) -> list[str]:
    note_record()
    loads, dumps = json.loads, json.dumps
    orders = []
    for line in lines:
        event = loads(line)
        if event["kind"] in _BOUGHT:
            total = event["cents"] * event["quantity"]
            orders.append(dumps({"id": event["id"], "user": event["user"], "total": total}))
    return orders


flow = Dataflow("events")
lines = op.input("lines", flow, DirSource(Path(os.environ["BENCH_INPUT"])))
orders = op.flat_map_batch("orders", lines, to_orders)
op.output("out", orders, LinesSink())
