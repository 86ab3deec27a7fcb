"""The start of a run: lease, graph, first epoch and plan.

A job begins with its own checkpoint directory, or with an epoch that it is given.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator

from bicycle_runtime.base.storage import LocalStorage, require_atomic_create
from bicycle_runtime.contract import ChecksBeforeStart
from bicycle_runtime.engine.planning.setup import JobSetup, prepare_job
from bicycle_runtime.engine.resuming.operator_ids import last_operator_ids, with_operator_ids
from bicycle_runtime.engine.resuming.state_metadata import first_manifest
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.jobs.checkpoints.job_file import refuse_newer, require_identity
from bicycle_runtime.jobs.control.previous_run import require_checkpoint
from bicycle_runtime.jobs.home import JobLocation
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.plugins.graph_changes import require_parallelism, with_run_options
from bicycle_runtime.jobs.running.first_status import take_setup
from bicycle_runtime.jobs.running.job_run import JobRun
from bicycle_runtime.jobs.savepoints.commands import begin_with, open_origin
from bicycle_runtime.jobs.shadow_note import read_shadow
from bicycle_runtime.layouts.paths import SHADOW
from bicycle_runtime.recovery.adoption import (
    AdoptedEpoch,
    hand_over,
    is_adopted,
    refuse_unfinished_restore,
)
from bicycle_runtime.recovery.copying import folder_of
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.lease import LeaseKeeper
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import ParameterError
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def take_over(run: JobRun) -> Iterator[None]:
    """Hold the lease of the job, after the check that its storage is usable.

    Raises:
        CHECKPOINT_GONE: the job has run before, and its epochs are no longer there.
        CHECKPOINT_UNIDENTIFIED: there are epochs without the file that identifies the job.
        BicycleError: the storage cannot hold checkpoints, or another driver has the lease.
    """
    run.outages.prove(lambda: _prove_storage(run), is_first=run.is_first)
    beat_ms = run.request.options.lease_beat_ms
    with contextlib.ExitStack() as held:
        with run.phases.taking_over():
            keeper = LeaseKeeper(
                run.lease, beat_ms=beat_ms, on_lost=run.abort, on_refused=run.note_refused_beat
            )
            held.enter_context(keeper)
        yield


def _prove_storage(run: JobRun) -> None:
    """Check that the storage has the job's sealed epochs, and can store more.

    1. A start in place of another driver finds the epochs that the other one sealed.
    2. Epochs have their identity file.
    3. The directory of a first start is made.
    4. Of several creators of an object one wins.
    """
    storage = run.location.storage
    # 1. A start in place of another driver finds the epochs that the other one sealed.
    require_checkpoint(run.location, run.services.former, is_again=True)
    # 2. Epochs have their identity file.
    require_identity(storage)
    # 3. The directory of a first start is made.
    if isinstance(storage, LocalStorage):
        storage.make_required_folder()
    # 4. Of several creators of an object one wins.
    require_atomic_create(storage, source=run.services.source)


def extract_job(run: JobRun) -> JobBundle:
    """Return the plugin's job, with the operator ids that it has in the checkpoint.

    A job that is to begin with another epoch has that in its place afterwards.
    """
    bundle = _extract_beside_java(run)
    run.plugin.enter()  # Its types decide whether the state fits.
    with run.phases.copying():
        _take_over_shadow(run)
        run.request = adopt_starting_point(
            run.request, run.location, bundle, clock=run.services.clock
        )
    return with_operator_ids(bundle, last_operator_ids(run.location.storage))


def plan_job(run: JobRun, bundle: JobBundle) -> JobSetup:
    """Plan the next start of the job, create its connectors, and show its guarantee."""
    run.executor.ship(run.plugin.shipment(bundle))
    setup = prepare_job_setup(bundle, run.request, run.location)
    take_setup(run.progress.status, setup)
    run.progress.status.java_pid = run.executor.java_pid
    return setup


def _extract_beside_java(run: JobRun) -> JobBundle:
    name, executor = run.plugin.ref.name, run.executor
    has_run = bool(EpochHistory(run.location.storage).epochs())
    # A driver in the place of a dead one has work, and every second counts.
    replaces_driver = not run.is_first and not run.services.only_settles
    executor.is_deferred = has_run and not replaces_driver
    if executor.is_deferred:
        with run.phases.step_of_start("extracting the plugin", name):
            return _extract(run)
    with run.phases.step_of_start("starting Spark and extracting the plugin", name):
        return executor.boot_beside(lambda: _extract(run))


def _extract(run: JobRun) -> JobBundle:
    """Return the plugin's job; refused parameter values are not kept."""
    try:
        return extract(run.plugin.ref, run.request.params)
    except ParameterError:
        # It may be a secret that was written where a reference to it belongs.
        run.location.folder.write_request(dataclasses.replace(run.request, params={}))
        raise


