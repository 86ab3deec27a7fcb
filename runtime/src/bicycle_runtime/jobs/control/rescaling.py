"""``bicycle rescale``: its request to a running job, and the stored parallelism.

A job keeps the parallelism of a rescale across restarts of its run. ``request.json`` stores it, so
a later start of the same request uses it, too. Another ``bicycle run`` or ``submit`` is a new
request with its own parallelism.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.engine.loop.rescaling import Rescaled, RescaleRequest
from bicycle_runtime.jobs.control.requests import DriverRequest, ask_job
from bicycle_runtime.jobs.errors import RESCALE_REQUEST_UNREADABLE
from bicycle_runtime.jobs.home import Home, JobFolder
from bicycle_runtime.jobs.options import JobRequest
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import ConfigError
from bicycle_sdk.logging import log_event
from bicycle_sdk.options import check, option

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleOptions:
    """The new parallelism of a running job, and the time limit of the change."""

    parallelism: int | None = option(
        None,
        low=1,
        high=32_768,
        doc=(
            "Parallelism of every operator, except sources that cannot be split. Default: "
            "unchanged."
        ),
    )
    operators: dict[str, int] | None = option(
        None, low=1, high=32_768,
        doc="Parallelism of single operators by uid; overrides `parallelism`.",
    )  # fmt: skip
    timeout_ms: int = option(
        120_000,
        low=1_000,
        high=3_600_000,
        doc="Time limit for the response. A job rescales between two epochs.",
    )

    def __post_init__(self) -> None:
        check(self)
        if self.parallelism is None and not self.operators:
            raise ConfigError(
                problem="parallelism is missing",
                hint="set the parallelism of all operators, or of single operators by uid",
            )


def ask_for_rescale(home: Home, job: str, options: RescaleOptions, *, clock: Clock) -> Rescaled:
    """Change the parallelism of a running job, and wait until it runs with it.

    Args:
        home: Where jobs are kept.
        job: The job's id.
        options: The parallelism, and the time limit.
        clock: Measures how long is waited.

    Raises:
        JOB_NOT_FOUND: there is no such job.
        JobNotRunningError: it has ended.
        REQUEST_TIMED_OUT: it runs and does not answer.
        WIDTH_OPERATOR_UNKNOWN: it has no such operator.
        WIDTH_REFUSED: an operator cannot have that parallelism.
        RESCALE_FAILED: the first epoch at this parallelism failed; the job continues as before.
    """
    facts = {"parallelism": options.parallelism, "operators": options.operators or {}}
    answer = ask_job(
        home, job, DriverRequest.RESCALE, facts, clock=clock, timeout_ms=options.timeout_ms
    )
    return msgspec.convert(answer, prepare_type(Rescaled))


def rescale_request(facts: Mapping[str, Any]) -> RescaleRequest:
    """Return the content of a rescale request.

    Raises:
        RESCALE_REQUEST_UNREADABLE: it is not of the form that this version knows.
    """
    try:
        return msgspec.convert(facts, prepare_type(RescaleRequest))
    except msgspec.ValidationError as error:
        raise RESCALE_REQUEST_UNREADABLE(reason=str(error)) from error


def request_rescaled(request: JobRequest, done: Rescaled, folder: JobFolder) -> JobRequest:
    """Return the request of a job that was rescaled, kept for its next start."""
    changed = dataclasses.replace(request, parallelisms=dict(done.new))
    try:
        folder.write_request(changed)
    except OSError as error:  # A full disk of the home is no reason to end the job.
        log_event(
            _LOG, "request_not_written", level=logging.WARNING, job=folder.id,
            reason=error.strerror or str(error),
        )  # fmt: skip
    return changed
