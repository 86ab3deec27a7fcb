"""Quix Streams and Bytewax doing the jobs of ``kafka_jobs.py`` between topics of the same broker.

Quix Streams has no end of input: its processes are told to end when the output no longer grows. Its
pace and that of Bytewax are read from their output, so it does not matter when that is noticed.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kafka_topics import Place
from measuring import run_program
from peers import Peer

__all__ = ["BYTEWAX_KAFKA", "QUIX", "quix_processes", "run_bytewax_kafka", "run_quix"]

BYTEWAX_KAFKA = Peer(
    name="Bytewax 0.21.1", folder="bytewax-kafka",
    requirements=("bytewax==0.21.1", "confluent-kafka==2.16.1", "fastavro==1.12.2", "requests>=2"),
)  # fmt: skip
QUIX = Peer(name="Quix Streams 3.28.1", folder="quix", requirements=("quixstreams==3.28.1",))
PROCESS_COUNT = 2
_PROGRAMS = Path(__file__).parent / "peer_programs"
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
        PeerMissingError: it can not be installed here.
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
    with ExitStack() as stack:
        processes = []
        for number in range(PROCESS_COUNT):
            own = folder / f"process-{number}"
            own.mkdir()
            log = stack.enter_context((own / "log").open("wb"))
            words = [
                python, _PROGRAMS / "quix_kafka.py", name, place.bootstrap, source, target,
                guarantee, commit_s, own / "state",
            ]  # fmt: skip
            processes.append(
                subprocess.Popen(list(map(str, words)), stdout=log, stderr=log, cwd=own)
            )
            stack.callback(_end, processes[-1])
        yield processes


def run_bytewax_kafka(place: Place, name: str, *, source: str, target: str, folder: Path) -> None:
    """Run two processes, with recovery, until the source's end; arguments as in ``run_quix``."""
    python = BYTEWAX_KAFKA.python()
    recovery = folder / "recovery"
    recovery.mkdir()
    run_program([python, "-m", "bytewax.recovery", recovery, str(PROCESS_COUNT)])
    words = [
        python, "-m", "bytewax.testing", "bytewax_kafka:flow", "-p", str(PROCESS_COUNT),
        "-r", recovery, "-s", "10", "-b", "0",
    ]  # fmt: skip
    run_program(
        words, PYTHONPATH=str(_PROGRAMS), BENCH_BROKERS=place.bootstrap, BENCH_JOB=name,
        BENCH_SOURCE=source, BENCH_TARGET=target,
    )  # fmt: skip


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
