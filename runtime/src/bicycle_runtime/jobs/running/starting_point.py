"""Where a job begins: with its own checkpoint directory, or with an epoch that it is given."""

from __future__ import annotations

import dataclasses
import logging

from bicycle_runtime.base.clock import Clock
from bicycle_runtime.base.logging import log_event
from bicycle_runtime.contract import ChecksBeforeStart
from bicycle_runtime.engine.resuming.operator_ids import with_operator_ids
from bicycle_runtime.engine.resuming.restoring import refuse_lost_state
from bicycle_runtime.engine.resuming.state_metadata import initial_state_metadata
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.jobs.home import JobPlace
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.running.job_setup import plan_job_setup
from bicycle_runtime.jobs.savepoints.commands import begin_with, open_origin
from bicycle_runtime.recovery.adoption import Origin, is_adopted, refuse_unfinished_restore

__all__ = ["adopt_starting_point"]

_LOG = logging.getLogger(__name__)


def adopt_starting_point(
    request: JobRequest, place: JobPlace, bundle: JobBundle, *, clock: Clock
) -> JobRequest:
    """Put the epoch that a job is to begin with into its place, if it fits the job.

    Args:
        request: What was asked for.
        place: The job, whose locks and lease are held.
        bundle: What is about to run; this process can load its functions.
        clock: Measures whether the job of the epoch still runs.

    Returns:
        The request from now on, which is kept: its next start goes on with the job's own
        epochs.

    Raises:
        RESTORE_UNFINISHED: half of another epoch lies there.
        STATE_LOST: the job lacks operators or states that the epoch has, and that is not
            allowed; nothing was changed.
        SCHEMA_REFUSED: it cannot read a state of the epoch; nothing was changed.
        BicycleError: see ``plan_job_setup``, ``open_origin``, ``begin_with`` and what sinks refuse;
            nothing was changed.
    """
    if request.options.from_ is None:
        refuse_unfinished_restore(place.storage)
        return request
    origin = open_origin(request.options.from_)
    if is_adopted(origin, place.storage):  # By a start that came no further.
        refuse_unfinished_restore(place.storage)
    else:
        _begin(origin, request, place, bundle, clock=clock)
    options = dataclasses.replace(request.options, from_=None)
    kept = dataclasses.replace(request, options=options)
    place.folder.write_request(kept)
    log_event(
        _LOG, "job_begun_with", job=place.job, epoch=origin.manifest.epoch,
        origin=origin.storage.url,
    )  # fmt: skip
    return kept


def _begin(
    origin: Origin, request: JobRequest, place: JobPlace, bundle: JobBundle, *, clock: Clock
) -> None:
    setup = plan_job_setup(with_operator_ids(bundle, origin.manifest.operator_ids), request, place)
    job, allows_dropped = place.job, setup.allows_dropped_state
    refuse_lost_state(origin.manifest, setup.graph, job=job, allows_dropped=allows_dropped)
    initial_state_metadata(
        origin.manifest, setup.plan, setup.bundle.payloads, job=job, allows_dropped=allows_dropped
    )

    def check_outputs() -> None:
        options = request.engine_options(setup.graph)
        for uid, sink in setup.sinks.items():
            if not isinstance(sink, ChecksBeforeStart):
                continue
            services = setup.services(
                uid, clock=clock, collected={}, console=_unheard,
                epoch_interval_ms=options.epoch_interval_ms,
            )  # fmt: skip
            sink.check(services, origin.manifest.sinks.get(uid, {}))

    begin_with(origin, place.storage, job=job, clock=clock, look=check_outputs)


def _unheard(_line: str) -> None:
    """Take a line for people; nothing runs yet that had one to say."""
