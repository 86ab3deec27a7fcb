"""Joins and a process function with timers: in memory, with RocksDB, and beside a bare loop.

All run the same rows through the real epoch loop and the operators that jobs run, with commit and
restore, in one process. The bare loop does the interval join on dicts and sorted lists, keeps
nothing and survives nothing.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from measuring import Report, Table, Target, WrongOutputError, arguments, in_turns

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import (
    KeyedProcessFunction,
    KeyedStream,
    MapStateDescriptor,
    StreamEnvironment,
    ValueStateDescriptor,
    WatermarkStrategy,
)

KEYS = 400
EPOCHS = 8
REACH_MS = 2_000
MS_PER_ROW = 10


@dataclass(frozen=True)
class Row:
    """One row of either side."""

    key: str
    time: int
    value: float


class Watch(KeyedProcessFunction[str, Row, tuple[str, int]]):
    """Counts the rows of a key, keeps the newest of each second, and tells every five seconds."""

    count = ValueStateDescriptor("count", int, default=0)
    newest = MapStateDescriptor("newest", int, float)

    def process_element(self, value, ctx):
        count = ctx.get_value_state(self.count)
        count.update(count.value() + 1)
        ctx.get_map_state(self.newest).put(value.time // 1_000, value.value)
        ctx.timer_service.register_event_time_timer(value.time // 5_000 * 5_000 + 5_000)
        return []

    def on_timer(self, timestamp_ms, ctx):
        newest = ctx.get_map_state(self.newest)
        for second, _ in list(newest.range(None, timestamp_ms // 1_000)):
            newest.remove(second)
        return [(ctx.current_key(), ctx.get_value_state(self.count).value())]


def pair(left: Row, right: Row) -> tuple[str, float]:
    """Return a result of two rows."""
    return left.key, left.value * right.value


def main() -> None:
    """Measure all and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options)
    rows = 4_000 if options.quick else options.rows
    left, right = _rows(rows * 4 // 5, seed=1), _rows(rows // 5, seed=2)
    contenders = {
        f"{form}, {backend}": partial(_cost, form, backend, left, right)
        for form in _FORMS
        for backend in ("memory", "rocksdb")
    }
    contenders["interval join, bare loop"] = partial(_bare_cost, left, right)
    found = in_turns(contenders, rounds=options.repeats)
    rate = {name: 1e6 / statistics.median(costs) for name, costs in found.items()}
    interval = {kind: rate[f"interval join, {kind}"] for kind in ("memory", "rocksdb")}
    report = Report(
        name="joins",
        claim="Joins and process functions with RocksDB are half as fast as in memory, or faster.",
        payload=f"{sum(map(len, left)):,} and {sum(map(len, right)):,} rows of {KEYS} keys in "
        f"{EPOCHS} epochs; the process function gets both sides in one stream",
        method=f"{options.repeats} rounds in turns through the epoch loop in one process, with "
        "commit and restore; processor time; number of results equal for both backends and the "
        "bare loop",
        tables=[
            Table(
                title="Rows per second of processor time",
                columns=["", "median"],
                rows=[[name, f"{value:,.0f}"] for name, value in rate.items()],
            )
        ],
        targets=[
            Target(
                name="interval join, RocksDB ÷ memory",
                value=interval["rocksdb"] / interval["memory"], low=0.5, unit="x",
            ),
            Target(
                name="interval join, memory ÷ bare loop",
                value=interval["memory"] / rate["interval join, bare loop"], low=0.4, unit="x",
            ),
        ],
    )  # fmt: skip
    report.tell(options)


def _interval(left: KeyedStream, right: KeyedStream):
    return left.interval_join(right, -REACH_MS, REACH_MS, pair)


def _as_of(left: KeyedStream, right: KeyedStream):
    return left.as_of_join(right, pair)


def _watched(left: KeyedStream, right: KeyedStream):
    return left.union(right).key_by(lambda row: row.key).process_fn(Watch())


_FORMS = {"interval join": _interval, "as-of join": _as_of, "timers": _watched}


def _rows(count: int, *, seed: int) -> list[list[Row]]:
    """Return rows in the order of time, by epoch."""
    chance = random.Random(seed)
    span = count * MS_PER_ROW
    rows = [
        Row(f"key-{chance.randrange(KEYS)}", chance.randrange(span), chance.random())
        for _ in range(count)
    ]
    rows.sort(key=lambda row: row.time)
    size = -(-count // EPOCHS)
    return [rows[start : start + size] for start in range(0, count, size)]


def _job(form: str, env: StreamEnvironment) -> None:
    marks = WatermarkStrategy.bounded_out_of_orderness(timedelta(seconds=1))
    sides = [
        env.add_source(script_source(Row)).uid(uid)
        .assign_timestamps(marks.with_timestamps(lambda row: row.time))
        .key_by(lambda row: row.key)
        for uid in ("left", "right")
    ]  # fmt: skip
    _FORMS[form](*sides).uid("judged").collect("out")


def _cost(form: str, backend: str, left: list[list[Row]], right: list[list[Row]]) -> float:
    """Return microseconds per row."""
    spent = 0.0
    engine = EngineOptions(state_backend=backend)
    with Harness(partial(_job, form), engine=engine) as harness:
        for ours, theirs in zip(left, right, strict=True):
            harness.push(ours, source="left")
            harness.push(theirs, source="right")
            began = time.process_time()
            while harness.run_epoch() is not None:
                pass
            spent += time.process_time() - began
        count = len(harness.results("out"))
    _check(form, count)
    return spent * 1e6 / sum(map(len, left + right))


def _bare_cost(left: list[list[Row]], right: list[list[Row]]) -> float:
    """Return microseconds per row of a loop that joins what it has in lists."""
    began = time.process_time()
    kept: tuple[dict[str, list[Row]], ...] = defaultdict(list), defaultdict(list)
    times: tuple[dict[str, list[int]], ...] = defaultdict(list), defaultdict(list)
    results = []
    for ours, theirs in zip(left, right, strict=True):
        for side, rows in ((0, ours), (1, theirs)):
            for row in rows:
                other = times[1 - side][row.key]
                low = bisect_left(other, row.time - REACH_MS)
                high = bisect_right(other, row.time + REACH_MS)
                results += [
                    pair(row, match) if side == 0 else pair(match, row)
                    for match in kept[1 - side][row.key][low:high]
                ]
                kept[side][row.key].append(row)
                times[side][row.key].append(row.time)
    spent = time.process_time() - began
    _check("interval join", len(results))
    return spent * 1e6 / sum(map(len, left + right))


_counts: dict[str, int] = {}


def _check(form: str, count: int) -> None:
    if count != _counts.setdefault(form, count) or not count:
        raise WrongOutputError(f"{form}: {count:,} results, {_counts[form]:,} before")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=40_000, help="rows of both sides")


if __name__ == "__main__":
    main()
