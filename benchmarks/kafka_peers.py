"""Quix Streams and Bytewax doing the jobs of ``kafka_jobs.py`` between topics of the same broker.

Quix Streams has no end of input: its processes are told to end when the output no longer grows. Its
pace and that of Bytewax are read from their output, so it does not matter when that is noticed.
Where latency is measured, the processes of both run for as long as they are watched.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kafka_topics import Place
from measuring import run_program
from peers import ORJSON, Peer

__all__ = [
    "BYTEWAX_KAFKA",
    "QUIX",
    "bytewax_processes",
    "quix_processes",
    "run_bytewax_kafka",
    "run_quix",
]

BYTEWAX_KAFKA = Peer(
    name="Bytewax 0.21.1", folder="bytewax-kafka",
    requirements=(
        "bytewax==0.21.1", "confluent-kafka==2.16.1", "fastavro==1.12.2", "requests>=2",
        ORJSON,
    ),
)  # fmt: skip
QUIX = Peer(name="Quix Streams 3.28.1", folder="quix", requirements=("quixstreams==3.28.1",))
PROCESS_COUNT = 2
_PROGRAMS = Path(__file__).parent / "peer_programs"
_FLOW = "bytewax_kafka:flow"
_QUIET_S = 8.0  # Longer than the pause between two of its commits.
_LONGEST_S = 600.0
_LOOK_S = 0.5
_END_S = 60.0


def run_quix(
    place: Place, name: str, *, source: str, target: str, guarantee: str, count: int, folder: Path
) -> None:
    """Run two processes until all is written.

    Args:
        place: The broker.
        name: ``kafka_map`` or ``kafka_count``.
        source: Topic that is read.
        target: Topic that is written, and name of the group.
        guarantee: at-least-once or exactly-once.
        count: Messages of the source.
        folder: For state and what it says.

    Raises:
        RuntimeError: a process ended by itself, or not all was written in ten minutes.
        PeerMissingError: it cannot be installed here.
    """
    jobs = {"source": source, "target": target, "guarantee": guarantee, "folder": folder}
    with quix_processes(place, name, commit_s=5.0, **jobs) as processes:
        _wait_for_output(place, target, count, processes)


@contextmanager
def quix_processes(
    place: Place, name: str, *, source: str, target: str, guarantee: str, folder: Path,
    commit_s: float,
) -> Iterator[list[subprocess.Popen[bytes]]]:  # fmt: skip
    """Give two running processes, ended afterwards; arguments are those of ``run_quix``.

    Args:
        place: The broker.
        name: Job.
        source: Topic.
        target: Topic.
        guarantee: Promise.
        folder: For state and what it says.
        commit_s: How often it commits; 5 is its default.
    """
    python = QUIX.python()
    program = _PROGRAMS / "quix_kafka.py"
    commands = [
        [
            python, program, name, place.bootstrap, source, target, guarantee, commit_s,
            folder / f"process-{number}" / "state",
        ]
        for number in range(PROCESS_COUNT)
    ]  # fmt: skip
    with _running(commands, folder) as processes:
        yield processes


def run_bytewax_kafka(place: Place, name: str, *, source: str, target: str, folder: Path) -> None:
    """Run two processes, with recovery, until the source's end; arguments as in ``run_quix``."""
    python = BYTEWAX_KAFKA.python()
    words = [
        python, "-m", "bytewax.testing", _FLOW, "-p", PROCESS_COUNT, *_recovery(python, folder),
    ]  # fmt: skip
    run_program(list(map(str, words)), **_bytewax_settings(place, name, source, target))


@contextmanager
def bytewax_processes(
    place: Place, name: str, *, source: str, target: str, folder: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Give two running processes, with recovery, that go on at the source's end.

    They are ended afterwards; arguments are those of ``run_quix``.
    """
    python = BYTEWAX_KAFKA.python()
    recovery = _recovery(python, folder)
    addresses = ";".join(f"127.0.0.1:{port}" for port in _free_ports(PROCESS_COUNT))
    commands = [
        [python, "-m", "bytewax.run", _FLOW, "-i", number, "-a", addresses, *recovery]
        for number in range(PROCESS_COUNT)
    ]
    settings = _bytewax_settings(place, name, source, target)
    with _running(commands, folder, **settings, BENCH_TAIL="1") as processes:
        yield processes


@contextmanager
def _running(
    commands: Sequence[Sequence[object]], folder: Path, **environment: str
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start a process for each command, in a folder of its own with its log; end all at the end."""
    with ExitStack() as stack:
        processes = []
        for number, command in enumerate(commands):
            own = folder / f"process-{number}"
            own.mkdir()
            log = stack.enter_context((own / "log").open("wb"))
            process = subprocess.Popen(
                list(map(str, command)), stdout=log, stderr=log, cwd=own,
                env={**os.environ, **environment},
            )  # fmt: skip
            processes.append(process)
            stack.callback(_end, process)
        yield processes


def _recovery(python: Path, folder: Path) -> list[str]:
    """Make Bytewax's recovery files; return the options that use them."""
    place = folder / "recovery"
    place.mkdir()
    run_program([python, "-m", "bytewax.recovery", place, str(PROCESS_COUNT)])
    return ["-r", str(place), "-s", "10", "-b", "0"]


def _bytewax_settings(place: Place, name: str, source: str, target: str) -> dict[str, str]:
    return {
        "PYTHONPATH": str(_PROGRAMS), "BENCH_BROKERS": place.bootstrap, "BENCH_JOB": name,
        "BENCH_SOURCE": source, "BENCH_TARGET": target,
    }  # fmt: skip


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        return [found.getsockname()[1] for found in sockets]


def _wait_for_output(
    place: Place, target: str, count: int, processes: list[subprocess.Popen[bytes]]
) -> None:
    """Wait until there is as much as there must be, and nothing more for a while."""
    consumer = place.consumer()
    began = changed = time.monotonic()
    before = 0
    try:
        while time.monotonic() - changed < _QUIET_S or before < count:
            time.sleep(_LOOK_S)
            written = sum(place.ends(target, consumer).values())
            if written != before:
                before, changed = written, time.monotonic()
            if any(process.poll() is not None for process in processes):
                raise RuntimeError(f"{QUIX.name} ended by itself with {before} of {count} written")
            if time.monotonic() - began > _LONGEST_S:
                raise RuntimeError(f"{QUIX.name} wrote {before} of {count} in {_LONGEST_S:g} s")
    finally:
        consumer.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