def adopt_starting_point(
    request: JobRequest, location: JobLocation, bundle: JobBundle, *, clock: Clock
) -> JobRequest:
    """Put the epoch that a job is to begin with into its place, if it fits the job.

    Args:
        request: The request of the run.
        location: The job, whose locks and lease are held.
        bundle: The bundle of the next run; this process can load its functions.
        clock: Measures whether the job of the epoch still runs.

    Returns:
        The request from now on, which is kept: its next start continues with the job's own epochs.

    Raises:
        RESTORE_UNFINISHED: half of another epoch is there.
        STATE_LOST: the job lacks operators or states that the epoch has, and that is not
            allowed; nothing was changed.
        SCHEMA_REFUSED: it cannot read a state of the epoch; nothing was changed.
        BicycleError: see ``plan_job_setup``, ``open_origin``, ``begin_with`` and refusals of sinks;
            nothing was changed.
    """
    if request.options.from_ is None:
        refuse_unfinished_restore(location.storage)
        return request
    origin = open_origin(request.options.from_)
    if is_adopted(origin, location.storage):  # By a start that came no further.
        refuse_unfinished_restore(location.storage)
    else:
        _begin(origin, request, location, bundle, clock=clock)
    options = dataclasses.replace(request.options, from_=None)
    kept = dataclasses.replace(request, options=options)
    location.folder.write_request(kept)
    log_event(
        _LOG, "job_begun_with", job=location.job, epoch=origin.manifest.epoch,
        origin=origin.storage.url,
    )  # fmt: skip
    return kept


def _begin(
    origin: AdoptedEpoch,
    request: JobRequest,
    location: JobLocation,
    bundle: JobBundle,
    *,
    clock: Clock,
) -> None:
    setup = plan_job_setup(
        with_operator_ids(bundle, origin.manifest.operator_ids), request, location
    )
    first = first_manifest(setup, origin.manifest)

    def check_outputs() -> None:
        options = request.engine_options(setup.graph)
        for uid, sink in setup.sinks.items():
            if not isinstance(sink, ChecksBeforeStart):
                continue
            services = setup.services(
                uid, clock=clock, collected={}, console=_unheard,
                epoch_interval_ms=options.epoch_interval_ms,
            )  # fmt: skip
            sink.check(services, first.sinks.get(uid, {}))

    begin_with(origin, location.storage, job=location.job, clock=clock, look=check_outputs)


def _take_over_shadow(run: JobRun) -> None:
    """Continue with the state of the job's shadow if this version has followed it."""
    note = read_shadow(run.location.folder)
    if note is None or not note.attempt or run.services.only_settles or not note.is_of(run.request):
        return
    storage = run.location.storage
    shadow = folder_of(storage, f"{SHADOW}/{note.attempt}")
    epoch = hand_over(shadow, storage, require_lease=run.lease.require)
    run.log("shadow_taken_over" if epoch else "shadow_not_taken_over", epoch=epoch)


def _unheard(_line: str) -> None:
    """Ignore a line for people; nothing that prints lines runs yet."""


def prepare_job_setup(bundle: JobBundle, request: JobRequest, location: JobLocation) -> JobSetup:
    """Plan the job as ``plan_job_setup`` does, for its own checkpoint.

    Raises:
        CHECKPOINT_VERSION_UNKNOWN: a newer version wrote that.
        BicycleError: see ``plan_job_setup``.
    """
    refuse_newer(location.storage)
    return plan_job_setup(bundle, request, location)


def plan_job_setup(bundle: JobBundle, request: JobRequest, location: JobLocation) -> JobSetup:
    """Plan the job and create its connectors; nothing is opened or written.

    Args:
        bundle: The plugin's bundle.
        request: The changes to it.
        location: Where the job is kept.

    Raises:
        BicycleError: the graph cannot run so, or a connector's settings are wrong.
    """
    options = request.options
    bundle = with_run_options(bundle, options)
    require_parallelism(bundle.graph, options.parallelism)
    setup = prepare_job(
        bundle,
        job_id=location.job,
        storage=location.storage,
        parallelism=options.parallelism,
        parallelisms=request.parallelisms,
        dead_letters_dir=location.dead_letters_dir,
    )
    return dataclasses.replace(setup, allows_dropped_state=options.allow_dropped_state)
