"""Metrics of the service itself: response times, looks, subscribers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)


class ServiceFigures:
    """Counted by the service while it runs, and forgotten with it."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # The library lacks it.
        self._registry = CollectorRegistry()
        self._requests = Histogram(
            "bicycle_service_request_seconds", "Time until the headers of a response.", ("code",),
            registry=self._registry, buckets=_BUCKETS_S,
        )  # fmt: skip
        self._refused = Counter(
            "bicycle_service_requests_refused", "Rejected requests with foreign hosts or origins.",
            registry=self._registry,
        )  # fmt: skip
        self._spans = Counter(
            "bicycle_service_spans", "Spans of epochs for OpenTelemetry.",
            ("outcome",), registry=self._registry,
        )  # fmt: skip
        self._look = Gauge(
            "bicycle_service_tick_seconds", "Duration of the last scan of all jobs.",
            registry=self._registry,
        )  # fmt: skip
        self._subscribers = Gauge(
            "bicycle_service_subscribers", "Open event streams.", registry=self._registry
        )
        self._disk_free = Gauge(
            "bicycle_service_disk_free_bytes", "Free space of the disk of the home.",
            registry=self._registry,
        )  # fmt: skip
        self._disk = Gauge(
            "bicycle_service_disk_bytes", "Size of the disk of the home.", registry=self._registry
        )
        self._operations = Gauge(
            "bicycle_service_operations", "Operations that have not ended.", registry=self._registry
        )

        self._slots = Gauge(
            "bicycle_service_slots", "Slots of a Spark master.", ("master", "state"),
            registry=self._registry,
        )  # fmt: skip
        self._waiting = Gauge(
            "bicycle_service_waiting_jobs", "Jobs that wait for slots.", ("master",),
            registry=self._registry,
        )  # fmt: skip

    def count_request(self, code: int, seconds: float) -> None:
        """Count one answer."""
        self._requests.labels(str(code)).observe(seconds)

    def count_refused(self) -> None:
        """Count a request that was refused for its host or origin."""
        self._refused.inc()

    def count_spans(self, outcome: str, count: int) -> None:
        """Count spans that were sent, not taken (failed), or dropped for want of room."""
        self._spans.labels(outcome).inc(count)

    def note_disk(self, *, free_bytes: int, total_bytes: int) -> None:
        """Take note of the disk that the home is on."""
        self._disk_free.set(free_bytes)
        self._disk.set(total_bytes)

    def note_slots(self, masters: Iterable[Mapping[str, Any]]) -> None:
        """Record the slots of all masters, from ``Service.slots``."""
        self._slots.clear()
        self._waiting.clear()
        for each in masters:
            if each["total"] is not None:
                self._slots.labels(each["master"], "total").set(each["total"])
            self._slots.labels(each["master"], "used").set(each["used"])
            self._waiting.labels(each["master"]).set(each["waiting_jobs"])

    def text(self, *, look_ms: float, subscriber_count: int, operation_count: int) -> str:
        """Return the exposition, with present values."""
        self._look.set(look_ms / 1_000)
        self._subscribers.set(subscriber_count)
        self._operations.set(operation_count)
        return generate_latest(self._registry).decode()
