"""Running jobs of ours in this process, and what each run was like, epoch by epoch.

``Engine`` keeps one Java process for many jobs: the first one warms it up, the others are measured.
A job goes the way of any plugin (extraction in a child process, plan, epoch loop); only the command
line is left out, which ``bench_startup.py`` measures.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measuring import BUILD
from paces import Lap
from this_machine import processor_ticks

from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.engine.epoch.stats import EpochStats
from bicycle_runtime.engine.executor import Executor
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import JobSetup, prepare_job
from bicycle_runtime.engine.spark.executor import SparkExecutor
from bicycle_runtime.extraction.discovery import PluginRef, discover
from bicycle_runtime.extraction.extract import extract
from bicycle_sdk.clock import SystemClock

__all__ = [
    "CORES", "Engine", "JobRun", "engine_on", "job", "lap_of", "local_engine", "spark_engine",
    "warm_up",
]  # fmt: skip

CORES = 2
_HERE = Path(__file__).parent


@dataclass(slots=True)
class JobRun:
    """One run of a job. Times are seconds of the monotonic clock."""

    began: float
    ended: float = 0.0
    epochs: list[tuple[float, EpochStats]] = field(default_factory=list)
    idle_share: float = 0.0  # of all cores, from the end of the first epoch on

    @property
    def read_count(self) -> int:
        """Records read from sources."""
        return sum(stats.record_count for _, stats in self.epochs)

    @property
    def whole_rate(self) -> float:
        """Records per second from the first look at the input to the last published file."""
        return self.read_count / (self.ended - self.began)

    def steady_rate(self) -> float:
        """Records per second behind the first third, by when epochs have grown.

        Within an epoch records count as read at an even pace: behind the one that passes the third,
        next to nothing may be left.
        """
        third = self.read_count / 3
        done, sealed_before = 0, self.began
        for sealed, stats in self.epochs:
            if done + stats.record_count > third:
                share = (third - done) / stats.record_count
                reached = sealed_before + share * (sealed - sealed_before)
                return (self.read_count - third) / (self.ended - reached)
            done += stats.record_count
            sealed_before = sealed
        return self.whole_rate

    def full_epochs(self) -> list[EpochStats]:
        """Return the epochs that read something."""
        return [stats for _, stats in self.epochs if stats.record_count]


class Engine:
    """Runs jobs one after another on one executor.

    Args:
        executor: Is started with the first job and stopped at the end only.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def start_workers(self) -> None:
        """Wait until Spark and its workers are up; an engine without Spark has none."""
        if isinstance(self._executor, SparkExecutor):
            self._executor.warm()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.stop()

    def run(
        self,
        setup: JobSetup,
        *,
        options: EngineOptions | None = None,
        is_finished: bool = True,
        on_epoch: Callable[[EpochStats], object] | None = None,
        stop: threading.Event | None = None,
    ) -> JobRun:
        """Run a job until its input ends, waiting for more as the runtime does.

        Args:
            setup: The job, from ``job``.
            options: Settings of the epoch loop.
            is_finished: Whether a last epoch ends the output; without it more input may follow.
            on_epoch: Is called behind each epoch, outside its measured time.
            stop: Ends a job whose input has no end.
        """
        found = JobRun(began=0.0)
        stop = stop or threading.Event()
        before = processor_ticks()

        def take(stats: EpochStats) -> None:
            nonlocal before
            if not found.epochs:
                before = processor_ticks()
            found.epochs.append((time.monotonic(), stats))
            if on_epoch is not None:
                on_epoch(stats)

        with self.loop(setup, options=options, on_epoch=take) as loop:
            found.began = time.monotonic()
            while not stop.is_set() and not (step := loop.step(reads_on=True)).is_finished:
                if not step.has_run:
                    stop.wait(step.wait_ms / 1000)
            if is_finished:
                loop.finish(is_finished=not stop.is_set())
            found.ended = time.monotonic()
            idle, total = (a - b for a, b in zip(processor_ticks(), before, strict=True))
            found.idle_share = idle / max(total, 1)
        return found

    def loop(
        self,
        setup: JobSetup,
        *,
        options: EngineOptions | None = None,
        on_epoch: Callable[[EpochStats], object] = lambda _: None,
    ) -> EpochLoop:
        """Return the epoch loop of a job, for who steps it by hand; enter it to start the job.

        Args:
            setup: The job, from ``job``.
            options: Settings of the epoch loop.
            on_epoch: Is called behind each epoch.
        """
        services = LoopServices(clock=SystemClock(), console=print, on_epoch=on_epoch)
        return EpochLoop(
            setup, _KeptExecutor(self._executor), options=options or EngineOptions(),
            run_id=attempt_id(source=random.SystemRandom()), services=services,
        )  # fmt: skip


