"""The process that starts Python workers: Spark's own, which also notes how each of them ended.

Only the parent of a process learns by which signal it ended, and Spark's daemon does not ask. All
operators are imported here once, and not by each worker. Run by Java as
``python -m bicycle_runtime.engine.spark.daemon``, on each host.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
from pathlib import Path

from pyspark import daemon

from bicycle_runtime.engine.spark.places_folder import places_folder

__all__ = ["main", "note_ends"]

_WORKERS = "bicycle_runtime.engine.spark.worker"


def note_ends(_number: int = 0, _frame: object = None) -> None:
    """Note the exit code of each worker that ended beside what it was at; 0 leaves nothing."""
    with contextlib.suppress(ChildProcessError):  # None is left.
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            place = Path(places_folder(), str(pid))
            with contextlib.suppress(FileNotFoundError):  # It had no task yet.
                if code:
                    place.rename(f"{place}.{code}")
                else:
                    place.unlink()


def main() -> None:
    """Be Spark's daemon, with an eye on the workers."""
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
