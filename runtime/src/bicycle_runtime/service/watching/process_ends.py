"""Ends of processes, reported by the kernel: a handle each, and one wait for all.

A process is identified by id and start time, so that another process with the same id is not
confused with it. If the kernel has no process handles, ``/proc`` is read each time.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading

from bicycle_runtime.base.processes import is_alive

_Process = tuple[int, int]


class ProcessEnds:
    """A context manager. All but ``wake`` is called from one thread."""

    def __init__(self) -> None:
        self._handles: dict[_Process, int] = {}
        self._waker: tuple[int, int] | None = None
        self._poll = select.poll()
        self._lock = threading.Lock()

    def __enter__(self) -> ProcessEnds:
        self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._waker[0], select.POLLIN)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            waker, self._waker = self._waker, None
        for handle in (*self._handles.values(), *(waker or ())):
            os.close(handle)
        self._handles.clear()

    def is_alive(self, pid: int, started: int) -> bool:
        """Return whether a process lives, and listen for its end from now on."""
        process = (pid, started)
        if pid <= 0:
            return False
        if process not in self._handles:
            return self._listen(process)
        look = select.poll()  # Not `select`, which knows no handle above 1,023.
        look.register(self._handles[process], select.POLLIN)
        return not look.poll(0)

    def forget_all_but(self, processes: set[_Process]) -> None:
        """Listen no longer for the end of others."""
        for process in self._handles.keys() - processes:
            handle = self._handles.pop(process)
            with contextlib.suppress(KeyError):  # Its end was reported before.
                self._poll.unregister(handle)
            os.close(handle)

    def wait(self, timeout_s: float) -> None:
        """Wait for the end of a process that lived, for ``wake``, or so long."""
        for handle, _ in self._poll.poll(max(0, round(timeout_s * 1_000))):
            if self._waker is not None and handle == self._waker[0]:
                os.read(handle, 1 << 12)
            else:  # Its end is known from now on, and does not end another wait.
                self._poll.unregister(handle)

    def wake(self) -> None:
        """End a wait, from any thread."""
        # A pipe that is full wakes as well.
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._waker is not None:
                os.write(self._waker[1], b".")

    def _listen(self, process: _Process) -> bool:
        pid, started = process
        if not is_alive(pid, started):
            return False
        try:
            handle = os.pidfd_open(pid)
        except (AttributeError, OSError):  # Not to be had here, too many files, or gone just now.
            return is_alive(pid, started)
        if not is_alive(pid, started):  # Another process has its id since.
            os.close(handle)
            return False
        self._handles[process] = handle
        self._poll.register(handle, select.POLLIN)
        return True
