"""The process that starts Python workers: Spark's own, which also notes how each of them ended.

Only the parent of a process learns by which signal it ended, and Spark's daemon does not ask. All
operators are imported here once, and not by each worker. Run by Java as
``python -m bicycle_runtime.engine.spark.daemon``, on each host.

Java puts PySpark as an archive of sources in front of the path, which Python compiles again in each
daemon: that is half of a second, and half of all that it does until the first task. The package
that the archive lies in is the same and compiled.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from bicycle_runtime.engine.spark.positions_folder import positions_folder

__all__ = ["main", "note_ends", "without_archives"]

_WORKERS = "bicycle_runtime.engine.spark.worker"
_ARCHIVES = ("python/lib/pyspark.zip", "python/lib/py4j-*-src.zip")


def without_archives(paths: Sequence[str]) -> list[str]:
    """Return a search path without Spark's archives of sources, where it leads to the same anyway.

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


def note_ends(_number: int = 0, _frame: object = None) -> None:
    """Note the exit code of each worker that ended beside what it was at; 0 leaves nothing."""
    with contextlib.suppress(ChildProcessError):  # None is left.
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            place = Path(positions_folder(), str(pid))
            with contextlib.suppress(FileNotFoundError):  # It had no task yet.
                if code:
                    place.rename(f"{place}.{code}")
                else:
                    place.unlink()


def main() -> None:
    """Be Spark's daemon, with an eye on the workers."""
    sys.path[:] = without_archives(sys.path)
    from pyspark import daemon  # whose place is only known now

    own = os.getpid()

    def watch_workers() -> None:
        if os.getpid() == own:  # A worker that forks has children of its own.
            signal.signal(signal.SIGCHLD, note_ends)  # Spark has just chosen to ignore it.

    os.register_at_fork(before=watch_workers)
    with contextlib.suppress(ImportError):  # A worker tells what is missing.
        importlib.import_module(_WORKERS)  # It starts no thread, which a fork would lose.
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
