"""Other parallelism for a job that runs: how long it pauses, beside starting it again with them.

A running count on Spark has read all keys; then its parallelism change, up and down. The pause goes
from the last seal before to the first seal behind, in which every subtask has taken over its state.
In the epoch behind it a subtask may meet a worker process that has not loaded its state yet. The
start again keeps the Java process, which a user's restart does not (``bench_startup.py``).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bicycle_runs import CORES, Engine, job, spark_engine
from measuring import Report, Table, Target, WrongOutputError, arguments
from workloads import Keys, scratch

from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.rescaling import RescaleRequest, rescale
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.testing.inspection import SealedObjects
from bicycle_sdk.clock import SystemClock

BACKENDS = ("memory", "rocksdb")
PARALLELISMS = (4, 8, 3, 2)
PAUSE_S_MAX = {1_000_000: 2.0, 10_000_000: 10.0}
RESTART_S_MAX = 10.0


@dataclass(slots=True)
class Times:
    """Seconds of one backend: pauses by step, epochs behind them, and starts again."""

    pauses: dict[str, list[float]] = field(default_factory=dict)
    behind: list[float] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)
    warm_restarts: list[float] = field(default_factory=list)

    @property
    def longest(self) -> float:
        """The longest pause, in the median of the rounds."""
        return max(statistics.median(found) for found in self.pauses.values())


def main() -> None:
    """Measure and tell."""
    options = arguments(__doc__, repeats=2, add=_add_options)
    sizes = [Keys(count=count) for count in ([20_000] if options.quick else options.keys)]
    texts = " and ".join(f"{keys.count:,}" for keys in sizes)
    report = Report(
        name="rescale",
        claim="A job of a million keys changes its parallelism with a pause of at most 2 s, "
        "and a job of ten million keys with a pause of at most 10 s.",
        payload=f"a running count of {texts} keys, state in memory or on disk",
        method=f"{options.repeats} rounds on Spark with {CORES} cores; pause from one sealed "
        "epoch to the next; restarts in the same Java process; all counts compared "
        "with the expected results",
    )
    with spark_engine() as engine:
        for keys in sizes:
            times = {name: Times() for name in options.backend or BACKENDS}
            for _ in range(options.repeats):
                for backend, found in times.items():
                    _round(engine, keys, backend, found)
            report.tables.append(_table(times, keys.count))
            for name, found in times.items():
                _add_targets(report, name, found, keys.count)
    report.tell(options)


def _round(engine: Engine, keys: Keys, backend: str, times: Times) -> None:
    with scratch("rescale") as place:
        options = EngineOptions(
            state_backend=backend, state_dir=str(place / "local"),
            state_cache_entries=max(1_000, keys.count // 10),
        )  # fmt: skip
        setup = _job(keys, place)
        with engine.loop(setup, options=options) as loop:
            while not loop.step().is_finished:
                pass
            before = CORES
            for parallelism in PARALLELISMS:
                done = rescale(loop, RescaleRequest(parallelism=parallelism), SystemClock())
                step = f"{before} → {parallelism}"
                times.pauses.setdefault(step, []).append(done.pause_ms / 1_000)
                before = parallelism
                times.behind.append(_timed(loop.run_without_input))
            _check(loop, keys)
        times.restarts.append(_restarted(engine, _job(keys, place, parallelism=3), options))
        times.warm_restarts.append(_restarted(engine, _job(keys, place, parallelism=3), options))


def _restarted(engine: Engine, setup: JobSetup, options: EngineOptions) -> float:
    began = time.monotonic()
    with engine.loop(setup, options=options) as loop:
        loop.run_without_input()
        return time.monotonic() - began


def _timed(act: Callable[[], None]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def _job(keys: Keys, place: Path, parallelism: int = CORES) -> JobSetup:
    params = {"input": keys.folder(), "output": place / "output"}
    return job("keys_counted", params, storage=place / "checkpoints", parallelism=parallelism)


def _check(loop: EpochLoop, keys: Keys) -> None:
    topology = loop.topology
    [spec] = [spec for spec in topology.setup.plan.operators() if spec.uid == "count"]
    counts = SealedObjects(topology.setup, topology.last, spec).entries()
    if len(counts) != keys.count or set(counts.values()) != {1}:
        raise WrongOutputError(f"{len(counts):,} of {keys.count:,} keys are counted")


def _table(times: dict[str, Times], key_count: int) -> Table:
    steps = {step for found in times.values() for step in found.pauses}
    ordered = sorted(steps, key=lambda step: list(next(iter(times.values())).pauses).index(step))
    rows = [
        [f"pause {step}", *(_median(found.pauses[step]) for found in times.values())]
        for step in ordered
    ]
    rows.append(["epoch after a pause", *(_median(found.behind) for found in times.values())])
    rows.append(["start again with 3", *(_median(found.restarts) for found in times.values())])
    warm = [_median(found.warm_restarts) for found in times.values()]
    rows.append(["start again with 3, local state kept", *warm])
    title = f"{key_count:,} keys: seconds, median"
    return Table(title=title, columns=["what", *times], rows=rows)


def _add_targets(report: Report, name: str, found: Times, key_count: int) -> None:
    restart, warm = statistics.median(found.restarts), statistics.median(found.warm_restarts)
    warm_max = RESTART_S_MAX if name == "rocksdb" else None
    for what, value, unit, high in (
        ("longest pause", found.longest, "s", PAUSE_S_MAX.get(key_count)),
        ("longest pause ÷ start again", found.longest / restart, "x", None),
        ("warm start again", warm, "s", warm_max),
    ):
        title = f"{name}, {key_count:,} keys: {what}"
        report.targets.append(Target(name=title, value=value, unit=unit, high=high))


def _median(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f}"


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keys", type=int, nargs="+", default=[1_000_000, 10_000_000],
        help="numbers of keys (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="only this backend")


if __name__ == "__main__":
    main()
