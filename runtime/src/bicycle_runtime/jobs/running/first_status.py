"""The first status of a driver: of a new run, or of a continued one."""

from __future__ import annotations

import os

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.contract import Guarantee
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.jobs.home import JobLocation
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.status import GuaranteeStatus, JobStatus

_STRENGTH = {guarantee: rank for rank, guarantee in enumerate(Guarantee)}


def first_status(
    former: JobStatus | None,
    *,
    request: JobRequest,
    location: JobLocation,
    supervisor: tuple[int, int],
    is_detached: bool,
    now_ms: int,
) -> JobStatus:
    """Return the status with which this process begins as the driver of a job.

    Args:
        former: That of the driver in whose place this one was started; None for a new run.
        request: The job.
        location: Where it lives.
        supervisor: Process id and start time of the supervisor; zeros without one.
        is_detached: Whether it was submitted.
        now_ms: When a new run begins.
    """
    status = former
    if status is None:
        status = JobStatus(
            id=location.folder.id,
            job=location.job,
            plugin=request.options.plugin,
            is_detached=is_detached,
            checkpoint=location.storage.url,
            master=request.options.master or "",
            started_ms=now_ms,
        )
    status.pid, status.pid_started = os.getpid(), start_ticks(os.getpid())
    status.supervisor_pid, status.supervisor_started = supervisor
    status.java_pid = status.error = status.ended_ms = status.silent_storage_ms = None
    status.publication, status.fixed_ms, status.storage_reason = None, None, ""
    return status


def take_setup(status: JobStatus, setup: JobSetup) -> None:
    """Show the plugin and the guarantee of a job after its setup."""
    bundle = setup.bundle
    status.plugin, status.plugin_version = bundle.plugin, bundle.plugin_version
    status.bundle_digest = bundle.digest
    status.guarantee = weakest_link(setup)


def weakest_link(setup: JobSetup) -> GuaranteeStatus:
    """Return the end-to-end guarantee of a job, and its weakest source or sink."""
    links = [
        (_STRENGTH[connector.guarantee], uid, role, connector.guarantee)
        for role, connectors in (("source", setup.sources), ("sink", setup.sinks))
        for uid, connector in connectors.items()
    ]
    weakest = min(links, default=None)
    if weakest is None or weakest[3] is Guarantee.EXACTLY_ONCE:
        return GuaranteeStatus(guarantee=Guarantee.EXACTLY_ONCE.value)
    _, uid, role, guarantee = weakest
    return GuaranteeStatus(guarantee=guarantee.value, weakest=uid, role=role)
