"""The end of a Python worker, with its last position, which Spark does not report."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from bicycle_runtime.base.code_paths import show_paths
from bicycle_runtime.base.processes import how_it_ended
from bicycle_runtime.base.stacks import ProcessStacks, take_kept_stacks
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.engine.errors import WORKER_ENDED, EpochFailedError
from bicycle_runtime.engine.spark.positions_folder import positions_folder, stacks_folder
from bicycle_runtime.engine.spark.spark_cluster import assign_to_hosts
from bicycle_runtime.operators.heartbeats import LastPosition, ended_workers
from bicycle_runtime.operators.spec import StagePlan
from bicycle_runtime.operators.user_calls.stack_frames import blamed_frame, is_ours

_ANSWER_S = 10.0
_STACKS_S = 10.0  # Each question takes 3 s on a loaded machine.
_LOOKS_FOR_NOTES, _LOOK_S = 20, 0.05
# As in the dump of ``faulthandler``, which lists all threads.
_CRASHED_THREAD, _OTHER_THREAD = "Current thread 0x", "\nThread 0x"
_FRAME = re.compile(r'  File "(?P<filename>[^"]+)", line (?P<line>\d+) in ')
_CRASHES = {
    -number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL)
} | {-signal.SIGFPE}
_NO_MEMORY = (
    "possibly out of memory: check `dmesg` and the memory limit of the machine or container. "
    "Smaller epochs (--max-records-per-epoch), state on disk (--state-backend rocksdb) and fewer "
    "concurrent tasks (--parallelism) need less memory"
)


@dataclass(frozen=True, slots=True)
class _Line:
    """A frame of a worker that crashed."""

    filename: str
    number: int


def ends_in(folder: Path) -> list[LastPosition]:
    """Return the last positions of the ended workers of this machine."""
    pause, found = threading.Event(), ended_workers(folder)
    for _ in range(_LOOKS_FOR_NOTES):
        if all(end.code is not None for end in found):
            break
        pause.wait(_LOOK_S)  # The daemon has still to note the end of one.
        found = ended_workers(folder)
    return found


def ends_on_hosts(context: Any, hosts: Mapping[str, int]) -> list[LastPosition]:
    """Return the last positions of ended workers of a cluster; [] without an answer."""
    answers = _answers_of(context, hosts, _own_ends, timeout_s=_ANSWER_S)
    return [msgspec.json.decode(answer, type=prepare_type(LastPosition)) for answer in answers]


def stacks_on_hosts(context: Any, hosts: Mapping[str, int]) -> list[ProcessStacks]:
    """Cancel all tasks; return the stacks of the workers that had to be killed.

    Spark looks every two seconds for canceled tasks and has their workers killed; the daemon of
    their host keeps the stacks before that.
    """
    context.cancelAllJobs()
    deadline, pause = time.monotonic() + _STACKS_S, threading.Event()
    while (left_s := deadline - time.monotonic()) > 0:
        if answers := _answers_of(context, hosts, _own_stacks, timeout_s=left_s):
            return [
                msgspec.json.decode(answer, type=prepare_type(ProcessStacks)) for answer in answers
            ]
        pause.wait(_LOOK_S)
    return []


def _answers_of(
    context: Any, hosts: Mapping[str, int], ask: Callable[[Iterable[object]], Iterator[bytes]],
    *, timeout_s: float,
) -> list[bytes]:  # fmt: skip
    """Run a function on each host, with the name of the host; return all answers."""
    from py4j.protocol import Py4JError  # Spark is imported when it is used
    from pyspark import RDD
    from pyspark.serializers import UTF8Deserializer

    late = threading.Timer(timeout_s, context.cancelAllJobs)
    late.start()
    try:
        with contextlib.suppress(Py4JError):
            names = assign_to_hosts(context, [(name, name) for name in sorted(hosts)])
            texts = UTF8Deserializer()  # type: ignore[no-untyped-call]  # Spark's own
            tasks: Any = RDD(names, context, texts)
            found: list[bytes] = tasks.mapPartitions(ask).collect()
            return found
    finally:
        late.cancel()
    return []


def _own_ends(names: Iterable[object]) -> Iterator[bytes]:
    [host] = names
    for end in ended_workers(Path(positions_folder())):
        end.host = str(host)
        yield msgspec.json.encode(end)


def _own_stacks(names: Iterable[object]) -> Iterator[bytes]:
    [host] = names
    for stacks in take_kept_stacks(Path(stacks_folder())):
        yield msgspec.json.encode(replace(stacks, host=str(host)))


def worker_ended(
    position: LastPosition, plan: StagePlan, *, job: str, reason: str
) -> EpochFailedError:
    """Return the error of a worker that ended.

    Args:
        position: Its last position.
        plan: Knows the operators.
        job: Job id.
        reason: Spark's text; with the lines of a worker that crashed.
    """
    told = {spec.uid: spec.vertex.title for spec in plan.operators()}
    error = WORKER_ENDED(
        epoch=position.epoch,
        job=job,
        subtask=position.subtask,
        operator=position.operator,
        how="no word" if position.code is None else how_it_ended(position.code),
        told=told.get(position.operator, "none yet"),
        position=_position(position),
        source=position.source,
        shard=position.shard,
        offset=position.offset,
        end_offset=position.end_offset,
        hint=_hint(position.code),
    )
    location = _location(reason)
    if location is not None:
        error.facts["location"] = show_paths(location)
    return error


def _position(position: LastPosition) -> str:
    """Return a position as text, without the source's description."""
    if position.source is None:
        return "no batch of input: it loaded or wrote state, or fired timers or windows"
    offsets = f"{position.offset} to {position.end_offset}"
    return f"source {position.source!r}, {position.shard}, offsets {offsets}"


def _hint(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return _NO_MEMORY
    if code in _CRASHES:
        return (
            "a library crashed in native code: identify it in the calls of the function, and "
            "update it"
        )
    if code is not None and code < 0:
        return "find the sender of this signal to the workers"
    if code is not None:
        return (
            "raise an exception instead of ending the process, in the function or the code it calls"
        )
    return "check the logs of the workers"


def _location(reason: str) -> str | None:
    """Return the user's line in Python's crash report, deepest call first."""
    own = reason.partition(_CRASHED_THREAD)[2].partition(_OTHER_THREAD)[0]
    lines = [_Line(match["filename"], int(match["line"])) for match in _FRAME.finditer(own)]
    users = []
    for line in lines:
        if is_ours(line):
            break
        users.append(line)
    if not users:
        return None
    line = blamed_frame(users[::-1])
    return f"{line.filename}:{line.number}"
