"""The Spark of each start of a job, and a Spark that starts before its job.

Other modules of a running job know only the interface of executors.
"""

from __future__ import annotations

from functools import partial
from typing import IO

from bicycle_runtime.base.stacks import STACKS_VARIABLE
from bicycle_runtime.engine.spark.executor import SparkExecutor
from bicycle_runtime.engine.spark.settings import is_embedded
from bicycle_runtime.jobs.home import Home, JobLocation, locate_job
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.running.early_java import EarlyJava
from bicycle_runtime.jobs.running.executors import MakeExecutor, master_of
from bicycle_runtime.jobs.running.services import DoorServices, DriverExecutor


def spark_starts(services: DoorServices, early: EarlyJava | None = None) -> MakeExecutor:
    """Return the function that starts Spark for each start of a job."""
    return partial(_spark_executor, errors=services.worker_log, early=early)


class WarmExecutor:
    """Spark that starts before its job, for the first start; later starts get another.

    Args:
        request: A job with the same master and settings.
        home: Where its folder is.
        services: Clock, and the file for the output of workers.
    """

    def __init__(self, request: JobRequest, home: Home, services: DoorServices) -> None:
        location = locate_job(request.options, home, clock=services.clock, source=services.source)
        self._errors = services.worker_log
        self._first: SparkExecutor | None = _spark_executor(
            request, home, location, errors=self._errors
        )

    @property
    def first(self) -> SparkExecutor:
        """The Spark of the first start, before the job takes it."""
        assert self._first is not None
        return self._first

    def warm(self) -> None:
        """Start Spark, and wait until it has come up.

        Raises:
            SparkStartError: it does not.
        """
        self.first.warm()

    def stop(self) -> None:
        """End it, unless a job has taken it."""
        if self._first is not None:
            self._first.stop()

    def __call__(self, request: JobRequest, home: Home, location: JobLocation) -> DriverExecutor:
        """Return the executor for one start of the job."""
        found, self._first = self._first, None
        return found or _spark_executor(request, home, location, errors=self._errors)


def _spark_executor(
    request: JobRequest, home: Home, location: JobLocation,
    *, errors: IO[bytes] | None, early: EarlyJava | None = None,
) -> SparkExecutor:  # fmt: skip
    """Return Spark for one start of a job; worker output goes to ``errors``."""
    return SparkExecutor(
        master_of(request),
        settings={**_offered_stacks(master_of(request), location), **request.spark},
        cache_dir=home.cache_dir,
        job=location.job,
        cluster_timeout_ms=request.options.cluster_timeout_ms,
        errors=errors,
        early=early.take() if early else None,
    )


def _offered_stacks(master: str, location: JobLocation) -> dict[str, str]:
    """Return the setting that makes local workers write their stacks on request."""
    folder = str(location.folder.stacks_path)
    return {f"spark.executorEnv.{STACKS_VARIABLE}": folder} if is_embedded(master) else {}
