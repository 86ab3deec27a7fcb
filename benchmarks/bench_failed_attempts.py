"""What it costs that nothing of a failed attempt stays: the same job under other policies.

A keyed process function with value state; the whole job runs in one process, every epoch sealed.
Under ``fail`` nothing can be undone; under the others each attempt keeps a log. No record fails:
what is measured is being ready for it.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import time
from collections.abc import Callable
from functools import partial

from keyed_counts import counting
from measuring import Report, Table, Target, WrongOutputError, arguments, in_turns

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness
from bicycle_sdk import (
    dead_letter,
    fail,
    retry,
    skip,
)
from bicycle_sdk.graph import ErrorPolicy

POLICIES: dict[str, ErrorPolicy] = {
    "fail": fail(),
    "skip": skip(),
    "dead_letter": dead_letter(),
    "retry": retry(3).then(fail()),
}


def main() -> None:
    """Measure the job under each policy and tell."""
    options = arguments(__doc__, repeats=11, add=_add_options)
    key_count, event_count = (1_000, 5_000) if options.quick else (options.keys, options.events)
    keys = [f"user-{number:07}" for number in range(key_count)]
    events = random.Random(1).choices(keys, k=event_count)
    engine = EngineOptions(max_records_per_epoch=event_count)
    with contextlib.ExitStack() as stack:
        contenders: dict[str, Callable[[], float]] = {}
        for name, policy in POLICIES.items():
            harness = stack.enter_context(Harness(counting(policy), parallelism=1, engine=engine))
            contenders[name] = partial(_cost, harness, events)
            contenders[name]()
        found = in_turns(contenders, rounds=options.repeats)
    targets = [
        Target(
            name=f"{name} ÷ fail",
            value=statistics.median(a / b for a, b in zip(found[name], found["fail"], strict=True)),
            best=min(found[name]) / min(found["fail"]),
            high=1.3,
            unit="x",
        )
        for name in POLICIES
        if name != "fail"
    ]
    rows = [
        [name, f"{statistics.median(times):.0f}", f"{min(times):.0f}"]
        for name, times in found.items()
    ]
    report = Report(
        name="failed-attempts",
        claim="A job with value state costs at most 1.3 times as much if failed attempts are "
        "undone.",
        payload=f"{event_count:,} events per epoch over {key_count:,} text keys; one value is read "
        "and written for each",
        method=f"{options.repeats} epochs in turns, the whole job in one process, by processor "
        "time; number of results checked in every epoch",
        tables=[Table(title="One event", columns=["ns per event", "median", "best"], rows=rows)],
        targets=targets,
    )
    report.tell(options)


def _cost(harness: Harness, events: list[str]) -> float:
    """Run one epoch and return nanoseconds of processor time per event."""
    harness.push(events)
    before = len(harness.results("out"))
    began = time.process_time_ns()
    harness.run()
    spent = time.process_time_ns() - began
    if len(harness.results("out")) - before != len(events):
        raise WrongOutputError(f"not one count for each of {len(events)} events")
    return spent / len(events)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=10_000, help="keys with state")
    parser.add_argument("--events", type=int, default=100_000, help="events of one epoch")


if __name__ == "__main__":
    main()
