"""Joins and process functions: in memory, with RocksDB, and beside bare loops.

All run the same rows through the real epoch loop and the operators that jobs run, with commit and
restore, in one process. A bare loop does the same on dicts and sorted lists; it is given the rows
as objects, keeps nothing and survives nothing. Another one gets the same bytes as an operator,
and leaves its results and its state as bytes.
"""

from __future__ import annotations

import argparse
import gc
import pickle
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from join_jobs import EPOCHS, FORMS, KEYS, LOOPS, Epochs, Row, job, rows_of
from measuring import Report, Table, Target, WrongOutputError, arguments, in_turns

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness

_BACKENDS = ("memory", "rocksdb")


def main() -> None:
    """Measure all and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options)
    # A list is told at twenty rows of a key.
    count = 20_000 if options.quick else options.rows
    rows = rows_of(count)
    contenders: dict[str, Callable[[], float]] = {}
    for form in FORMS:
        for backend in _BACKENDS:
            contenders[f"{form}, {backend}"] = partial(_cost, form, backend, rows)
    for name, loop in LOOPS.items():
        contenders[f"{name}, bare loop"] = partial(_bare_cost, name, loop, rows)
        contenders[f"{name}, loop with bytes"] = partial(_bytes_cost, name, loop, rows)
    gc.set_threshold(1_000_000, 50, 100)  # As in a worker.
    found = in_turns(contenders, rounds=options.repeats)
    rate = {name: 1e6 / statistics.median(costs) for name, costs in found.items()}
    report = Report(
        name="joins",
        claim="Joins and process functions with RocksDB are half as fast as in memory, or faster.",
        payload=f"{count:,} rows of {KEYS} keys, one of five on the right side, in {EPOCHS} "
        "epochs; process functions get both sides in one stream",
        method=f"{options.repeats} rounds in turns through the epoch loop in one process, with "
        "commit and restore; processor time; number of results equal for both backends and the "
        "bare loop",
        tables=[_table(rate)],
        targets=_targets(rate),
    )
    report.tell(options)


def _table(rate: dict[str, float]) -> Table:
    kinds = (*_BACKENDS, "bare loop", "loop with bytes")
    return Table(
        title="Rows per second of processor time",
        columns=["", *kinds],
        rows=[
            [form, *(_told(rate.get(f"{form}, {kind}")) for kind in kinds)] for form in FORMS
        ],
    )  # fmt: skip


def _told(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _targets(rate: dict[str, float]) -> list[Target]:
    targets = [
        Target(
            name=f"{form}, RocksDB ÷ memory",
            value=rate[f"{form}, rocksdb"] / rate[f"{form}, memory"], low=0.5, unit="x",
        )
        for form in FORMS
    ]  # fmt: skip
    for form in LOOPS:
        for loop in ("bare loop", "loop with bytes"):
            value = rate[f"{form}, memory"] / rate[f"{form}, {loop}"]
            targets.append(Target(name=f"{form}, memory ÷ {loop}", value=value, low=0.4, unit="x"))
    seven = rate["all seven, memory"]
    targets.append(Target(name="all seven, memory, rows per second", value=seven, low=20_000))
    return targets


def _cost(form: str, backend: str, rows: Epochs) -> float:
    """Return microseconds per row."""
    gc.collect()
    spent = 0.0
    engine = EngineOptions(state_backend=backend)
    with Harness(partial(job, form), engine=engine) as harness:
        for ours, theirs in rows:
            harness.push(ours, source="left")
            harness.push(theirs, source="right")
            began = time.process_time()
            while harness.run_epoch() is not None:
                pass
            spent += time.process_time() - began
        for number in range(len(FORMS[form])):
            name = form if len(FORMS[form]) == 1 else list(FORMS)[number]
            _check(name, len(harness.results(f"out-{number}")))
    return _per_row(spent, rows)


def _bare_cost(form: str, loop: Callable[[Epochs], list[Any]], rows: Epochs) -> float:
    """Return microseconds per row of a loop."""
    began = time.process_time()
    results = loop(rows)
    spent = time.process_time() - began
    _check(form, len(results))
    return _per_row(spent, rows)


def _bytes_cost(form: str, loop: Callable[[Epochs], list[Any]], rows: Epochs) -> float:
    """Return microseconds per row of a loop that reads rows and leaves results and rows as bytes.

    The rows stand for its state, which is as large.
    """
    encoded = [msgspec.msgpack.encode(sides) for sides in rows]
    decoder = msgspec.msgpack.Decoder(tuple[list[Row], list[Row]])
    began = time.process_time()
    decoded = list(map(decoder.decode, encoded))
    results = loop(decoded)
    msgspec.msgpack.encode(results)
    pickle.dumps(decoded, protocol=5)
    spent = time.process_time() - began
    _check(form, len(results))
    return _per_row(spent, rows)


def _per_row(spent_s: float, rows: Epochs) -> float:
    return spent_s * 1e6 / sum(len(side) for sides in rows for side in sides)


_counts: dict[str, int] = {}


def _check(form: str, count: int) -> None:
    if count != _counts.setdefault(form, count) or not count:
        raise WrongOutputError(f"{form}: {count:,} results, {_counts[form]:,} before")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=40_000, help="rows of both sides")


if __name__ == "__main__":
    main()
