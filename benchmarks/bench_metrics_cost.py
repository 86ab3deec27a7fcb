"""What the figures of a job cost: W1 with and without what measures its operators.

The job of W1 runs on the local executor in this process, in turns as it is and with the clocks and
histograms of operators taken out; each run counts by its processor time, which other programs
disturb least. Two such runs differ by more than that costs, so it is timed apart as well: all that
a run measures, once more and nothing else. What the driver does with the figures is timed so, too:
it adds up each epoch, and writes the status twice a second.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from benchmark_jobs import is_bought_dict, to_order_dict
from measuring import Report, Table, Target, arguments, in_turns
from workloads import Events, check_totals, scratch

from bicycle_runtime.engine.epoch.stats import EpochStats
from bicycle_runtime.jobs.home import JobFolder
from bicycle_runtime.jobs.running.progress import JobProgress
from bicycle_runtime.jobs.status import JobState, JobStatus
from bicycle_runtime.operators.functions import operator
from bicycle_runtime.operators.metrics import MetricValues
from bicycle_runtime.operators.tasks import chain, task
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment, file_sink
from bicycle_sdk.clock import ManualClock

_WRITE_S = 0.5  # as drivers do


def main() -> None:
    """Measure both and tell."""
    options = arguments(__doc__, repeats=15, add=_add_options)
    events = Events(count=20_000 if options.quick else options.events)
    epochs: list[EpochStats] = []
    contenders = {
        "measured": partial(_run_s, events, epochs),
        "not measured": partial(_unmeasured_s, events),
    }
    for run in contenders.values():
        run()
    found = in_turns(contenders, rounds=options.repeats)
    pairs = list(zip(found["measured"], found["not measured"], strict=True))
    workers = 100 * statistics.median(a / b - 1 for a, b in pairs)
    best = 100 * (min(found["measured"]) / min(found["not measured"]) - 1)
    run_s = statistics.median(found["measured"])
    driver = 100 * _driver_s(epochs, run_s) / run_s
    rows = [[name, *_spread(times)] for name, times in found.items()]
    report = Report(
        name="metrics-cost",
        claim="The metrics of a job cost at most 3 % of W1.",
        payload=f"{events.text}; read, filtered, mapped and written as JSON lines, with dicts",
        method=f"{options.repeats} rounds in turns on the local executor, by processor time; "
        "the part of the driver is timed with the epochs of the last round and two "
        "status updates a second",
    )
    title = "Processor time of a run"
    report.tables.append(Table(title=title, columns=["seconds", "median", "least"], rows=rows))
    apart = 100 * _apart_s(events) / run_s
    report.targets += [
        Target(name="operators measure themselves", value=workers, best=best, unit="%"),
        Target(name="the same, timed apart", value=apart, unit="%"),
        Target(name="the driver adds up and writes", value=driver, unit="%"),
        Target(name="together", value=workers + driver, best=best + driver, unit="%", high=3),
        Target(name="together, timed apart", value=apart + driver, unit="%", high=3),
    ]
    report.tell(options)


def _run_s(events: Events, epochs: list[EpochStats]) -> float:
    """Return the processor time of a run, and keep what its epochs were like."""

    def build(env: StreamEnvironment) -> None:
        read = env.read_jsonl(str(events.folder())).uid("events")
        orders = read.filter(is_bought_dict).uid("bought").map(to_order_dict).uid("orders")
        orders.sink_to(file_sink(str(output))).uid("out")

    with scratch("metrics") as place:
        output = place / "output"
        with Harness(build, parallelism=2, real_sinks={"out"}) as harness:
            gc.collect()
            began_s = time.process_time()
            harness.run()
            passed_s = time.process_time() - began_s
            epochs[:] = harness.epochs
        check_totals(output, events)
    return passed_s


def _unmeasured_s(events: Events) -> float:
    with _in_place_of(clock=int, took=_nothing, metrics=lambda _self: {}):
        return _run_s(events, [])


@contextlib.contextmanager
def _in_place_of(*, clock: Any, took: Any, metrics: Any) -> Iterator[None]:
    """Put others in the place of the clocks, histograms and user metrics of operators."""
    with contextlib.ExitStack() as patched:
        for module in (operator, chain):
            patched.enter_context(mock.patch.object(module, "perf_counter_ns", clock))
        own = SimpleNamespace(perf_counter=time.perf_counter, perf_counter_ns=clock)
        patched.enter_context(mock.patch.object(task, "time", own))
        for name, value in (("took", took), ("metrics", metrics)):
            patched.enter_context(mock.patch.object(operator.Operator, name, value))
        yield


def _nothing(_self: object, _duration_ns: int, _record_count: int) -> None:
    """Take no note of a batch."""


def _apart_s(events: Events) -> float:
    """Return the processor time of all that the operators of a run measure, done alone."""
    read_count, notes, operators = 0, [], []

    def read() -> int:
        nonlocal read_count
        read_count += 1
        return time.perf_counter_ns()

    def took(each: operator.Operator, duration_ns: int, record_count: int) -> None:
        notes.append((each, duration_ns, record_count))
        real_took(each, duration_ns, record_count)

    def metrics(each: operator.Operator) -> MetricValues:
        operators.append(each)
        return real_metrics(each)

    real_took, real_metrics = operator.Operator.took, operator.Operator.metrics
    with _in_place_of(clock=read, took=took, metrics=metrics):
        _run_s(events, [])
    began_s = time.process_time()
    for _ in range(read_count):
        time.perf_counter_ns()
    for note in notes:
        real_took(*note)
    for each in operators:
        real_metrics(each)
    return time.process_time() - began_s


def _driver_s(epochs: list[EpochStats], run_s: float) -> float:
    """Return what a driver takes for the figures of these epochs, in a run of so many seconds."""
    clock = ManualClock(1_000)
    status = JobStatus(id="w1", job="w1", plugin="w1", state=JobState.RUNNING)
    with scratch("metrics") as place:
        folder = JobFolder(Path(place))
        progress = JobProgress(status, folder=folder, clock=clock, listener=lambda _status: None)
        began_s = time.process_time()
        for stats in epochs:
            progress.take_epoch(stats)
        added_s = time.process_time() - began_s
        writes = max(round(run_s / _WRITE_S), 1)
        began_s = time.process_time()
        for _ in range(writes):
            progress.write()
        return added_s + time.process_time() - began_s


def _spread(times: list[float]) -> list[str]:
    return [f"{statistics.median(times):.3f}", f"{min(times):.3f}"]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=int, default=1_000_000, help="events of a run")


if __name__ == "__main__":
    main()
