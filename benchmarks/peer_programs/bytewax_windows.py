"""Bytewax: count, sum and average by sensor and window of 10 s, with its recovery.

Its fastest form: readings are folded in the order they come, event time follows the readings alone
(its clock would wake up every key for windows that are long over), whole batches go through the
other steps. It reads the four files in turns, 250 lines of each, so that they are at most a second
apart; 10 s of waiting cover that and the 5 s out of order.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path

import bytewax.operators as op
import orjson
from bytewax.connectors.files import DirSource
from bytewax.dataflow import Dataflow
from bytewax.operators.windowing import EventClock, TumblingWindower, fold_window
from bytewax_lines import LinesSink
from bytewax_times import note_record

_WINDOW_MS = 10_000
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_LINES_PER_BATCH = 250

Reading = tuple[datetime, int]


def to_readings(lines: list[str]) -> list[tuple[str, Reading]]:
    note_record()
    loads, to_time = orjson.loads, datetime.fromtimestamp
    return [
        (reading["sensor"], (to_time(reading["at"] / 1000, UTC), reading["value"]))
        for reading in map(loads, lines)
    ]


def folded(cell: list[int], reading: Reading) -> list[int]:
    cell[0] += 1
    cell[1] += reading[1]
    return cell


def joined(cell: list[int], other: list[int]) -> list[int]:
    return [cell[0] + other[0], cell[1] + other[1]]


def to_texts(windows: list[tuple[str, tuple[int, list[int]]]]) -> Iterable[str]:
    for sensor, (number, (count, total)) in windows:
        start = number * _WINDOW_MS
        times = f"{start},{start + _WINDOW_MS}"
        yield f'["{sensor}",{times},[{count},{total},{total / count}]]'


flow = Dataflow("windows")
source = DirSource(Path(os.environ["BENCH_INPUT"]), batch_size=_LINES_PER_BATCH)
lines = op.input("lines", flow, source)
readings = op.flat_map_batch("readings", lines, to_readings)
clock = EventClock(
    ts_getter=itemgetter(0),
    wait_for_system_duration=timedelta(seconds=10),
    now_getter=lambda: _BEGIN,
    to_system_utc=lambda _: None,
)
windower = TumblingWindower(length=timedelta(milliseconds=_WINDOW_MS), align_to=_BEGIN)
windows = fold_window(
    "windows", readings, clock, windower, lambda: [0, 0], folded, joined, ordered=False
)
op.output("out", op.flat_map_batch("texts", windows.down, to_texts), LinesSink())
