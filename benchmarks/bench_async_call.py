"""An ``AsyncFunction`` that never awaits against the same function as a plain method.

Both run through the operator that jobs run them with, built from a graph as on a worker; batches
are as large as there. The functions do next to nothing, so that the call is what is measured.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from benchmark_jobs import AwaitableSplitter, PlainSplitter
from measuring import Report, Table, Target, WrongOutputError, arguments, in_turns
from one_operator import operator_of
from workloads import scratch

from bicycle_runtime.operators.batch import Batch, ExchangeLineage
from bicycle_runtime.operators.functions.operator import Operator
from bicycle_sdk import AsyncFunction, DataStream

BATCH_RECORDS = 4_096
FORMS: dict[str, Callable[[DataStream, AsyncFunction], DataStream]] = {
    "process": lambda stream, function: stream.process(function),
    "process_ordered": lambda stream, function: stream.process_ordered(
        function, timeout=timedelta(seconds=30), capacity=100
    ),
    "process_unordered": lambda stream, function: stream.process_unordered(
        function, timeout=timedelta(seconds=30), capacity=100
    ),
}


def main() -> None:
    """Measure each form of the call and tell."""
    options = arguments(__doc__, repeats=15, add=_add_options)
    batches = 5 if options.quick else options.batches
    rows, targets = [], []
    for form, made in FORMS.items():
        with scratch("async") as place:
            contenders = {
                name: partial(_cost, operator_of(partial(made, function=function), place), batches)
                for name, function in (("async", AwaitableSplitter()), ("plain", PlainSplitter()))
            }
            found = in_turns(contenders, rounds=options.repeats)
        pairs = zip(found["async"], found["plain"], strict=True)
        value = statistics.median(a / b for a, b in pairs)
        best = min(found["async"]) / min(found["plain"])
        name = f"async ÷ plain, {form}"
        targets.append(Target(name=name, value=value, best=best, high=1.5, unit="x"))
        rows += [[f"{form}, {kind}", *_entries(times)] for kind, times in found.items()]
    columns = ["ns per record", "median", "best"]
    report = Report(
        name="async-call",
        claim="An async function that never awaits costs at most 1.5 times as much as a "
        "plain function.",
        payload=f"strings, {BATCH_RECORDS:,} in a batch, one result for each",
        method=f"{options.repeats} rounds in turns of {batches} batches, through the operator of a "
        "job, in one process; number of results checked in every batch",
        tables=[Table(title="One call, operator included", columns=columns, rows=rows)],
        targets=targets,
    )
    report.tell(options)


def _cost(operator: Operator, batches: int) -> float:
    """Return nanoseconds per record."""
    values = [f"value-{number}" for number in range(BATCH_RECORDS)]
    spent = 0
    for _ in range(batches):
        batch = Batch(values, ExchangeLineage(None))
        began = time.perf_counter_ns()
        output = operator.process(batch)
        spent += time.perf_counter_ns() - began
        if output.values != values:
            raise WrongOutputError(f"{len(output.values)} results for {len(values)} records")
    return spent / batches / BATCH_RECORDS


def _entries(times: list[float]) -> list[str]:
    return [f"{statistics.median(times):.0f}", f"{min(times):.0f}"]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batches", type=int, default=50, help="batches of one round")


if __name__ == "__main__":
    main()
