"""Calls that take 100 ms, a thousand of them in flight: how many records go through one core.

Each form runs through the operator that jobs run it with, built from a graph as on a worker;
batches are as large as there. The calls only wait, so what is measured is what the operator costs
and how well it keeps its places filled: 1000 places of 100 ms give 10,000 records/s at most.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from measuring import Report, Table, Target, WrongOutputError, arguments, in_turns
from one_operator import operator_of
from workloads import scratch

from bicycle_runtime.operators.batch import Batch, ExchangeLineage
from bicycle_runtime.operators.functions.operator import Operator
from bicycle_sdk import (
    AsyncFunction,
    AsyncIOBatchFunction,
    AsyncIOFunction,
    DataStream,
)

BATCH_RECORDS = 4_096
IN_FLIGHT = 1_000
CALL_S = 0.1
LIMIT = timedelta(seconds=30)
RECORDS_PER_CALL = 50


class Wait(AsyncFunction[str, str]):
    """Waits, as for a service."""

    async def process(self, value, ctx):  # noqa: ARG002  # the signature of the base class
        await asyncio.sleep(CALL_S)
        return [value]


class WaitIO(AsyncIOFunction[str, str]):
    """Waits, as for a service."""

    async def async_invoke(self, value):
        await asyncio.sleep(CALL_S)
        return [value]


class WaitBatch(AsyncIOBatchFunction[str, str]):
    """Waits once for many records."""

    async def async_invoke_batch(self, values):
        await asyncio.sleep(CALL_S)
        return [[value] for value in values]


FORMS: dict[str, Callable[[DataStream], DataStream]] = {
    "process_ordered": lambda s: s.process_ordered(Wait(), timeout=LIMIT, capacity=IN_FLIGHT),
    "process_unordered": lambda s: s.process_unordered(Wait(), timeout=LIMIT, capacity=IN_FLIGHT),
    "async_io_ordered": lambda s: s.async_io_ordered(WaitIO(), timeout=LIMIT, capacity=IN_FLIGHT),
    "async_io_unordered": lambda s: s.async_io_unordered(
        WaitIO(), timeout=LIMIT, capacity=IN_FLIGHT
    ),
    f"async_io_batches of {RECORDS_PER_CALL}": lambda s: s.async_io_batches(
        WaitBatch(),
        max_size=RECORDS_PER_CALL,
        timeout=LIMIT,
        capacity=IN_FLIGHT // RECORDS_PER_CALL,
    ),
}


def main() -> None:
    """Measure each form and tell."""
    options = arguments(__doc__, repeats=5, add=_add_options)
    batches = 1 if options.quick else options.batches
    with scratch("async-io") as place:
        contenders = {
            form: partial(_rate, operator_of(FORMS[form], place), batches) for form in FORMS
        }
        found = in_turns(contenders, rounds=options.repeats)
    targets = [
        Target(
            name=f"records/s, {form}", value=statistics.median(rates), best=max(rates), low=5_000
        )
        for form, rates in found.items()
    ]
    rows = [[form, *(f"{rate:,.0f}" for rate in sorted(rates))] for form, rates in found.items()]
    columns = ["records/s", *(f"round {number + 1}" for number in range(options.repeats))]
    report = Report(
        name="async-in-flight",
        claim="1,000 calls of 100 ms in flight reach at least 5,000 records/s per core.",
        payload=f"strings, {BATCH_RECORDS:,} in a batch, one result for each",
        method=f"{options.repeats} rounds in turns of {batches} batches, through the operator of a "
        f"job, in one process; {IN_FLIGHT:,} records in flight; results checked in every batch",
        tables=[Table(title="Rounds, slowest first", columns=columns, rows=rows)],
        targets=targets,
    )
    report.tell(options)


def _rate(operator: Operator, batches: int) -> float:
    """Return records per second."""
    values = [f"value-{number}" for number in range(BATCH_RECORDS)]
    began = time.perf_counter()
    for _ in range(batches):
        output = operator.process(Batch(values, ExchangeLineage(None)))
        if sorted(output.values) != sorted(values):
            raise WrongOutputError(f"{len(output.values)} results for {len(values)} records")
    return batches * BATCH_RECORDS / (time.perf_counter() - began)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batches", type=int, default=3, help="batches of one round")


if __name__ == "__main__":
    main()
