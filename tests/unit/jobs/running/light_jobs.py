"""Whole jobs with their driver, but with tasks in this process in place of Spark."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bicycle_runtime.base.stacks import ProcessStacks
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.running.driver import run_job
from bicycle_runtime.jobs.running.services import DoorServices
from bicycle_runtime.jobs.running.summary import RunSummary
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from bicycle_runtime.operators.heartbeats import LastPosition
from bicycle_sdk.clock import Clock, SystemClock
from tests.unit.jobs.job_samples import request_of
from tests.waiting import PATIENCE_S, until

# A job half of whose records end as dead letters.
LETTERS = """
from bicycle_sdk import StreamEnvironment, bicycle_plugin, dead_letter

def even(value: int) -> int:
    if value % 2:
        raise ValueError(f"{value} is odd")
    return value

@bicycle_plugin
def letters(env: StreamEnvironment) -> None:
    numbers = env.from_collection(list(range(10)))
    numbers.map(even).uid("even").on_error(dead_letter()).collect("out")
"""


class LightExecutor(LocalExecutor):
    """Runs tasks in the thread of the driver. ``fails`` holds what the next starts raise."""

    java_pid = None

    def __init__(self, fails: list[BaseException]) -> None:
        super().__init__()
        self._fails = fails

    def boot(self) -> None:
        """Nothing takes long."""

    def take_ended_workers(self) -> list[LastPosition]:
        """There are no workers."""
        return []

    def end_tasks(self) -> list[ProcessStacks]:
        """There are no other hosts."""
        return []

    def ship(self, shipment: object) -> None:
        """Tasks see what this process sees."""

    def start(self, image: Any) -> None:
        if self._fails:
            raise self._fails.pop(0)
        super().start(image)


@dataclass
class LightJob:
    """One job in a home and a checkpoint directory below ``root``.

    Its driver runs in a thread, or with ``run`` in this one.
    """

    root: Path
    plugin: str
    params: dict[str, str] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    fails: list[BaseException] = field(default_factory=list)
    executor_count: int = 0
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home = Home(self.root / "home")
        self.stop = StopRequest()
        place = {"name": "job", "checkpoint_dir": str(self.root / "checkpoints")}
        options = {"plugin": self.plugin, **place, **self.options}
        self._request = request_of(self.params, **options)
        data = self._request.to_json()
        self._request = JobRequest.from_json({**data, "engine": self.engine})

    @property
    def status(self) -> JobStatus:
        """As it was last written."""
        status = self.home.folder("job").status()
        assert status is not None
        return status

    def run(self) -> RunSummary:
        """Run the job to its end."""
        services = DoorServices(
            clock=self.clock, source=random.Random(7), console=_ignore, announce=_ignore,
            listener=self._see, stop=self.stop,
        )  # fmt: skip
        return run_job(self._request, self.home, services, new_executor=self._new_executor)

    def start(self) -> Future[RunSummary]:
        """Run the job in a thread; a test that fails does not wait for its end."""
        done: Future[RunSummary] = Future()

        def run() -> None:
            try:
                done.set_result(self.run())
            except BaseException as error:  # noqa: BLE001 - It is told to the test.
                done.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return done

    def wait_until(self, condition: Callable[[JobStatus], object], what: str) -> JobStatus:
        """Wait for a status that was written."""

        def found() -> JobStatus | None:
            status = self.home.folder("job").status()
            return status if status is not None and condition(status) else None

        found_status: JobStatus = until(found, what)
        return found_status

    def end(self, running: Future[RunSummary]) -> RunSummary:
        """Stop a job that runs."""
        self.stop.set()
        return running.result(PATIENCE_S)

    def _new_executor(self, *_: object) -> LightExecutor:
        self.executor_count += 1
        return LightExecutor(self.fails)

    def _see(self, status: JobStatus) -> None:
        if self.seen[-1:] != [status.state.value]:
            self.seen.append(status.state.value)


def _ignore(_line: str) -> None:
    """Say nothing."""
