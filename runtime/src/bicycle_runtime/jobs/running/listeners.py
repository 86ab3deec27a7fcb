"""Listeners of extensions to a running job: its states, and epoch figures.

Listeners and reporters are called in a thread of their own, one call at a time. So they hold up no
epoch, however slow; their errors are logged with the extension's name and end nothing.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pkgutil import resolve_name
from typing import Any, Protocol, Self

from bicycle_runtime.connectors.registry import Offer, default_registry
from bicycle_runtime.engine.epoch.stats import EpochStats
from bicycle_runtime.jobs.errors import EXTENSION_HOOK_FAILED
from bicycle_runtime.operators.metrics import MetricValues
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_WAITING_MAX = 1_000
_CLOSE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """A new state of a job; ``error`` is the code of the error that it failed with."""

    job: str
    state: str
    epoch: int
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorMetrics:
    """The figures of an operator in one epoch; ``metrics`` come from ``ctx.metrics``."""

    records_in: int
    records_out: int
    failed: int
    late: int
    metrics: MetricValues = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochMetrics:
    """The figures of one sealed epoch; ``event_count`` is of all epochs of the job.

    ``watermark_ms`` is the least watermark of any operator, None while there is no watermark.
    """

    job: str
    epoch: int
    record_count: int
    event_count: int
    duration_ms: float
    state_bytes: int
    watermark_ms: int | None
    late_dropped_count: int
    operators: Mapping[str, OperatorMetrics]

    @classmethod
    def of(cls, job: str, stats: EpochStats) -> EpochMetrics:
        """Return the figures of an epoch."""
        return cls(
            job=job,
            epoch=stats.epoch,
            record_count=stats.record_count,
            event_count=stats.event_count,
            duration_ms=stats.duration_ms,
            state_bytes=stats.state_bytes,
            watermark_ms=stats.watermark_ms,
            late_dropped_count=stats.late_dropped_count,
            operators={
                uid: OperatorMetrics(
                    records_in=counts.records_in,
                    records_out=counts.records_out,
                    failed=counts.failed,
                    late=counts.late,
                    metrics=counts.metrics,
                )
                for uid, counts in stats.counts.items()
            },
        )


class MetricReporter(Protocol):
    """Sends figures elsewhere. Made without arguments, once per run of a driver."""

    def report(self, metrics: EpochMetrics) -> None:
        """Take the figures of an epoch; called after it is sealed, in order."""

    def close(self) -> None:
        """Send the remaining figures; called once, when the driver ends."""


class JobListener(Protocol):
    """Hears of the states of a job. Made without arguments, once per run of a driver."""

    def changed(self, change: JobChange) -> None:
        """Take note of a new state; called once for each, in order."""

    def close(self) -> None:
        """Close open resources; called once, when the driver ends."""


class Listeners:
    """The listeners and reporters of one job; a context manager, with their thread.

    Args:
        job: Name of the job.
        offers: The offers of extensions; without any there is no thread.
    """

    def __init__(self, job: str, offers: Iterable[Offer]) -> None:
        self._job = job
        self._offers = tuple(offers)
        self._waiting: queue.Queue[JobChange | EpochMetrics | None] = queue.Queue(_WAITING_MAX)
        self._thread: threading.Thread | None = None
        self._lost_count = 0
        self._told: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._offers:
            self._thread = threading.Thread(target=self._serve, name="job-listeners", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is None:
            return
        self._put(None)
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive() or self._lost_count:
            log_event(
                _LOG, "listeners_behind", level=logging.WARNING, job=self._job,
                waiting=self._waiting.qsize(), lost=self._lost_count,
            )  # fmt: skip

    def entered(self, state: str, *, epoch: int, error: str | None) -> None:
        """Notify listeners of a new state. From any thread."""
        if self._thread is not None:
            self._put(JobChange(job=self._job, state=state, epoch=epoch, error=error))

    def sealed(self, stats: EpochStats) -> None:
        """Send the figures of an epoch to reporters."""
        if self._thread is not None:
            self._put(EpochMetrics.of(self._job, stats))

    def _put(self, item: JobChange | EpochMetrics | None) -> None:
        try:
            self._waiting.put_nowait(item)
        except queue.Full:
            self._lost_count += 1

    def _serve(self) -> None:
        made = [
            (offer, part)
            for offer in self._offers
            for part in [self._guard(offer, partial(_make, offer.location))]
            if part is not None
        ]
        while (item := self._waiting.get()) is not None:
            kind = "job_listeners" if isinstance(item, JobChange) else "metric_reporters"
            for offer, part in made:
                if offer.kind == kind:
                    method = "changed" if isinstance(item, JobChange) else "report"
                    self._guard(offer, partial(_call, part, method, item))
        for offer, part in made:
            self._guard(offer, partial(_call, part, "close"))

    def _guard(self, offer: Offer, call: Callable[[], Any]) -> Any:
        """Return the result of a call, or None if it raised; new errors are logged."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001  # a stranger's code may raise anything
            reason = f"{type(error).__name__}: {error}"
            if self._told.get(offer.word) != reason:
                self._told[offer.word] = reason
                told = EXTENSION_HOOK_FAILED(
                    extension=offer.extension, part=offer.word, kind=offer.kind, reason=reason
                )
                log_event(
                    _LOG, "extension_failed", level=logging.WARNING, job=self._job, error=told
                )
            return None


def installed_listeners(job: str) -> Listeners:
    """Return the listeners of installed extensions, for one job."""
    registry = default_registry()
    offers = registry.offers_of("job_listeners") + registry.offers_of("metric_reporters")
    for refusal in registry.refusals if offers else ():
        log_event(
            _LOG, "extension_refused", level=logging.WARNING, job=job,
            extension=refusal.extension, reason=refusal.reason,
        )  # fmt: skip
    return Listeners(job, offers)


def _make(location: str) -> Any:
    return resolve_name(location)()


def _call(part: Any, method: str, *arguments: Any) -> None:
    getattr(part, method)(*arguments)
