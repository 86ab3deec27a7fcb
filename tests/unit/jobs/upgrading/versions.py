"""Versions of one plugin as real environments, and drivers of it without Spark.

``python -m tests.unit.jobs.upgrading.versions HOME JOB`` is such a driver: it runs what the job's
folder asks for until it is stopped. With ``ahead`` it follows the job first, until its turn comes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.jobs.control.previous_run import job_locks
from bicycle_runtime.jobs.home import Home, locate_job
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.running.driver import run_job
from bicycle_runtime.jobs.running.services import DoorServices
from bicycle_runtime.jobs.running.submission import run_in_turn
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from bicycle_runtime.service.plugins.uploaded_plugins import Plugins, environment_of, install_plugin
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.logging import configure
from bicycle_sdk.random_source import system_random
from tests.cluster.wheels import write_wheel
from tests.unit.jobs.running.light_jobs import LightExecutor
from tests.waiting import until

PLUGIN = """
from dataclasses import dataclass
from bicycle_sdk import StreamEnvironment, bicycle_plugin, file_sink

@dataclass(frozen=True, kw_only=True)
class Places:
    input: str
    output: str

def parse(line: str) -> str:
    {body}

def shown(pair: tuple[str, int]) -> dict[str, object]:
    return {{"word": pair[0], "count": pair[1], "by": "{version}"}}

@bicycle_plugin(name="demo", version="{version}")
def demo(env: StreamEnvironment, places: Places) -> None:
    words = env.read_text(places.input).uid("lines").map(parse).uid("parse")
    counts = words.key_by(lambda word: word).count().uid("{count_uid}")
    counts.map(shown).uid("shown").sink_to(file_sink(places.output)).uid("out")
