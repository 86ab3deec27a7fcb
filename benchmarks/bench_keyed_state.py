"""A keyed process function with value state over a million keys, sealed with every epoch.

The whole job runs in one process: reading, keys, exchange, calls, state files, manifest. What is
counted is processor time, so that the figure is per core. A plain loop over a dict, which keeps
nothing, is told beside it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import Counter
from functools import partial

from keyed_counts import counting
from measuring import Report, Table, Target, WrongOutputError, arguments, in_turns

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness
from bicycle_sdk import fail


def main() -> None:
    """Measure epochs in steady state and tell."""
    options = arguments(__doc__, repeats=5, add=_add_options)
    key_count, event_count = (10_000, 5_000) if options.quick else (options.keys, options.events)
    keys = [f"user-{number:07}" for number in range(key_count)]
    chance = random.Random(1)
    engine = EngineOptions(max_records_per_epoch=max(key_count, event_count))
    with Harness(counting(fail()), parallelism=1, engine=engine) as harness:
        known: Counter[str] = Counter()
        epoch = partial(_epoch, harness, known)
        epoch(keys)
        contenders = {
            "bicycle": lambda: epoch(chance.choices(keys, k=event_count)),
            "plain dict": lambda: _plain(Counter(keys), chance.choices(keys, k=event_count)),
        }
        found = in_turns(contenders, rounds=options.repeats)
    targets = [
        Target(
            name="events per second and core",
            value=statistics.median(found["bicycle"]),
            best=max(found["bicycle"]),
            low=100_000,
        )
    ]
    rows = [
        [name, f"{statistics.median(paces):,.0f}", f"{max(paces):,.0f}"]
        for name, paces in found.items()
    ]
    report = Report(
        name="keyed-state",
        claim="A keyed process function with value state runs 100,000 events a second and core, "
        "durable with every epoch.",
        payload=f"{key_count:,} text keys of 12 characters, {event_count:,} random ones per epoch",
        method=f"{options.repeats} epochs over a state of all keys, the whole job in one process, "
        "by processor time; the sum of all counts checked in every epoch",
        tables=[
            Table(
                title="Events per second of processor time",
                columns=["contender", "median", "best"],
                rows=rows,
            )
        ],
        targets=targets,
    )
    report.tell(options)


def _epoch(harness: Harness, known: Counter[str], events: list[str]) -> float:
    """Run one epoch and return its events per second of processor time."""
    harness.push(events)
    before = len(harness.results("out"))
    began = time.process_time()
    harness.run()
    spent = time.process_time() - began
    expected = 0
    for event in events:
        known[event] += 1
        expected += known[event]
    if sum(harness.results("out")[before:]) != expected:
        raise WrongOutputError(f"the counts of {len(events)} events do not add up")
    return len(events) / spent


def _plain(counts: Counter[str], events: list[str]) -> float:
    began = time.process_time()
    results = []
    for event in events:
        counts[event] += 1
        results.append(counts[event])
    return len(results) / (time.process_time() - began)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys with state")
    parser.add_argument("--events", type=int, default=250_000, help="events of one epoch")


if __name__ == "__main__":
    main()
