"""Running jobs as a user does: the command in a process of its own, on real Spark.

A ``JobSite`` is a folder with all that one job touches: input, output, checkpoints, home, temporary
files. Every process that is started there carries a mark in its environment, so that a test can
find the driver, Spark's Java process and the Python workers, kill one of them, and prove at the end
that none is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bicycle_runtime.connectors.files.parts import PartPlan
from bicycle_runtime.recovery.manifest import Manifest, decode_manifest
from tests.waiting import PATIENCE_S, until

MARK = "BICYCLE_TEST_SITE"
# For jobs that live for seconds: no second compiler, and a collector without threads.
SHORT_LIVED_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

_DAEMON = b"spark.daemon"


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a site, as ``/proc`` shows it."""

    pid: int
    parent: int
    command: bytes

    @property
    def program(self) -> str:
        return Path(os.fsdecode(self.command.partition(b"\0")[0])).name

    @property
    def is_java(self) -> bool:
        return self.program.endswith("java")

    @property
    def is_python(self) -> bool:
        return self.program.startswith("python")

    @property
    def is_python_of_spark(self) -> bool:
        return _DAEMON in self.command


class Life:
    """One run of the command, from its start to its end, however it ends.

    Args:
        process: The driver.
        folder: Holds ``stdout``, ``stderr``, and one file for each fault that happened.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder

    @property
    def stdout(self) -> str:
        return (self.folder / "stdout").read_text()

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    @property
    def answer(self) -> dict[str, Any]:
        """The JSON document of a run with ``--json``: a summary or an error."""
        return json.loads(self.stdout)

    @property
    def log_events(self) -> list[dict[str, Any]]:
        """The log lines of a run with ``--json``."""
        return [json.loads(line) for line in self.stderr.splitlines() if line.startswith("{")]

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        return self.process.wait(patience_s)

    def wait_for_fault(self, fault: str) -> int:
        """Wait until a fault has happened; return the id of the process that it happened in."""
        path = self.folder / fault

        def pid() -> int:
            if path.exists() and (text := path.read_text()):
                return int(text)
            assert self.process.poll() is None or path.exists(), (fault, self.stdout, self.stderr)
            return 0

        return until(pid, fault)

    def release(self) -> None:
        """Let go of what holds."""
        (self.folder / "release").touch()

    def hold_again(self) -> None:
        """Take ``release`` back, for the next fault that holds."""
        (self.folder / "release").unlink()


def resident_bytes(pid: int) -> int:
    """Return how much memory of the machine a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class JobSite:
    """A job, its folders and its processes. ``cache`` is one for all: it makes starts faster."""

    root: Path
    cache: Path
    plugin: str = "wordcount"
    params: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=SHORT_LIVED_JAVA.copy)
    lives: list[Life] = field(default_factory=list)

    def __post_init__(self) -> None:
        for folder in (self.input, self.home, self.temporary, self.plugins, self.root / "lives"):
            folder.mkdir(parents=True)
        (self.home / "cache").symlink_to(self.cache)
        self.params = {"input": str(self.input), "output": str(self.output)}

    @property
    def input(self) -> Path:
        return self.root / "input"

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def storage(self) -> Path:
        """The job's own folder among the checkpoints."""
        return self.checkpoints / self.plugin

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def plugins(self) -> Path:
        """A folder on the path, for distributions of the test's own."""
        return self.root / "plugins"

    def start(self, *words: str, faults: str = "") -> Life:
        """Start ``bicycle run`` with more words on the command line."""
        sets = [f"--set={name}={value}" for name, value in self.params.items()]
        command = [str(Path(sys.executable).with_name("bicycle")), "run", "--plugin", self.plugin]
        place = ["--checkpoint-dir", str(self.checkpoints)]
        return self.launch([*command, *sets, *place, *words], faults=faults)

    def launch(self, command: Sequence[str], *, faults: str = "") -> Life:
        """Start any command as a driver of this site."""
        folder = self.root / "lives" / f"{len(self.lives):03}"
        folder.mkdir()
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            process = subprocess.Popen(
                command, stdout=out, stderr=err, start_new_session=True, cwd=self.root,
                env=self._environment(folder, faults),
            )  # fmt: skip
        self.lives.append(Life(process, folder))
        return self.lives[-1]

    def run(self, *words: str, **more: Any) -> Life:
        """Run the command to its end, with ``--json``."""
        life = self.start(*words, "--json", **more)
        life.wait()
        return life

    def finish(self, *words: str, faults: str = "") -> Life:
        """Run the command to its end, which must be a good one that leaves nothing behind."""
        life = self.run(*words, faults=faults)
        assert life.process.returncode == 0, (life.stdout, life.stderr)
        assert life.answer["state"] == "FINISHED"
        self.wait_for_no_process()
        return life

    def processes(self) -> list[Process]:
        """Return the processes of this site that run now."""
        return marked_processes(self.root)

    def java(self) -> Process:
        """Return Spark's Java process, and that one alone: the plugin's child is Python."""
        [java] = [found for found in self.processes() if found.is_java]
        return java

    def workers(self) -> list[Process]:
        """Return the Python workers: what Spark's Python daemon has forked."""
        pythons = [found for found in self.processes() if found.is_python_of_spark]
        daemons = {found.pid for found in pythons}
        return [found for found in pythons if found.parent in daemons]

    def by_role(self) -> dict[str, list[int]]:
        """Return the processes of a job that runs: driver, java, workers.

        What Java starts for a moment, such as ``rm``, is none of them: it begins as a helper that
        has all files of Java open.
        """
        found = self.processes()
        [java] = [each.pid for each in found if each.is_java]
        workers = [each.pid for each in found if each.is_python_of_spark]
        driver = [each.pid for each in found if each.is_python and not each.is_python_of_spark]
        return {"driver": driver, "java": [java], "workers": workers}

    def wait_for_no_process(self) -> None:
        """Prove that whatever was started has ended by itself."""
        until(
            lambda: not self.processes(),
            lambda: f"the end of {self.processes()}",
        )

    def kill_everything(self) -> None:
        """Leave no process behind, also when the test failed."""
        while found := self.processes():
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.01)
        for life in self.lives:
            life.process.wait()

    def newest_epoch(self) -> int:
        """Return the last sealed epoch, 0 when there is none."""
        return max(map(_epoch_of, self.manifest_paths()), default=0)

    def manifest_paths(self) -> list[Path]:
        return sorted((self.storage / "epochs").glob("[0-9]*.manifest"))

    def manifest(self, place: int = -1) -> Manifest:
        """Return the manifest of the last sealed epoch, or of one before it."""
        path = self.manifest_paths()[place]
        return decode_manifest(path.read_bytes(), path=str(path))

    def status(self) -> dict[str, Any]:
        return json.loads((self.home / "jobs" / self.plugin / "status.json").read_text())

    def _environment(self, folder: Path, faults: str) -> dict[str, str]:
        changed = {
            MARK: str(self.root),
            "BICYCLE_HOME": str(self.home),
            "BICYCLE_FAULTS": faults,
            "BICYCLE_FAULTS_ONCE": str(folder),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(self.plugins),
            **self.environment,
        }
        return {**os.environ, **changed}