"""


_BUILT: dict[tuple[str, str, str], Path] = {}


def plugin_wheel(
    folder: Path, version: str, *, body: str = "return line", count_uid: str = "count"
) -> Path:
    """Write the wheel of a version; ``body`` is what it does with a line."""
    text = PLUGIN.format(version=version, body=body, count_uid=count_uid)
    entries = {"demo": "demo:demo"}
    return write_wheel(folder, "demo", version, {"demo.py": text}, plugins=entries)


@dataclass
class Site:
    """A home, the input and the output of one job, and its drivers."""

    root: Path
    drivers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    engine: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home = Home(self.root / "home")
        self.home.prepare()
        self.input, self.output = self.root / "in.txt", self.root / "out"
        self.input.write_text("")

    def install(self, version: str, *, body: str = "return line", count_uid: str = "count") -> str:
        """Upload a version; return its digest. Each is built once, for all tests."""
        known = _BUILT.get((version, body, count_uid))
        if known is not None:
            target = self.home.path / "plugins" / known.name
            shutil.copytree(known, target, symlinks=True)
            return known.name
        wheel = plugin_wheel(self.root / "wheels", version, body=body, count_uid=count_uid)
        digest = self._install(wheel)
        kept = Path(tempfile.mkdtemp(dir=self.root.parent)) / digest
        shutil.copytree(self.home.path / "plugins" / digest, kept, symlinks=True)
        _BUILT[version, body, count_uid] = kept
        return digest

    def install_two(self, version: str, *, body: str) -> str:
        """Upload a wheel with the plugins demo and second; ``body`` is of the second."""
        modules = {
            f"{name}.py": PLUGIN.format(version=version, body=text, count_uid="count").replace(
                'name="demo"', f'name="{name}"'
            )
            for name, text in (("demo", "return line"), ("second", body))
        }
        entries = {"demo": "demo:demo", "second": "second:demo"}
        folder = self.root / "wheels"
        return self._install(write_wheel(folder, "demo", version, modules, plugins=entries))

    def _install(self, wheel: Path) -> str:
        with wheel.open("rb") as stream:
            facts = Plugins(self.home).receive(wheel.name, stream, None, owner="ada")
        return install_plugin(self.home, facts, clock=SystemClock())[0].digest

    def request(self, digest: str, **options: object) -> JobRequest:
        """Return the job with a version."""
        chosen = {
            "plugin": "demo", "plugin_env": environment_of(self.home, digest), "name": "job",
            "follow": True, "restart_attempts": 0, **options,
        }  # fmt: skip
        params = {"input": str(self.input), "output": str(self.output)}
        return JobRequest(options=JobOptions(**chosen), params=params, engine=self.engine)

    def start(self, request: JobRequest, *, is_trial: bool = False) -> JobStatus:
        """Start a driver, as ``submit`` does."""
        return self._start(request, self.driver, is_trial=is_trial)

    def driver(self, *words: str) -> subprocess.Popen[bytes]:
        """Return the process of a driver."""
        with (self.root / "driver.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self.home.path), "job", *words],
                stdout=log, stderr=log, env=environment_for_python(),
            )  # fmt: skip
        self.drivers.append(process)
        return process

    def _start(
        self, request: JobRequest, begin: Callable[[], subprocess.Popen[bytes]], *, is_trial: bool
    ) -> JobStatus:
        location = locate_job(
            request.options, self.home, clock=SystemClock(), source=system_random()
        )  # fmt: skip
        folder = location.folder
        with job_locks(location):
            folder.write_request(request)
        process = begin()

        def begun() -> JobStatus | None:
            status = folder.status()
            is_own = status is not None and status.pid == process.pid
            is_there = is_own and (
                status.has_begun or status.state.is_final or (is_trial and status.restarts)
            )
            assert is_there or process.poll() is None, (self.root / "driver.log").read_text()
            return status if is_there else None

        status: JobStatus = until(begun, "the driver")
        if status.error is not None:
            process.wait()
            raise error_from_json(status.error)
        return status

    def prepare(self) -> LightAhead:
        """Start a driver ahead of its turn, beside the one that runs."""
        return LightAhead(self)

    def feed(self, *lines: str) -> None:
        with self.input.open("a") as stream:
            stream.write("".join(f"{line}\n" for line in lines))

    def rows(self) -> list[dict[str, object]]:
        """Return what is published, in any order."""
        files = [p for p in self.output.glob("*") if p.is_file() and not p.name.startswith(".")]
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    @property
    def status(self) -> JobStatus:
        status = self.home.folder("job").status()
        assert status is not None
        return status

    def end(self) -> None:
        for process in self.drivers:
            process.kill()
            process.wait()


class LightAhead:
    """As ``PreparedStart``, without Spark and supervisor."""

    def __init__(self, site: Site) -> None:
        self._site = site
        own = f"{os.getpid()}:{start_ticks(os.getpid())}"
        self.process = site.driver("ahead", own)
        folder, pid = site.home.folder("job"), self.process.pid
        self._turn, self._ready = folder.turn_path(pid), folder.ready_path(pid)
        self.is_taken = False

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def wait(self) -> bool:
        until(lambda: self._ready.exists() or not self.is_running, "a driver ahead of its turn")
        return self.is_running

    def start(self, request: JobRequest, *, is_trial: bool = False) -> JobStatus:
        if not self.is_running:
            return self._site.start(request, is_trial=is_trial)
        return self._site._start(request, self._begin, is_trial=is_trial)

    def _begin(self) -> subprocess.Popen[bytes]:
        self.is_taken = True
        self._turn.touch()
        return self.process

    def drop(self) -> None:
        if not self.is_taken:
            self.process.kill()
            self.process.wait()
            self._ready.unlink(missing_ok=True)


class LightWarm:
    """As ``WarmExecutor``, without Spark."""

    def __init__(self) -> None:
        self.first = LightExecutor([])

    def warm(self) -> None:
        """Nothing takes long."""

    def stop(self) -> None:
        self.first.stop()

    def __call__(self, *_: object) -> LightExecutor:
        return self.first


def main(arguments: list[str]) -> None:
    home = Home(Path(arguments[0]))
    folder = home.folder(arguments[1])
    own = os.getpid(), start_ticks(os.getpid()) or 0
    configure(sys.stderr, as_json=False, job=folder.id)
    with StopRequest().on_signals() as stop:
        services = DoorServices(
            clock=SystemClock(), source=system_random(), console=_ignore, announce=_ignore,
            listener=_ignore, stop=stop, supervisor=own if arguments[2:] else (0, 0),
        )  # fmt: skip
        if arguments[2:]:
            pid, _, started = arguments[3].partition(":")
            starter = int(pid), int(started)
            run_in_turn(LightWarm(), home, services, folder=folder, starter=starter)
            return
        run_job(
            folder.read_request(), home, services, new_executor=lambda *_: LightExecutor([]),
            folder=folder,
        )  # fmt: skip


def _ignore(_: object) -> None:
    """Nobody looks."""


if __name__ == "__main__":
    main(sys.argv[1:])
