"""From a plugin's bundle and what was asked for to the job that runs."""

from __future__ import annotations

import dataclasses

from bicycle_runtime.engine.planning.setup import JobSetup, prepare_job
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.jobs.checkpoints.job_file import refuse_newer
from bicycle_runtime.jobs.home import JobPlace
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.plugins.graph_changes import (
    require_parallelism,
    with_data_loss_policy,
    with_follow,
)

__all__ = ["plan_job_setup", "prepare_job_setup"]


def prepare_job_setup(bundle: JobBundle, request: JobRequest, place: JobPlace) -> JobSetup:
    """Plan the job as ``plan_job_setup`` does, for its own checkpoint.

    Raises:
        CHECKPOINT_VERSION_UNKNOWN: a newer version wrote that.
        BicycleError: see ``plan_job_setup``.
    """
    refuse_newer(place.storage)
    return plan_job_setup(bundle, request, place)


def plan_job_setup(bundle: JobBundle, request: JobRequest, place: JobPlace) -> JobSetup:
    """Plan the job and create its connectors; nothing is opened or written.

    Args:
        bundle: What the plugin gave.
        request: What is to be changed about it.
        place: Where the job is kept.

    Raises:
        BicycleError: the graph cannot run so, or a connector's settings are wrong.
    """
    options = request.options
    if options.follow:
        bundle = with_follow(bundle)
    if options.on_data_loss is not None:
        bundle = with_data_loss_policy(bundle, options.on_data_loss)
    require_parallelism(bundle.graph, options.parallelism)
    setup = prepare_job(
        bundle,
        job_id=place.job,
        storage=place.storage,
        parallelism=options.parallelism,
        parallelisms=request.parallelisms,
        dead_letters_dir=place.dead_letters_dir,
    )
    return dataclasses.replace(setup, allows_dropped_state=options.allow_dropped_state)