def marked_processes(root: Path) -> list[Process]:
    """Return the processes with the mark of a folder that run now."""
    mark = f"{MARK}={root}\0".encode()
    numbers = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [found for pid in numbers if (found := _process(pid, mark)) is not None]


def visible_lines(output: Path) -> list[str]:
    """Return the lines of all files in an output directory, where only whole parts may be."""
    lines: list[str] = []
    for path in sorted(output.iterdir() if output.exists() else ()):
        if path.name.startswith(".owner-"):
            continue
        assert path.name.startswith("part-"), f"{path.name} is not a finished part"
        text = path.read_text()
        assert text.endswith("\n"), f"{path.name} is cut"
        lines += text.splitlines()
    return lines


def visible_counts(output: Path) -> Counter[tuple[str, int]]:
    """Return the records that a word count has made visible, each with how often it is there."""
    records = map(json.loads, visible_lines(output))
    return Counter((record["word"], record["count"]) for record in records)


def expected_counts(words: list[str]) -> Counter[tuple[str, int]]:
    """Return what a word count of these words must make visible: 1 to n for each word, once."""
    return Counter(
        (word, count) for word, total in Counter(words).items() for count in range(1, total + 1)
    )


def sealed_lines(site: JobSite, sink: str) -> list[str]:
    """Return the lines that the last sealed epoch gave a sink, as far as they are still staged."""
    plans = map(PartPlan.from_json, site.manifest().sinks[sink].get("plans", []))
    paths = [site.storage / file.path for plan in plans for file in plan.files]
    return [line for path in paths if path.exists() for line in path.read_text().splitlines()]


def leftovers(site: JobSite) -> list[Path]:
    """Return temporary files that crashed processes left behind and nobody removed."""
    found = [*site.storage.rglob(".tmp-*"), *site.output.rglob(".*")]
    return [*found, *site.temporary.glob("bicycle*")]


def epoch_ms(status: dict[str, Any]) -> float:
    """Return the age of the running epoch; 0 between two."""
    began_ms = status["epoch_began_ms"]
    return 0 if began_ms is None else time.time() * 1_000 - began_ms


def _epoch_of(manifest: Path) -> int:
    return int(manifest.stem)


def _process(pid: int, mark: bytes) -> Process | None:
    folder = Path("/proc") / str(pid)
    try:
        if mark not in (folder / "environ").read_bytes():
            return None
        command = (folder / "cmdline").read_bytes()
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else Process(pid, int(fields[1]), command)
