"""Java that starts with the command, before the driver imports its modules.

Their import takes a fifth of the time until an embedded Spark is up. So this module imports little.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.base.work_folders import WorkFolder
from bicycle_runtime.engine.spark.java import StartingJava, start_java
from bicycle_runtime.engine.spark.settings import default_master, is_embedded, spark_settings
from bicycle_runtime.jobs.home import Home, locate_job
from bicycle_runtime.jobs.options import JobRequest
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.random_source import system_random


class EarlyJava:
    """The Java process of a job's first start; leaving ends an unused one.

    Only embedded Spark starts so. A job that has run before may have nothing new to read, so it
    starts Java later. Errors are ignored: the start of the job finds and raises them.
    """

    def __init__(self, request: JobRequest, home: Home) -> None:
        self._found: tuple[StartingJava, WorkFolder] | None = None
        master = request.options.master or default_master()
        with contextlib.suppress(BicycleError, OSError), contextlib.ExitStack() as cleanup:
            if not is_embedded(master) or not _is_first(request, home):
                return
            folder = WorkFolder()
            cleanup.callback(folder.remove)
            settings = spark_settings(master, folder.path, request.spark)
            java = start_java(
                master=master, settings=settings, folder=folder, cache_dir=home.cache_dir
            )
            self._found = (java, folder)
            cleanup.pop_all()

    def __enter__(self) -> EarlyJava:
        return self

    def __exit__(self, *_: object) -> None:
        if found := self.take():
            java, folder = found
            java.end(has_run=False)
            java.process.wait()
            folder.remove()

    def take(self) -> tuple[StartingJava, WorkFolder] | None:
        """Return Java and its folder once, for the executor of the first start."""
        found, self._found = self._found, None
        return found


def _is_first(request: JobRequest, home: Home) -> bool:
    if request.options.checkpoint_dir is None:
        return True
    location = locate_job(request.options, home, clock=SystemClock(), source=system_random())
    return isinstance(location.storage, LocalStorage) and not Path(location.storage.root).exists()
