"""The process that starts Python workers: Spark's daemon, which notes their end.

Only the parent of a process learns by which signal it ended, and Spark's daemon does not ask. All
operators are imported here once, and not by each worker. Run by Java as
``python -m bicycle_runtime.engine.spark.daemon``, on each host. On embedded Spark it starts beside
Java, with ``--wait`` and a socket, and waits for the streams and the environment that Java gives
to ``early_daemon``.

Java puts PySpark as an archive of sources in front of the path, which Python compiles again in each
daemon: that is half of a second, and half of all that it does until the first task. The package
that the archive lies in is the same and compiled.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import marshal
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from bicycle_runtime.base.environment import replace_environment
from bicycle_runtime.base.stacks import keep_stacks
from bicycle_runtime.engine.spark.early_daemon import WAIT
from bicycle_runtime.engine.spark.positions_folder import positions_folder, stacks_folder

_WORKERS = "bicycle_runtime.engine.spark.worker"
_FILES_MAX = 256
_LOOK_S = 0.5  # Java may end without a daemon.
_ARCHIVES = ("python/lib/pyspark.zip", "python/lib/py4j-*-src.zip")
_PIPE_READ_BYTES = 4_096
_PEAK_UNIT_BYTES = 1 if sys.platform == "darwin" else 1_024


def without_archives(paths: Sequence[str]) -> list[str]:
    """Return a search path without Spark's source archives, if they are redundant.

    An archive stays when the PySpark that would be found without it is not the one it belongs to.

    Args:
        paths: The search path, as in ``sys.path``.
    """
    dropped = {path for path in paths if any(Path(path).match(each) for each in _ARCHIVES)}
    rest = [path for path in paths if path not in dropped]
    pyspark, py4j = (PathFinder.find_spec(name, rest) for name in ("pyspark", "py4j"))
    if pyspark is None or pyspark.origin is None or py4j is None:
        return list(paths)
    home = Path(pyspark.origin).resolve().parent
    is_same = all(Path(path).resolve().parents[2] == home for path in dropped)
    return rest if is_same else list(paths)


class Ends:
    """The ends of workers, noted in the loop of Spark's daemon.

    A worker that ends interrupts the daemon wherever it is, also while an earlier end is noted. So
    the handler of SIGCHLD does nothing: the interpreter writes a byte to a pipe, and the loop,
    which also waits for that pipe, does the rest.

    Args:
        folder: Where workers keep their last positions. It is known before the first worker starts,
            because looking for a folder of temporary files takes a lock.
        read_int: Reads what Java sends.
        stacks: Where workers offer their stacks.
    """

    def __init__(self, folder: Path, *, read_int: Callable[[Any], int], stacks: Path) -> None:
        self._folder = folder
        self._stacks = stacks
        self._read_int = read_int
        self._dismissed: set[int] = set()
        self.reader, self._writer = os.pipe()
        self._pipe = [self.reader, self._writer]
        for descriptor in self._pipe:
            os.set_blocking(descriptor, False)

    def watch(self) -> None:
        """Begin to take SIGCHLD; main thread only."""
        signal.signal(signal.SIGCHLD, _do_nothing)  # An ignored signal leaves no exit codes.
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._leave)

    def note(self) -> None:
        """Note each ended worker's exit code beside its last position, unless it is 0."""
        with contextlib.suppress(BlockingIOError):  # The pipe is empty.
            while os.read(self.reader, _PIPE_READ_BYTES):
                pass
        with contextlib.suppress(ChildProcessError):  # No child is left.
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                code = os.waitstatus_to_exitcode(status)
                if pid in self._dismissed:
                    self._dismissed.remove(pid)
                    code = 0
                self._note_end(pid, code, usage.ru_maxrss * _PEAK_UNIT_BYTES)

    def read_dismissal(self, stream: Any) -> int:
        """Read the id of a worker that Java has the daemon kill: its end is no accident.

        Its stacks are kept: it may hang, and only a process of its host can ask for them.
        """
        pid: int = self._read_int(stream)
        self.note()  # One that has ended before ended by itself.
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            self._dismissed.add(pid)
            keep_stacks(self._stacks, pid)
        return pid

    def _note_end(self, pid: int, code: int, peak_bytes: int) -> None:
        path = self._folder / str(pid)
        # The disk is full or gone: only this note is lost then, while an error here would end the
        # daemon and with it all workers.
        with contextlib.suppress(OSError):
            if code:
                path.touch()  # It may have had no task yet.
                path.rename(f"{path}.{code}.{peak_bytes}")
            else:
                path.unlink()

    def _leave(self) -> None:
        """Detach a worker from the pipe of the daemon."""
        if self._pipe:
            signal.set_wakeup_fd(-1)
            for descriptor in self._pipe:
                os.close(descriptor)
            self._pipe.clear()


