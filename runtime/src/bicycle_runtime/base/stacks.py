"""The stacks of a hanging process, which it writes itself on request.

A thread of it answers, which holds the interpreter's lock meanwhile: stacks that change while they
are read crash the process. While native code holds the lock, that thread waits, but no stack
changes either: then a signal is answered by a handler that is not Python's. A process that takes
part has a folder, which is named by its process id and start time: no other process ever gets the
signal, which would end it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bicycle_runtime.base.files import replace_file
from bicycle_runtime.base.processes import is_alive, is_frozen, send_signal, start_ticks
from bicycle_runtime.base.thread_safe_types import prepare_type

STACKS_VARIABLE = "BICYCLE_STACKS"
_KEPT, _KEEP_S = "kept", 2.0
_SIGNAL = signal.SIGUSR1
_POLL_S, _THREAD_ANSWERS_S = 0.02, 0.5
_STACKS, _REQUESTS = "stacks", "requests"  # A file, and a named pipe that gets a byte.
_REQUEST, _END = b"?", b"."
_THREAD = "hread 0x"  # "Thread 0x…" or "Current thread 0x…" begins the stack of a thread.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStacks:
    """The stacks of all threads of a process from ``faulthandler``, the main one last.

    ``was_frozen``: the process was stopped by a signal, and goes on now. ``host`` is empty for this
    machine.
    """

    pid: int
    threads: tuple[str, ...]
    was_frozen: bool = False
    host: str = ""


def offer_stacks(folder: Path) -> Callable[[], None]:
    """Write stacks to a file in a folder on each request.

    Returns:
        A function that takes the offer back; a process that ends need not call it.
    """
    own = os.getpid()
    name = f"{own}-{start_ticks(own)}"
    unready, ready = folder / f".{name}", folder / name
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):  # A full disk is reported elsewhere.
            opened.callback(shutil.rmtree, unready, ignore_errors=True)
            unready.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            output = os.open(unready / _STACKS, flags)
            opened.callback(os.close, output)
            os.mkfifo(unready / _REQUESTS)
            requests = os.open(unready / _REQUESTS, os.O_RDWR | os.O_CLOEXEC)
            opened.callback(os.close, requests)
            thread = threading.Thread(
                target=_answer, args=(requests, output), name="stacks", daemon=True
            )
            thread.start()
            opened.callback(thread.join)
            opened.callback(os.write, requests, _END)
            faulthandler.register(_SIGNAL, file=output, all_threads=True)
            opened.callback(faulthandler.unregister, _SIGNAL)
            unready.rename(ready)
            opened.callback(shutil.rmtree, ready, ignore_errors=True)
        return opened.pop_all().close


def _answer(requests: int, output: int) -> None:
    while os.read(requests, 1) == _REQUEST:
        faulthandler.dump_traceback(output, all_threads=True)


def keep_stacks(folder: Path, pid: int) -> None:
    """Keep the stacks of a process that is about to be killed, if it offers them."""
    for found in read_stacks(folder, timeout_s=_KEEP_S, pid=pid):
        kept = folder / _KEPT
        kept.mkdir(exist_ok=True)
        replace_file(kept / f"{pid}", msgspec.json.encode(found))


def take_kept_stacks(folder: Path) -> list[ProcessStacks]:
    """Return and remove the stacks that ``keep_stacks`` has kept."""
    found = []
    for path in sorted((folder / _KEPT).glob("[0-9]*")):
        found.append(msgspec.json.decode(path.read_bytes(), type=prepare_type(ProcessStacks)))
        path.unlink()
    return found


def read_stacks(
    folder: Path, *, timeout_s: float = 1.0, pid: int | None = None
) -> list[ProcessStacks]:  # fmt: skip
    """Request the stacks of the processes of a folder. A process that a signal stopped is woken.

    Args:
        folder: As given to ``offer_stacks``.
        timeout_s: The longest wait. A process that has not answered by then is left out.
        pid: Only of this process.
    """
    asked = {}
    for path in sorted(folder.glob(f"{'[0-9]*' if pid is None else pid}-[0-9]*")):
        own, started = map(int, path.name.split("-"))
        size = _size(path)
        if is_alive(own, started) and size is not None:
            asked[own] = (path, size, is_frozen(own))
            _request(path)
            send_signal(own, signal.SIGCONT)
        else:
            shutil.rmtree(path, ignore_errors=True)
    found: list[ProcessStacks] = []
    begun, pause = time.monotonic(), threading.Event()
    signal_s: float = min(_THREAD_ANSWERS_S, timeout_s / 2)
    sizes: dict[int, int] = {}
    while asked:
        late = time.monotonic() - begun >= signal_s
        for own, (path, begin, was_frozen) in list(asked.items()):
            size = _size(path)
            if size is None:  # The process has withdrawn its offer: it ends.
                del asked[own]
                continue
            if size > begin and sizes.get(own) == size:  # It writes no more.
                text = (path / _STACKS).read_bytes()[begin:].decode(errors="replace")
                found.append(ProcessStacks(pid=own, threads=_threads(text), was_frozen=was_frozen))
                del asked[own]
            elif late and size == begin:
                send_signal(own, _SIGNAL)
            sizes[own] = size
        if late:
            signal_s = math.inf
        if time.monotonic() - begun >= timeout_s:
            break
        pause.wait(_POLL_S)
    return found


def _request(path: Path) -> None:
    with contextlib.suppress(OSError):  # It ends, or has requests that it has not read.
        requests = os.open(path / _REQUESTS, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(requests, _REQUEST)
        finally:
            os.close(requests)


def _size(path: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return (path / _STACKS).stat().st_size
    return None


def _threads(text: str) -> tuple[str, ...]:
    threads: list[str] = []
    for line in text.splitlines(keepends=True):
        if _THREAD in line and not line.startswith(" "):
            threads.append("")
        elif threads and line.strip():
            threads[-1] += line
    return tuple(threads)
