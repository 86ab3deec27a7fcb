"""Other systems doing the same work, each in an environment of its own below ``.build``.

An environment is made when it is first needed, by pip. Where that fails (no network), the system
is left out and the report says so: no benchmark of ours needs it. Programs are in
``peer_programs/``; they tell when they took their first record and when they were done.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from measuring import BUILD, run_program

__all__ = [
    "BYTEWAX",
    "ORJSON",
    "SPARK_STATE",
    "Peer",
    "PeerMissingError",
    "PeerRun",
    "SparkRun",
    "SparkWindows",
    "available",
    "run_bytewax",
    "run_plain",
    "run_spark_state",
    "run_spark_windows",
]

_HERE = Path(__file__).parent
_PROGRAMS = _HERE / "peer_programs"


class PeerMissingError(Exception):
    """The environment of a peer cannot be made here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRun:
    """One run: start-up is from the start of the program to its first record."""

    startup_s: float
    busy_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRun:
    """One run of Spark: seconds from its start to the first batch; records and seconds of each.

    ``restart_s`` is how long the query took for what came later; 0 when nothing did.
    """

    startup_s: float
    batches: list[tuple[int, float]]
    restart_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """Seconds of all batches."""
        return sum(seconds for _, seconds in self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A system with its packages. ``is_on_ours`` lets it see the packages of this environment."""

    name: str
    folder: str
    requirements: tuple[str, ...]
    is_on_ours: bool = False

    def python(self) -> Path:
        """Return the interpreter of its environment, made when missing.

        Raises:
            PeerMissingError: it cannot be made.
        """
        place = BUILD / "environments" / self.folder
        python, stamp = place / "bin" / "python", place / "requirements.txt"
        wanted = "\n".join(self.requirements)
        if stamp.is_file() and stamp.read_text() == wanted:
            return python
        print(f"  setting up {self.name} in {place} …", file=sys.stderr, flush=True)
        venv.create(place, with_pip=True, clear=True)
        if self.is_on_ours:
            version = f"python{sys.version_info.major}.{sys.version_info.minor}"
            ours = place / "lib" / version / "site-packages" / "ours.pth"
            ours.write_text(sysconfig.get_paths()["purelib"] + "\n")
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run(
            [*map(str, command), *self.requirements], capture_output=True, text=True, check=False
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["pip said nothing"]
            raise PeerMissingError(f"{self.name} could not be installed: {lines[-1]}")
        stamp.write_text(wanted)
        return python


ORJSON = "orjson==3.13.0"
BYTEWAX = Peer(
    name="Bytewax 0.21.1", folder="bytewax", requirements=("bytewax==0.21.1", ORJSON)
)  # fmt: skip
SPARK_STATE = Peer(
    name="PySpark transformWithState",
    folder="spark-state",
    requirements=("pandas>=2.2,<3", "protobuf>=5", "pyarrow>=15"),
    is_on_ours=True,
)


def available(peers: Iterable[Peer]) -> tuple[list[Peer], list[str]]:
    """Return those of the peers that run here, and what to say of the others."""
    found: list[Peer] = []
    notes: list[str] = []
    for peer in peers:
        try:
            peer.python()
            found.append(peer)
        except PeerMissingError as error:
            notes.append(f"{error}; it is left out.")
    return found, notes


def run_plain(
    loop: str, source: Path, output: Path, *, process_count: int = 2
) -> PeerRun:  # fmt: skip
    """Run a plain loop of ``plain_loops.py``, in two processes if not told otherwise."""
    command = [sys.executable, _HERE / "plain_loops.py", loop, source, output]
    began = time.monotonic()
    told = json.loads(run_program([*command, "--processes", str(process_count)]))
    return PeerRun(startup_s=told["began"] - began, busy_s=told["ended"] - told["began"])


def run_bytewax(
    program: str, source: Path, output: Path, *, recovery: Path | None, process_count: int,
    snapshot_s: int = 10, thread_count: int = 1, batch_size: int = 1_000,
) -> PeerRun:  # fmt: skip
    """Run a Bytewax flow.

    Args:
        program: Module in ``peer_programs``.
        source: Folder with the input.
        output: Folder for the output; made when missing.
        recovery: Folder for its recovery files; None is without recovery.
        process_count: 1 is one worker in one process.
        snapshot_s: Seconds between snapshots; 10 is its default.
        thread_count: Workers of each process.
        batch_size: Lines that a source gives at once; 1,000 is its default.

    Raises:
        PeerMissingError: Bytewax cannot be installed here.
    """
    python = BYTEWAX.python()
    times = output.parent / "times"
    for folder in (output, times):
        folder.mkdir(parents=True, exist_ok=True)
    durable: list[str | Path] = []
    if recovery is not None:
        recovery.mkdir(parents=True, exist_ok=True)
        run_program([python, "-m", "bytewax.recovery", recovery, str(process_count)])
        durable = ["-r", recovery, "-s", str(snapshot_s), "-b", "0"]
    environment = {
        "PYTHONPATH": str(_PROGRAMS), "BENCH_INPUT": str(source), "BENCH_OUTPUT": str(output),
        "BENCH_TIMES": str(times), "BENCH_BATCH": str(batch_size),
    }  # fmt: skip
    command = [
        python, "-m", "bytewax.testing", f"{program}:flow",
        "-p", str(process_count), "-w", str(thread_count),
    ]  # fmt: skip
    began = time.monotonic()
    run_program([*command, *durable], **environment)
    return _span(times, began)


def run_spark_state(source: Path, output: Path, *, later: Path | None = None) -> SparkRun:
    """Run PySpark's ``transformWithState``: one micro-batch per input file.

    Args:
        source: Folder with the input.
        output: Folder for the output.
        later: Folder with input that is put into ``source`` before the query is started again.

    Raises:
        PeerMissingError: what it needs cannot be installed here.
    """
    python = SPARK_STATE.python()
    folders = [source, output, output.parent / "state", *([] if later is None else [later])]
    return _run_spark([python, _PROGRAMS / "spark_words.py", *folders], PYSPARK_PYTHON=str(python))


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkWindows:
    """A query of Spark's own windows: its columns in SQL, and where its state lies.

    Args:
        value: What is summed up.
        value_type: Of the field.
        key: What windows are kept for.
        keeps: Which readings count.
        has_rocksdb: RocksDB in place of Spark's default, a table in memory with files.
    """

    value: str = "value"
    value_type: str = "long"
    key: str = "sensor"
    keeps: str = "true"
    has_rocksdb: bool = False


def run_spark_windows(
    warm_up: Path, source: Path, output: Path, query: SparkWindows = SparkWindows()
) -> SparkRun:  # fmt: skip
    """Run Spark's own windows in Java, one micro-batch per input file, over two inputs in turn.

    Args:
        warm_up: Folder with the input that is not measured.
        source: Folder with the input.
        output: Folder for the output.
        query: What it computes.
    """
    program, state = _PROGRAMS / "spark_windows.py", output.parent / "state"
    words = json.dumps(asdict(query))
    return _run_spark([sys.executable, program, warm_up, source, output, state, words])


def _run_spark(command: list[str | Path], **environment: str) -> SparkRun:
    began = time.monotonic()
    told = json.loads(run_program(command, PYTHONPATH="", **environment).splitlines()[-1])
    return SparkRun(
        startup_s=told["first_batch_began"] - began,
        batches=[(count, seconds) for count, seconds in told["batches"]],
        restart_s=told.get("restart_s", 0.0),
    )


def _span(times: Path, began: float) -> PeerRun:
    spans = [json.loads(file.read_text()) for file in times.iterdir()]
    first = min(span["first"] for span in spans if span["first"] is not None)
    return PeerRun(startup_s=first - began, busy_s=max(span["last"] for span in spans) - first)