class EndsPoll:
    """A ``select.poll`` that also waits for ends of workers, and notes them itself.

    Args:
        ends: The ends; they are watched from now on.
    """

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._poll = select.poll()
        self._poll.register(ends.reader, select.POLLIN)
        ends.watch()

    def register(self, file: Any, mask: int) -> None:
        """Wait for a file, too."""
        self._poll.register(file, mask)

    def unregister(self, file: Any) -> None:
        """Wait for a file no longer."""
        self._poll.unregister(file)

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        """Wait for events; return them without the ends of workers, which are noted."""
        events = self._poll.poll(timeout_ms)
        self._ends.note()
        return [event for event in events if event[0] != self._ends.reader]


def wait_for_java(path: str, java: int) -> bool:
    """Import a worker's modules, and wait until Java requests a daemon.

    Args:
        path: The socket to make, on which ``early_daemon`` connects.
        java: The process id of Java, which may have ended already.

    Returns:
        Whether Java requested a daemon; False after the end of Java, the parent of this process.
    """
    # A shell that starts a process in the background has it ignore these.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    os.closerange(3, _FILES_MAX)  # The lock of the folder, which Java holds.
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind(path)
        except OSError:  # The folder was removed: Java has ended.
            return False
        server.listen()
        server.settimeout(_LOOK_S)
        sys.argv[1:] = ["pyspark.worker"]  # Spark's daemon imports it.
        importlib.import_module("pyspark.daemon")
        importlib.import_module(_WORKERS)
        link = None
        while link is None and os.getppid() == java:
            with contextlib.suppress(TimeoutError):
                link, _ = server.accept()
    Path(path).unlink(missing_ok=True)
    if link is None:
        return False
    link.settimeout(None)
    _, streams, _, _ = socket.recv_fds(link, 1, 3)
    with link.makefile("rb") as file:
        python, arguments, search_path, environment = marshal.loads(file.read())
    if python != sys.executable:
        return False
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    sys.argv[:], sys.path[:] = arguments, search_path
    replace_environment(environment)
    link.sendall(b"\0")
    os.register_at_fork(after_in_child=link.close)  # It is open until this process ends.
    return True


def main() -> None:
    """Run Spark's daemon, and note the ends of its workers."""
    if sys.argv[1:2] == [WAIT] and not wait_for_java(sys.argv[2], int(sys.argv[3])):
        return
    sys.path[:] = without_archives(sys.path)
    from pyspark import daemon  # whose place is only known now

    folder = Path(positions_folder())
    with contextlib.suppress(OSError):  # A worker reports errors of the disk.
        folder.mkdir(parents=True, exist_ok=True)
    stacks = Path(stacks_folder())
    ends = Ends(folder, read_int=vars(daemon)["read_int"], stacks=stacks)
    # The loop takes its poll from there, after it has chosen to ignore SIGCHLD.
    polling = SimpleNamespace(
        poll=lambda: EndsPoll(ends), POLLIN=select.POLLIN, POLLHUP=select.POLLHUP
    )
    vars(daemon).update(select=polling, read_int=ends.read_dismissal)
    with contextlib.suppress(ImportError):  # A worker reports the missing module.
        importlib.import_module(_WORKERS)  # It starts no thread, which a fork would lose.
    gc.freeze()
    daemon.manager()


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the interpreter has written to the pipe."""


if __name__ == "__main__":
    main()
