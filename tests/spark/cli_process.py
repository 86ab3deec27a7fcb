"""The command ``bicycle`` as a process, and what its word count must come to."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bicycle_runtime.base.processes import descendants, is_alive, kill_all
from tests.spark.jobsite import SHORT_LIVED_JAVA
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
SOURCES = [
    ROOT / name / "src" for name in ("plugin_sdk", "streams", "runtime", "plugins/wordcount")
]
PROGRAM = "from bicycle_runtime.cli import main; main()"


@dataclass
class Bicycle:
    """Runs commands with a home of its own, but for what makes starts faster.

    ``site`` may hold more plugins.
    """

    home: Path
    site: Path
    cache: Path
    environment: dict[str, str] = field(default_factory=SHORT_LIVED_JAVA.copy)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True)
        (self.home / "cache").symlink_to(self.cache)

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command; stdout and stderr are pipes."""
        path = os.pathsep.join(map(str, [self.site, *SOURCES]))
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            env={
                **os.environ,
                **self.environment,
                **environment,
                "BICYCLE_HOME": str(self.home),
                "PYTHONPATH": path,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        process = self.start(*words, **environment)
        try:
            stdout, stderr = process.communicate(timeout=PATIENCE_S)
        finally:
            end(process)
        return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)

    def answer(self, *words: str, **environment: str):
        """Run a command that must do well, and return its JSON document."""
        done = self.run(*words, "--json", **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def status(self, job: str) -> dict:
        """Return the status file of a job; empty when there is none yet."""
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.home / "jobs" / job / "status.json").read_text())
        return {}

    def wait_until(self, job: str, condition) -> dict:
        """Wait until the status of a job is as it should be."""

        def found() -> dict | None:
            status = self.status(job)
            return status if status and condition(status) else None

        return until(found, lambda: f"another status: {self.status(job)}")

    def kill_jobs(self) -> None:
        """Leave no job behind that was submitted, also when the test failed."""
        for path in (self.home / "jobs").glob("*/status.json"):
            status = json.loads(path.read_text())
            for pid, started in (
                (status["supervisor_pid"], status["supervisor_started"]),
                (status["pid"], status["pid_started"]),
            ):
                if is_alive(pid, started):
                    kill_all(pid)


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process that a failed test left behind, and close its pipes."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    process.communicate()


def counts_in(folder: Path) -> dict[str, list[int]]:
    """Return the published counts by word, in rising order."""
    counts: dict[str, list[int]] = {}
    for file in folder.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            counts.setdefault(record["word"], []).append(record["count"])
    return {word: sorted(found) for word, found in counts.items()}


def expected_counts(text: str) -> dict[str, list[int]]:
    """Return what an exact word count publishes: 1..n for every word."""
    return {word: list(range(1, n + 1)) for word, n in Counter(text.lower().split()).items()}


def java_children(pid: int) -> list[int]:
    """Return the Java processes whose parent is ``pid``."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")
            if int(fields[2].split()[1]) == pid and "(java" in fields[0]:
                found.append(int(entry.name))
    return found


def python_workers(driver: int) -> list[int]:
    """Return what Spark's Python daemon has forked."""
    found = []
    for pid in descendants(driver):
        with contextlib.suppress(OSError):
            if b"spark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    daemons = [pid for pid in found if set(descendants(pid)) & set(found)]
    return [pid for pid in found if pid not in daemons]
