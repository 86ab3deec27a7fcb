"""A version in the shadow of its job, from the fork to its turn.

It takes no lock and no lease of the job, and writes no status. Each shadow works in a place of its
own below the job's checkpoints, so that a killed shadow that still runs disturbs no other.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable

from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.engine.replay.rereading import rereaders
from bicycle_runtime.engine.replay.shadow_loop import ShadowLoop
from bicycle_runtime.engine.resuming.operator_ids import last_operator_ids, with_operator_ids
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.jobs.home import Home, JobFolder, locate_job
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.plugins.environments import find_plugin
from bicycle_runtime.jobs.running.services import DoorServices, DriverExecutor
from bicycle_runtime.jobs.running.starting import prepare_job_setup
from bicycle_runtime.jobs.shadow_note import ShadowNote, read_shadow, write_shadow
from bicycle_runtime.jobs.supervision.error_reports import plain_error
from bicycle_runtime.layouts.paths import SHADOW
from bicycle_runtime.recovery.adoption import fork
from bicycle_runtime.recovery.copying import folder_of
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_POLL_S = 0.02


def follow_job(
    note: ShadowNote, folder: JobFolder, home: Home, services: DoorServices, *,
    executor: DriverExecutor, is_over: Callable[[], bool],
) -> None:  # fmt: skip
    """Follow a job until it is over, or until another shadow has replaced this one.

    1. Load the version that follows.
    2. Fork the job: its newest published epoch begins the shadow.
    3. Follow it epoch by epoch, and note how far.

    Args:
        note: The version that follows.
        folder: The folder of the job.
        home: The home of the job.
        services: Clock and random numbers.
        executor: Runs the tasks; it is not stopped when the shadow ends.
        is_over: Returns whether the shadow must end; called between two epochs.

    Raises:
        BicycleError: the version cannot follow the job; the note contains the error, too.
    """
    note.attempt = attempt_id(source=services.source)
    write_shadow(folder, note)
    try:
        _follow(note, folder, home, services, executor=executor, is_over=is_over)
    except BicycleError as error:
        note.error = plain_error(error)
        _note(folder, note)
        raise


def _follow(
    note: ShadowNote, folder: JobFolder, home: Home, services: DoorServices, *,
    executor: DriverExecutor, is_over: Callable[[], bool],
) -> None:  # fmt: skip
    request = JobRequest.from_json(note.request)
    # 1. Load the version that follows.
    plugin = find_plugin(request.options, home)
    location = locate_job(request.options, home, clock=services.clock, source=services.source)
    location = dataclasses.replace(location, folder=folder)
    bundle = extract(plugin.ref, request.params)
    plugin.enter()
    bundle = with_operator_ids(bundle, last_operator_ids(location.storage))
    setup = prepare_job_setup(bundle, request, location)
    executor.ship(plugin.shipment(bundle))
    # 2. Fork the job: its newest published epoch begins the shadow.
    storage = folder_of(location.storage, f"{SHADOW}/{note.attempt}")
    begun = fork(location.storage, storage, job=location.job)
    note.first = note.epoch = begun.epoch
    loop = ShadowLoop(
        dataclasses.replace(setup, storage=storage), location.storage, rereaders(setup), executor,
        options=request.engine_options(setup.graph), run_id=note.attempt, clock=services.clock,
    )  # fmt: skip
    # 3. Follow it epoch by epoch, and note how far.
    log_event(_LOG, "shadow_begun", job=location.job, epoch=loop.epoch)
    is_told, pause = _note(folder, note), threading.Event()
    while is_told and not is_over():
        if loop.step():
            note.epoch = loop.epoch
            is_told = _note(folder, note)
        else:
            executor.rest()
            pause.wait(_POLL_S)
    log_event(_LOG, "shadow_over", job=location.job, epoch=loop.epoch)


def _note(folder: JobFolder, note: ShadowNote) -> bool:
    """Write the shadow's progress; return False when its note is gone or replaced."""
    known = read_shadow(folder)
    if known is None or known.attempt != note.attempt:
        return False
    write_shadow(folder, note)
    return True
