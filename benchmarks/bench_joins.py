"""Joins and process functions: in memory, with RocksDB, and beside bare loops.

All run the same rows through the real epoch loop and the operators that jobs run, with commit and
restore, in one process, again and again until seconds of work are done in each round. A bare loop
does the same on dicts and sorted lists; it is given the rows as objects, keeps nothing and survives
nothing. Another one gets the same bytes as an operator, and leaves its results and its state as
bytes. PyFlink runs the same process functions from file to file on two cores, which is told.
"""

from __future__ import annotations

import argparse
import gc
import math
import pickle
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import msgspec
from flink_peer import FLINK_MODES, PYFLINK, run_flink
from join_jobs import (
    EPOCHS,
    FORMS,
    KEYS,
    LOOPS,
    Epochs,
    Row,
    job,
    result_counts,
    rows_of,
    write_rows,
)
from measuring import Report, Table, Target, WrongOutputError, add_peers, arguments, in_turns
from peers import available
from workloads import count_lines, scratch

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness

_BACKENDS = ("memory", "rocksdb")
_KINDS = (*_BACKENDS, "bare loop", "loop with bytes")
_LOOP_S = 0.5
JUDGED = (
    "each form in memory ÷ bare loop ≥ 0.4, and ÷ the loop with bytes; RocksDB ÷ memory ≥ 0.5; all "
    "seven in memory ≥ 20,000 rows a second"
)


def main() -> None:
    """Measure all and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options, judged=JUDGED)
    seconds = 0.0 if options.quick else options.seconds
    loop_s = min(_LOOP_S, seconds)
    # A list is told at twenty rows of a key.
    count = 20_000 if options.quick else options.rows
    rows = rows_of(count)
    contenders: dict[str, Callable[[], float]] = {}
    for form in FORMS:
        for backend in _BACKENDS:
            contenders[f"{form}, {backend}"] = partial(
                _work_cost, seconds, rows, partial(_spent, form, backend, rows)
            )
    for name, loop in LOOPS.items():
        contenders[f"{name}, bare loop"] = partial(
            _work_cost, loop_s, rows, partial(_bare_spent, name, loop, rows)
        )
        contenders[f"{name}, loop with bytes"] = partial(
            _work_cost, loop_s, rows, partial(_bytes_spent, name, loop, rows)
        )
    gc.set_threshold(1_000_000, 50, 100)  # As in a worker.
    found = in_turns(contenders, rounds=options.repeats)
    rate = {name: 1e6 / statistics.median(costs) for name, costs in found.items()}
    report = Report(
        name="joins",
        claim="Joins and process functions with RocksDB have at least half of their throughput in "
        "memory.",
        payload=f"{count:,} rows of {KEYS} keys, one of five on the right side, in {EPOCHS} "
        "epochs; process functions get both sides in one stream",
        method=f"{options.repeats} rounds in turns of {seconds:g} s of work, loops {loop_s:g} s, "
        "through the epoch loop in one process, with commit and restore; processor time; number "
        "and sum of the results equal for both backends and the loops",
        tables=[_table(rate)],
        targets=_targets(rate),
    )
    if options.peers and not options.quick:
        tables, notes = _flink_table(rows)
        report.tables += tables
        report.notes += notes
    report.tell(options)


def _flink_table(rows: Epochs) -> tuple[list[Table], list[str]]:
    """Run PyFlink in both modes with both of its state backends; the number of results is checked.

    Its subtasks read side by side, so that sums, which depend on the order of rows, may differ.
    """
    peers, notes = available((PYFLINK,))
    if not peers:
        return [], notes
    told = []
    with scratch("rows") as source:
        count = write_rows(rows, source)
        for form, expected in result_counts(rows).items():
            cells = [form]
            for mode, state in product(FLINK_MODES, ("hashmap", "rocksdb")):
                with scratch("flink") as place:
                    output = place / "output"
                    lap = run_flink(
                        "flink_process", source, output,
                        mode=mode, count=count, state=state, form=form,
                    )  # fmt: skip
                    found = count_lines(output)
                if found != expected:
                    raise WrongOutputError(f"PyFlink, {form}: {found:,} results of {expected:,}")
                cells.append(f"{lap.rate:,.0f}")
            told.append(cells)
    columns = [
        "",
        *(f"{mode}, {state}" for mode, state in product(FLINK_MODES, ("hashmap", "rocksdb"))),
    ]
    title = f"{PYFLINK.name}, {count:,} rows: a second by the clock, on two cores"
    return [Table(title=title, columns=columns, rows=told)], notes


def _table(rate: dict[str, float]) -> Table:
    return Table(
        title="Rows per second of processor time",
        columns=["", *_KINDS],
        rows=[
            [form, *(_told(rate.get(f"{form}, {kind}")) for kind in _KINDS)] for form in FORMS
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


def _work_cost(seconds: float, rows: Epochs, run: Callable[[], float]) -> float:
    """Repeat a run until so much work is done; return microseconds per row."""
    spent, runs = 0.0, 0
    while spent < seconds or not runs:
        spent += run()
        runs += 1
    return spent * 1e6 / runs / sum(len(side) for sides in rows for side in sides)


def _spent(form: str, backend: str, rows: Epochs) -> float:
    """Return the processor seconds of a job."""
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
        numbers = range(len(FORMS[form]))
        _check(form, [each for number in numbers for each in harness.results(f"out-{number}")])
    return spent


def _bare_spent(form: str, loop: Callable[[Epochs], list[Any]], rows: Epochs) -> float:
    """Return the processor seconds of a loop."""
    began = time.process_time()
    results = loop(rows)
    spent = time.process_time() - began
    _check(form, results)
    return spent


def _bytes_spent(form: str, loop: Callable[[Epochs], list[Any]], rows: Epochs) -> float:
    """Return the processor seconds of a loop that reads rows, and leaves results and rows as bytes.

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
    _check(form, results)
    return spent


_found: dict[str, tuple[int, float]] = {}


def _check(form: str, results: list[Any]) -> None:
    count, total = len(results), math.fsum(result[-1] for result in results)
    expected, known = _found.setdefault(form, (count, total))
    if not count or count != expected or not math.isclose(total, known, rel_tol=1e-9):
        raise WrongOutputError(
            f"{form}: {count:,} results with a sum of {total}, before {expected:,} with {known}"
        )


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=80_000, help="rows of both sides")
    add_peers(parser, "PyFlink")
    parser.add_argument(
        "--seconds", type=float, default=7.0, help="work of a job in each round, loops less"
    )


if __name__ == "__main__":
    main()
