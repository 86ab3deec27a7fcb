"""Figures of the subscriber server for Prometheus."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    generate_latest,
)


class SubscriberFigures:
    """Counted while the server runs, and forgotten with it."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # The library lacks it.
        self._registry = registry = CollectorRegistry()

        def counter(name: str, help_text: str, *labels: str) -> Counter:
            return Counter(f"bicycle_subscriber_{name}", help_text, labels, registry=registry)

        def gauge(name: str, help_text: str) -> Gauge:
            return Gauge(f"bicycle_subscriber_{name}", help_text, registry=registry)

        self.clients = gauge("clients", "Connected clients.")
        self.subscriptions = gauge("subscriptions", "Subscriptions of clients.")
        self.catching_up = gauge("catching_up", "Subscriptions that read past messages.")
        self.read = counter("messages_read", "Messages received from backends.", "stream")
        self.sent = counter("messages_sent", "Messages sent to clients.", "stream")
        self.skipped = counter("messages_skipped", "Messages skipped for slow clients.", "stream")
        self.lagged = counter("lags", "Number of times that a subscription fell behind.", "stream")
        self.dropped = counter("clients_dropped", "Clients that were disconnected.", "reason")
        self.refused = counter("requests_refused", "Requests that were rejected.", "code")
        self.broken = counter("reads_failed", "Failed reads of a stream.", "address")
        self.webhooks = counter(
            "webhook_requests", "Requests to webhooks, by outcome.", "webhook", "outcome"
        )
        self.dead_letters = counter(
            "webhook_dead_letters", "Messages that were given up.", "webhook"
        )

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self._registry)
