"""The program of the child process: load a plugin, send its graph, exit.

Its arguments are for ``base.pipes`` and a directory to work in. Everything is imported before user
code runs, and nothing here relies on what that code may change (``sys.stdout``, ``sys.path``, the
working directory). It answers one question and leaves by ``os._exit``, so that threads and exit
handlers of user code cannot keep it. ``loading`` handles the plugin; here is only the process
around it.

The dump takes the phase the work is in and, after a native crash or a SIGUSR1 from the parent, the
calls of the main thread: the last facts of a process that can no longer answer.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from bicycle_runtime.base.pipes import Questions, encode_frame
from bicycle_runtime.extraction.discovery import PluginRef
from bicycle_runtime.extraction.errors import RESULT_TOO_LARGE
from bicycle_runtime.extraction.limits import PHASE_PREFIX, PIPE_LOST_EXIT_CODE
from bicycle_runtime.extraction.loading import Answer, Loading
from bicycle_runtime.extraction.undeclared import guard_imports

_ADDRESS_SPACE_FACTOR = 4
_ORPHAN_GRACE_S = 5


def main(arguments: list[str]) -> NoReturn:
    """Do the work of one child process; does not return.

    Args:
        arguments: The descriptors of ``base.pipes``, directory to work in.
    """
    own_id, write, leave = os.getpid(), os.write, os._exit
    questions = Questions(arguments[0])
    asked = questions.next()
    if asked is None:  # The parent has ended.
        leave(0)
    request, dump = asked[0], questions.dump
    _arm(dump)
    _enter(request, Path(arguments[1]))
    memory_bytes = int(request["memory_bytes"])
    lift_limit = _limit_memory(memory_bytes)
    loading = Loading(
        PluginRef(**request["target"]),
        announce=lambda phase: write(dump, f"{PHASE_PREFIX}{phase}\n".encode()),
        memory_bytes=memory_bytes,
        lift_limit=lift_limit,
    )
    if request["is_check"]:
        answer = loading.check(request["params"])
    else:
        answer = loading.extract(request["build"])
    lift_limit()
    frame = _frame(answer, loading.target, int(request["result_bytes"]))
    if os.getpid() != own_id:  # User code that forked comes here twice.
        leave(0)
    try:
        questions.send(frame)
    except OSError:  # User code closed the pipe, so only an exit code remains.
        leave(PIPE_LOST_EXIT_CODE)
    leave(0)


def _arm(dump: int) -> None:
    """Write the calls of the main thread to the dump after a crash and on a signal."""
    faulthandler.enable(file=dump, all_threads=False)
    # With the default action behind it, the signal writes the dump and ends the process.
    faulthandler.register(signal.SIGUSR1, file=dump, all_threads=False, chain=True)


def _enter(request: dict[str, Any], work_folder: Path) -> None:
    """Take the caller's import path, which may be relative, then leave its directory."""
    sys.path[:] = [str(Path(entry).absolute()) for entry in request["path"] or sys.path]
    location = str(Path(request["target"]["location"]).absolute())
    if location not in sys.path:
        sys.path.insert(0, location)
    guard_imports(Path(location))
    os.chdir(work_folder)
    # If the parent is killed, no other process would end an endless loop.
    signal.alarm(int(request["wall_time_ms"] / 1_000) + _ORPHAN_GRACE_S)


def _limit_memory(size_bytes: int) -> Callable[[], None]:
    """Set the soft limits of this process; return a function that restores them.

    Private memory is what counts. Address space is limited more widely, because libraries reserve
    much more of it than they use, and not at all would let shared memory pass.
    """
    wanted = {
        resource.RLIMIT_DATA: size_bytes,
        resource.RLIMIT_AS: size_bytes * _ADDRESS_SPACE_FACTOR,
    }
    former = {kind: resource.getrlimit(kind) for kind in wanted}
    for kind, size in wanted.items():
        hard = former[kind][1]
        soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
        with contextlib.suppress(ValueError):  # Not available on this system.
            resource.setrlimit(kind, (soft, hard))

    def lift() -> None:
        for kind, limits in former.items():
            resource.setrlimit(kind, (limits[1], limits[1]))

    return lift


def _frame(answer: Answer, target: PluginRef, size_max: int) -> bytes:
    size = sum(len(blob) for blob in answer.blobs.values())
    frame = encode_frame(answer.header, list(answer.blobs.values()))
    if len(frame) <= size_max:
        return frame
    largest = max(answer.blobs, key=lambda name: len(answer.blobs[name]), default="the graph")
    error = RESULT_TOO_LARGE(
        plugin=target.name,
        dist=target.dist,
        size_bytes=max(size, len(frame)),
        limit_bytes=size_max,
        payload=largest,
    )
    return encode_frame({"error": error.to_json()})


if __name__ == "__main__":
    main(sys.argv[1:])