@dataclass(slots=True)
class _KeptExecutor:
    """An executor that a loop cannot stop."""

    executor: Executor

    def start(self, image: Any) -> None:
        self.executor.start(image)

    def run(self, orders: Any) -> Any:
        return self.executor.run(orders)

    def slots(self) -> int:
        return self.executor.slots()

    def rest(self) -> None:
        self.executor.rest()

    def stop(self) -> None:
        """The engine stops it."""


def spark_engine(cores: int = CORES) -> Engine:
    """Return an engine on embedded Spark with two cores if not told otherwise; Java is up then."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{_HERE}{os.pathsep + before if before else ''}"
    executor = SparkExecutor(
        f"local[{cores},4]", settings={}, cache_dir=BUILD / "cache", job="benchmark"
    )
    executor.boot()
    return Engine(executor)


@contextmanager
def engine_on(core: int) -> Iterator[Engine]:
    """Give an engine on one core; this process, too, and all that it starts, run there alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        with spark_engine(cores=1) as engine:
            yield engine
    finally:
        os.sched_setaffinity(0, before)


def local_engine() -> Engine:
    """Return an engine in this process, without Java: one task after another."""
    return Engine(LocalExecutor())


def job(
    plugin: str, params: Mapping[str, Path | str], *, storage: Path | str, is_synced: bool = True,
    parallelism: int = CORES,
) -> JobSetup:  # fmt: skip
    """Extract and plan a job.

    Args:
        plugin: The plugin ``wordcount``, or a job of ``benchmark_jobs`` or ``kafka_jobs``.
        params: Its parameters.
        storage: Folder or URL of its checkpoints.
        is_synced: Whether files are forced to disk, as they are for users.
        parallelism: Parallelism of every operator.
    """
    texts = {name: str(value) for name, value in params.items()}
    bundle = extract(_plugin(plugin), texts, parallelism=parallelism)
    place = open_storage(str(storage)) if is_synced else LocalStorage(str(storage), is_synced=False)
    return prepare_job(bundle, job_id=plugin, storage=place)


def _plugin(name: str) -> PluginRef:
    if name == "wordcount":
        return discover().find(name)
    modules = {"kafka": "kafka_jobs", "nexmark": "nexmark_jobs", "windows": "window_jobs"}
    module = modules.get(name.partition("_")[0], "benchmark_jobs")
    return PluginRef(
        name=name, module=module, attribute=name,
        dist_name="bicycle-benchmarks", dist_version="1", location=str(_HERE),
    )  # fmt: skip


def lap_of(run: JobRun, *, per_record: int = 1) -> Lap:
    """Return what a run was like.

    Args:
        run: The run.
        per_record: What is counted in each record that is read.
    """
    return Lap(
        count=run.read_count * per_record, seconds=run.ended - run.began,
        steady_rate=run.steady_rate() * per_record, idle_share=run.idle_share,
    )  # fmt: skip


def warm_up(run: Callable[[], Lap], *, least: int, most: int) -> list[float]:
    """Run a job until its steady rate no longer grows by a tenth; returns the rates.

    Args:
        run: One run.
        least: Runs at least.
        most: Runs at most.
    """
    rates: list[float] = []
    while len(rates) < most:
        lap = run()
        rates.append(lap.steady_rate or lap.rate)
        if len(rates) >= max(least, 2) and rates[-1] < rates[-2] * 1.1:
            break
    return rates
