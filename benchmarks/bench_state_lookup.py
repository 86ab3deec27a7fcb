"""Look-ups of keys in the published state of a job, as the service makes them for API and page.

A million keys are counted by a job in this process, and sealed. Then the child process that the
service asks looks up keys, at random, one after the other: its start and its first reading of the
files are told apart. Every tenth key is one that is not there.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time

from measuring import Report, Table, Target, WrongOutputError, arguments, percentile

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.service.state_lookups import StateLookups
from bicycle_runtime.testing import Harness, script_source

BACKENDS = ("memory", "rocksdb")
EPOCHS = 4


def counting(env):
    env.add_source(script_source(str)).key_by(str).count().uid("counts").collect("out")


def main() -> None:
    """Measure both backends and tell."""
    options = arguments(__doc__, repeats=1, add=_add_options)
    key_count = 20_000 if options.quick else options.keys
    ask_count = 100 if options.quick else options.lookups
    report = Report(
        name="state-lookup",
        claim="A key is found in a published epoch of a million keys in at most 50 ms.",
        payload=f"{key_count:,} text keys with counts, sealed by {EPOCHS} epochs and some "
        f"small epochs; {ask_count:,} look-ups of random keys, a tenth of them missing",
        method="the child process of the service handles one look-up after the other, each "
        "in the newest epoch; each result is compared with the expected result",
    )
    rows = []
    for backend in BACKENDS:
        first_ms, found_ms = _look_up(backend, key_count, ask_count)
        p50, p99 = percentile(found_ms, 0.5), percentile(found_ms, 0.99)
        figures = (p50, p99, max(found_ms), first_ms)
        rows.append([backend, *(f"{figure:,.1f}" for figure in figures)])
        report.targets.append(Target(name=f"look-up p99, {backend}", value=p99, unit="ms", high=50))
    columns = ["milliseconds", "p50", "p99", "worst", "first"]
    report.tables.append(Table(title="Look-ups of one key", columns=columns, rows=rows))
    report.tell(options)


def _look_up(backend: str, key_count: int, ask_count: int) -> tuple[float, list[float]]:
    """Return the time of the first look-up, and of all behind it, in milliseconds."""
    engine = EngineOptions(state_backend=backend)
    source, lookups = random.Random(7), StateLookups()
    with Harness(counting, parallelism=2, engine=engine) as harness:
        for start in range(EPOCHS):
            harness.push([f"user-{number:07}" for number in range(start, key_count, EPOCHS)])
            harness.run_epoch()
        for _ in range(3):
            harness.push(["user-0000000"])
            harness.run_epoch()
        try:
            first_ms = _one(lookups, harness.storage.url, 1, is_there=True)
            found = [
                _one(
                    lookups,
                    harness.storage.url,
                    source.randrange(1, key_count),
                    is_there=number % 10 > 0,
                )
                for number in range(ask_count)
            ]
        finally:
            lookups.close()
    return first_ms, found


def _one(lookups: StateLookups, url: str, number: int, *, is_there: bool) -> float:
    key = f"user-{number:07}" if is_there else f"nobody-{number:07}"
    question = {"about": "entries", "operator": "counts", "key": key, "limit": 20}
    began = time.perf_counter()
    answer = asyncio.run(lookups.ask(url, question))
    took_ms = (time.perf_counter() - began) * 1e3
    values = [entry["value"] for entry in answer["entries"]]
    if values != ([1] if is_there else []):
        raise WrongOutputError(f"{key} has {values}")
    return took_ms


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys in the state")
    parser.add_argument("--lookups", type=int, default=2_000, help="look-ups for each backend")


if __name__ == "__main__":
    main()
