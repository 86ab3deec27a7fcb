"""Calls that take 100 ms, a thousand of them in flight: how many records go through one core.

Each form runs through the operator that jobs run it with, built from a graph as on a worker;
batches are as large as there. The calls only wait, so what is measured is what the operator costs
and how well it keeps its places filled: 1000 places of 100 ms give 10,000 records/s at most.

Calls of 3 s run in a whole job on embedded Spark with default options: epochs, slices and batches
of files must not leave places empty. Judged is the ideal time (all places filled all the time)
divided by the time of the whole run on started workers, for each input.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

from bicycle_runs import Engine, job, spark_engine
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
SLOW_CALL_S = 3
SLOW_WAVES = 12
SHARE_MIN = 0.9
JUDGED = "each form with calls of 100 ms; each input with calls of 3 s, the whole run"


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
    """Measure each form and each input, and report."""
    options = arguments(__doc__, repeats=5, add=_add_options, judged=JUDGED)
    if options.part in ("quick-calls", "all"):
        _report_quick_calls(options)
    if options.part in ("slow-calls", "all"):
        _report_slow_calls(options)


def _report_quick_calls(options: argparse.Namespace) -> None:
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


def _report_slow_calls(options: argparse.Namespace) -> None:
    waves = 2 if options.quick else SLOW_WAVES
    rounds = 1 if options.quick else options.slow_repeats
    inputs = {"one file, 1 subtask": (1, 1), "one file, 2 subtasks": (1, 2),
              "files of 100 lines, 2 subtasks": (0, 2)}  # fmt: skip
    with spark_engine() as engine:
        engine.start_workers()
        contenders = {
            name: partial(_share_of_ideal, engine, waves, *shape) for name, shape in inputs.items()
        }
        found = in_turns(contenders, rounds=rounds)
    report = Report(
        name="async-slow-calls",
        claim="Calls of 3 s, 1000 in flight, keep 0.9 of the ideal rate with default options.",
        payload=f"lines of text, {waves * IN_FLIGHT:,} for each subtask, one result for each",
        method=f"{rounds} rounds in turns; ideal time ({waves} waves of calls) ÷ time of the whole "
        "run, from the first check of the input to the last visible file, on started workers; "
        "default options; results checked in every run",
        tables=[Table(
            title="Share of the ideal rate",
            columns=["input", *(f"round {number + 1}" for number in range(rounds))],
            rows=[[name, *(f"{share:.3f}" for share in sorted(shares))]
                  for name, shares in found.items()],
        )],
        targets=[
            Target(
                name=f"calls of 3 s ÷ ideal, {name}", value=statistics.median(shares),
                best=max(shares), low=SHARE_MIN, unit="x",
            )
            for name, shares in found.items()
        ],
    )  # fmt: skip
    report.tell(options)


def _share_of_ideal(engine: Engine, waves: int, file_count: int, parallelism: int) -> float:
    """Return the ideal time of a run divided by its time.

    Args:
        engine: Runs the job.
        waves: Waves of calls of each subtask.
        file_count: Files that the lines are divided among; 0 for files of 100 lines.
        parallelism: Parallelism of every operator.
    """
    count = waves * IN_FLIGHT * parallelism
    width = count // file_count if file_count else 100
    with scratch("slow-calls") as place:
        source, output = place / "input", place / "output"
        source.mkdir()
        for start in range(0, count, width):
            lines = "".join(f"{number}\n" for number in range(start, start + width))
            (source / f"{start}.txt").write_text(lines)
        setup = job(
            "slow_calls", {"input": source, "output": output},
            storage=place / "checkpoint", parallelism=parallelism,
        )  # fmt: skip
        run = engine.run(setup)
        _check_numbers(output, count)
    return waves * SLOW_CALL_S / (run.ended - run.began)


def _check_numbers(output: Path, count: int) -> None:
    files = output.rglob("*.jsonl")
    found = sorted(int(json.loads(line)) for file in files for line in file.read_text().split())
    if found != list(range(count)):
        raise WrongOutputError(f"{len(found)} results for {count} lines")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--part", choices=["all", "quick-calls", "slow-calls"], default="all",
        help="the reports to make (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--slow-repeats", type=int, default=1, help="rounds with calls of 3 s")
    parser.add_argument("--batches", type=int, default=3, help="batches of one round")


if __name__ == "__main__":
    main()
