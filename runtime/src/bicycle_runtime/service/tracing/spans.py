"""Spans of OpenTelemetry: one per epoch, with child spans of its phases.

The service makes them of the journals of jobs, so that drivers neither load OpenTelemetry nor wait
for a receiver. A receiver that is slow or away costs spans, which are counted, and nothing else.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import set_span_in_context

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.journal import EpochLine, JournalTail
from bicycle_runtime.service.metrics.figures import ServiceFigures
from bicycle_runtime.service.watching.fleet import Fleet
from bicycle_runtime.service.watching.summaries import KnownJob
from bicycle_sdk.clock import Clock
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
SPANS_WAITING_MAX = 2_048
_BATCH_MAX = 512
_LOOK_S = 1.0
_END_S = 3.0
_NS_PER_MS = 1_000_000


class Tracing:
    """A context manager: spans are made and sent between entering and leaving.

    Args:
        home: The home with the journals.
        fleet: The snapshot with all jobs.
        figures: The counters of spans.
        clock: The clock for the time from which epochs are sent.
    """

    def __init__(self, home: Home, fleet: Fleet, figures: ServiceFigures, *, clock: Clock) -> None:
        self._home = home
        self._clock = clock
        self._began_ms = clock.now_ms()
        self._fleet = fleet
        self._sender = _Sender(figures)
        self._tails: dict[str, JournalTail] = {}
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="make spans", daemon=True)

    def __enter__(self) -> Tracing:
        # Jobs that are there: from now on. The service before this one sent their past.
        self._began_ms = self._clock.now_ms()
        for job in self._fleet.view.jobs:
            self._tail(job.summary.job_id, is_new=False)
        self._sender.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join()
        self._sender.end(_END_S)

    def _run(self) -> None:
        while not self._is_ending.wait(_LOOK_S):
            self.look()
        self.look()

    def look(self) -> None:
        """Create spans of new lines in all journals."""
        view = self._fleet.view
        for gone in self._tails.keys() - view.by_id.keys():
            # A starting job has no status for a moment, but its journal continues.
            if not self._home.folder(gone).journal_path.exists():
                del self._tails[gone]
        for job in view.jobs:
            try:
                lines = self._tail(job.summary.job_id, is_new=True).read()
            except OSError as error:  # The next look may do.
                log_event(_LOG, "journal_not_read", level=logging.WARNING, error=error)
                continue
            self._sender.take(job, [line for line in lines if line.sealed_ms >= self._began_ms])

    def _tail(self, job: str, *, is_new: bool) -> JournalTail:
        found = self._tails.get(job)
        if found is None:
            path = self._home.folder(job).journal_path
            found = self._tails[job] = JournalTail(path, is_whole=is_new)
        return found


class _Waiting(SpanProcessor):  # type: ignore[misc]  # mypy sees no types there
    """A buffer of spans until they are sent; spans beyond its bound are counted."""

    def __init__(self, figures: ServiceFigures) -> None:
        self._figures = figures
        self.spans: queue.Queue[ReadableSpan | None] = queue.Queue(SPANS_WAITING_MAX)

    def on_end(self, span: ReadableSpan) -> None:
        try:
            self.spans.put_nowait(span)
        except queue.Full:
            self._figures.count_spans("dropped", 1)


class _Sender:
    """Makes spans, and sends them in a thread of its own.

    Args:
        figures: Counts how many were sent, dropped for want of room, or not taken.
    """

    def __init__(self, figures: ServiceFigures) -> None:
        self._figures = figures
        waiting = _Waiting(figures)
        self._spans = waiting.spans
        self._exporter = OTLPSpanExporter()
        provider = TracerProvider(
            resource=Resource.create({"service.name": "bicycle"}), shutdown_on_exit=False
        )
        provider.add_span_processor(waiting)
        self._tracer = provider.get_tracer("bicycle_runtime")
        self._thread = threading.Thread(target=self._run, name="send spans", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def end(self, timeout_s: float) -> None:
        """Send waiting spans, within a time limit."""
        try:
            self._spans.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def take(self, job: KnownJob, lines: Iterable[EpochLine]) -> None:
        """Make the spans of epochs of a job."""
        for line in lines:
            began_ns = line.began_ms * _NS_PER_MS
            epoch = self._tracer.start_span(
                "epoch", context=Context(), start_time=began_ns, attributes=_attributes(job, line)
            )
            below = set_span_in_context(epoch, Context())
            for name, duration_ms in line.phases_ms.items():
                phase = self._tracer.start_span(name, context=below, start_time=began_ns)
                began_ns += round(duration_ms * _NS_PER_MS)
                phase.end(began_ns)
            epoch.end(max(began_ns, line.sealed_ms * _NS_PER_MS))

    def _run(self) -> None:
        batch: list[ReadableSpan | None] = []
        while None not in batch:
            batch = [self._spans.get()]
            while len(batch) < _BATCH_MAX and not self._spans.empty():
                batch.append(self._spans.get())
            self._send([span for span in batch if span is not None])
        self._exporter.shutdown()

    def _send(self, spans: list[ReadableSpan]) -> None:
        if not spans:
            return
        try:
            is_taken = self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001 - Whatever a receiver does, jobs are looked at.
            log_event(_LOG, "spans_not_sent", level=logging.WARNING, error=error)
            is_taken = False
        self._figures.count_spans("sent" if is_taken else "failed", len(spans))


def _attributes(job: KnownJob, line: EpochLine) -> dict[str, str | int]:
    return {
        "bicycle.job": job.summary.job_id,
        "bicycle.plugin": job.summary.plugin,
        "bicycle.plugin_version": job.summary.plugin_version,
        "bicycle.epoch": line.epoch,
        "bicycle.epoch_count": line.count,
        "bicycle.records": line.records,
        "bicycle.state_bytes": line.state_bytes,
    }
