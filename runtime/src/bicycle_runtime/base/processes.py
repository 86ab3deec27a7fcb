"""Processes of this machine: identity, children, waiting for the end, ending.

A process id alone may have been given to another process; together with the start time it names one
process. Both come from ``/proc``; without it, the id alone must do.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.base.pipes import is_readable

OPEN_FILES_MIN = 1_024  # The needs of Java with Spark, and of a driver with some sockets.
ABORT_SIGNAL = signal.SIGQUIT  # To a driver: end without the epoch, but name stuck threads.
SIGNAL_BASE = 128  # The exit code of shells for a signal.
_NICENESS = 5
_TAIL_BYTES = 1 << 16
_POLL_S = 0.05
_KILLED_S = 5.0  # The kernel needs a moment to end a process that was killed.
_PASS_COUNT_MAX = 20
_FIELD_STATE, _FIELD_PARENT, _FIELD_START = 0, 1, 19  # behind the name, which may hold blanks


def start_detached(
    module: str, *words: str, log_path: Path, python: str = sys.executable
) -> subprocess.Popen[bytes]:
    """Start a program of ours in a separate session, which outlives this process.

    Args:
        module: The program.
        words: Its arguments.
        log_path: Its output is added to this file, which is no terminal.
        python: Its interpreter.
    """
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [python, "-m", module, *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env=environment_for_python({"PYTHONIOENCODING": "utf-8:backslashreplace"}),
        )  # fmt: skip
    keep_niceness(process.pid)
    return process


def last_log_lines(path: Path) -> list[str]:
    """Return the last lines of a log, at most 64 KiB."""
    with path.open("rb") as log:
        log.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        return log.read().decode("utf-8", "replace").splitlines()


def keep_niceness(pid: int) -> None:
    """Apply the niceness of the calling thread to the session of a new process.

    Linux shares time between sessions before it looks at processes, and a new session counts as
    much as any other, however nice its processes are.
    """
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    if niceness:
        with contextlib.suppress(OSError):  # There is no such thing here, or the process has ended.
            Path(f"/proc/{pid}/autogroup").write_text(str(niceness), encoding="ascii")


def stand_back() -> None:
    """Lower the priority of the calling thread, and of its later children."""
    if sys.platform == "linux":  # Others know no niceness of a thread.
        niceness = max(os.getpriority(os.PRIO_PROCESS, 0), _NICENESS)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


def open_files_max() -> int | None:
    """Return the maximum of open files of this process and its children, or None.

    Programs may raise the soft limit, as Java does, so that the hard one counts.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def start_ticks(pid: int) -> int:
    """Return when a process started, in ticks of the kernel, or 0 if unknown."""
    fields = _stat(pid)
    return int(fields[_FIELD_START]) if fields else 0


def is_alive(pid: int, started: int) -> bool:
    """Return whether the process with this id and start time still runs."""
    if pid <= 0:
        return False
    if not Path("/proc/self/stat").exists():
        return _answers(pid)
    fields = _stat(pid)
    if not fields or fields[_FIELD_STATE] in "ZX":
        return False
    return started in (0, int(fields[_FIELD_START]))


def is_frozen(pid: int) -> bool:
    """Return whether a signal or a debugger stopped a process, False if unknown."""
    fields = _stat(pid)
    return bool(fields) and fields[_FIELD_STATE] in "Tt"


def how_it_ended(code: int) -> str:
    """Return how a process ended, as text, from its exit code, negative for a signal.

    Example:
        >>> how_it_ended(-9), how_it_ended(3)
        ('signal 9 (SIGKILL)', 'exit code 3')
    """
    if code >= 0:
        return f"exit code {code}"
    name = signal_name(-code)
    return f"signal {-code} ({name})" if name else f"signal {-code}"


def signal_name(number: int) -> str | None:
    """Return the name of a signal, or None for a real-time signal.

    Example:
        >>> signal_name(9), signal_name(40)
        ('SIGKILL', None)
    """
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return None


def descendants(pid: int) -> list[int]:
    """Return all processes that a process started, directly or not, parents first."""
    children: dict[int, list[int]] = {}
    for entry in process_ids():
        fields = _stat(entry)
        if fields:
            children.setdefault(int(fields[_FIELD_PARENT]), []).append(entry)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        following = children.get(waiting.pop(0), [])
        found += following
        waiting += following
    return found


def hang_up(pid: int, *, timeout_s: float) -> None:
    """Stop a process and end its descendants, in order where they can.

    A descendant that handles SIGHUP gets it and may cancel and close. So does a worker with a child
    of its own, which it can still use meanwhile. All others are killed after that, also a child
    that outlives its worker. The process itself stays stopped, so that it starts no replacement; it
    is to be killed next.

    Args:
        pid: The process.
        timeout_s: The longest wait for all of them together.
    """
    send_signal(pid, signal.SIGSTOP)
    family = {member: start_ticks(member) for member in descendants(pid)}
    told = [member for member in family if _handles(member, signal.SIGHUP)]
    for member in told:
        send_signal(member, signal.SIGHUP)
    deadline = time.monotonic() + timeout_s
    for member in told:
        wait_for_end(member, family[member], timeout_s=max(deadline - time.monotonic(), 0))
    left = {member: started for member, started in family.items() if is_alive(member, started)}
    for member in left:
        kill_all(member)
    for member, started in left.items():
        wait_for_end(member, started, timeout_s=_KILLED_S)


def _handles(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    masks = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    return bool(int(masks.get("SigCgt", "0"), 16) >> (number - 1) & 1)


def kill_all(pid: int) -> list[int]:
    """Kill a process and all its descendants by SIGKILL; return the killed ids.

    The family is stopped before it is killed, so that nothing new can be started meanwhile and no
    child is lost from sight when its parent is gone.
    """
    known: list[int] = []
    for _ in range(_PASS_COUNT_MAX):
        fresh = [member for member in [pid, *descendants(pid)] if member not in known]
        if not fresh:
            break
        known += fresh
        for member in fresh:
            send_signal(member, signal.SIGSTOP)
    for member in known:
        send_signal(member, signal.SIGKILL)
    return known


def wait_for_end(pid: int, started: int, *, timeout_s: float) -> bool:
    """Wait for the end of a process, perhaps no child; return whether it came."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except (AttributeError, OSError):  # not available on this system
        return _poll_for_end(pid, started, timeout_s=timeout_s)
    try:
        if started not in (0, start_ticks(pid)):
            return True
        # Not "is it a zombie?": its first thread is one while the others still hold its files.
        return is_readable(handle, timeout_s)
    finally:
        os.close(handle)


def _poll_for_end(pid: int, started: int, *, timeout_s: float) -> bool:
    pause = threading.Event()
    waited_s = 0.0
    while is_alive(pid, started):
        if waited_s >= timeout_s:
            return False
        pause.wait(_POLL_S)
        waited_s += _POLL_S
    return True


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process; one that is gone already is as good."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def process_ids() -> list[int]:
    """Return the ids of all processes that the system shows."""
    try:
        return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    except FileNotFoundError:
        return []


def _stat(pid: int) -> list[str]:
    """Return the fields of ``/proc/<pid>/stat`` after the name, or an empty list."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
