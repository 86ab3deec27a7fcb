"""A driver without Spark: the same engine, sealing and publishing, its tasks in the one process.

It lives for a second and is forked from a process that has loaded everything, so that a test can
kill hundreds of them. What it cannot show (Java, separate workers) is shown on Spark.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.extraction.discovery import discover
from bicycle_runtime.extraction.extract import extract
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.logging import configure
from bicycle_sdk.random_source import system_random
from tests.spark.jobsite import Life
from tests.waiting import until

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "bicycle_runtime.engine.loop.epoch_loop",
        "bicycle_runtime.engine.local",
        "bicycle_runtime.connectors.kafka.sink",
        "bicycle_runtime.connectors.kafka.source",
        "bicycle_runtime.extraction.extract",
        "wordcount_kafka",
    ]
)


class Forked:
    """A process as ``Life`` wants it, with the methods of ``Popen`` that it uses."""

    def __init__(self, process: multiprocessing.context.ForkServerProcess) -> None:
        self._process = process
        assert process.pid is not None
        self.pid = process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


@dataclass(slots=True)
class LightSite:
    """A job, its checkpoints and its lives.

    Args:
        root: Folder of its own.
        params: Parameters of the plugin.
        plugin: Its name, and the job's.
        bundle: Its job, where it is no plugin that is installed.
    """

    root: Path
    params: Mapping[str, str]
    plugin: str = "wordcount_kafka"
    lives: list[Life] = field(default_factory=list)
    bundle: bytes = b""

    def __post_init__(self) -> None:
        (self.root / "lives").mkdir(parents=True)
        self.bundle = self.bundle or extract(discover().find(self.plugin), self.params).to_bytes()

    @property
    def storage(self) -> Path:
        """The job's own folder among the checkpoints."""
        return self.root / "checkpoints" / self.plugin

    def start(self, *, faults: str = "", parallelism: int = 2, records_max: int = 10_000) -> Life:
        """Start a driver; it runs until SIGTERM or a fault ends it."""
        folder = self.root / "lives" / f"{len(self.lives):05}"
        folder.mkdir()
        process = _CONTEXT.Process(
            target=run_light,
            args=(self.bundle, str(self.storage), self.plugin, str(folder)),
            kwargs={"faults": faults, "parallelism": parallelism, "records_max": records_max},
            daemon=True,
        )
        process.start()
        self.lives.append(Life(Forked(process), folder))
        return self.lives[-1]

    def stop(self, life: Life) -> None:
        """End a life as a user does; it must end well."""
        life.process.send_signal(signal.SIGTERM)
        assert life.wait() == 0, life.stderr

    def kill_everything(self) -> None:
        for life in self.lives:
            if life.process.poll() is None:
                life.process.kill()
                life.process.wait()


def let_tell(life: Life) -> None:
    """Let a driver that runs write to its stderr where its threads are."""
    life.process.send_signal(signal.SIGUSR1)
    until(lambda: "Current thread" in life.stderr, "the stacks of the driver")


def run_light(
    bundle: bytes,
    storage: str,
    job: str,
    folder: str,
    *,
    faults: str,
    parallelism: int,
    records_max: int,
) -> None:
    """Run epochs until SIGTERM. Called in the new process."""
    os.environ.update(BICYCLE_FAULTS=faults, BICYCLE_FAULTS_ONCE=folder)
    _redirect_output(Path(folder))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    setup = prepare_job(
        JobBundle.from_bytes(bundle),
        job_id=job,
        storage=LocalStorage(storage),
        parallelism=parallelism,
    )
    services = LoopServices(clock=SystemClock(), console=print, on_epoch=lambda stats: None)
    loop = EpochLoop(
        setup,
        LocalExecutor(),
        options=EngineOptions(max_records_per_epoch=records_max),
        run_id=attempt_id(source=system_random()),
        services=services,
    )
    with loop:
        while not stop.is_set():
            step = loop.step()
            if not step.has_run:
                stop.wait(step.wait_ms / 1_000)
        loop.finish(is_finished=False)


def _redirect_output(folder: Path) -> None:
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        stream.flush()
        with (folder / name).open("wb") as file:
            os.dup2(file.fileno(), stream.fileno())
    configure(sys.stderr)
    faulthandler.register(signal.SIGUSR1)
