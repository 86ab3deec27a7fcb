"""Published offsets told to a consumer group, for tools that show lag. Nothing depends on it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from threading import Lock
from typing import Any

from confluent_kafka import KafkaException

from bicycle_runtime.base.clock import SystemClock
from bicycle_runtime.base.logging import log_event
from bicycle_runtime.connectors.kafka.cluster import Cluster
from bicycle_sdk.errors import BicycleError

__all__ = ["GroupReporter"]

_logger = logging.getLogger(__name__)
_INTERVAL_S = 1.0
_LAST_WAIT_S = 2.0


class GroupReporter:
    """Reports the newest offsets at most once a second, one report under way at a time.

    ``report`` is called by the thread that publishes, ``send_due`` by the one that polls.

    Args:
        cluster: Takes the report.
        group: Name of the consumer group.
        vertex: For the log.
    """

    def __init__(self, cluster: Cluster, *, group: str, vertex: str) -> None:
        self._cluster = cluster
        self._group = group
        self._vertex = vertex
        self._clock = SystemClock()
        self._lock = Lock()
        self._waiting: dict[str, int] = {}
        self._under_way: Future[Any] | None = None
        self._sent_s = -_INTERVAL_S
        self._has_failed = False

    def report(self, offsets: Mapping[str, int]) -> None:
        """Take note of published offsets, and send them if it is time."""
        with self._lock:
            self._waiting.update(offsets)
        self.send_due()

    def send_due(self) -> None:
        """Send what waits, unless the last report was just now or is under way."""
        with self._lock:
            is_soon = self._clock.monotonic() - self._sent_s < _INTERVAL_S
            if not self._waiting or is_soon or self._is_under_way():
                return
            self._send()

    def close(self) -> None:
        """Send what waits, and wait a moment for it."""
        with self._lock:
            for is_last in (False, True):
                if self._under_way is not None:
                    self._settle(_LAST_WAIT_S)
                if not is_last and self._waiting and not self._has_failed:
                    self._send()

    def _send(self) -> None:
        offsets, self._waiting = self._waiting, {}
        self._sent_s = self._clock.monotonic()
        self._under_way = self._cluster.commit(self._group, offsets)

    def _is_under_way(self) -> bool:
        if self._under_way is None:
            return False
        if not self._under_way.done():
            return True
        self._settle(0)
        return False

    def _settle(self, wait_s: float) -> None:
        """Take note of how a report ended; the first of several failures is told."""
        future, self._under_way = self._under_way, None
        assert future is not None
        try:
            for place in future.result(wait_s).topic_partitions:
                if place.error is not None:
                    raise KafkaException(place.error)
            self._has_failed = False
        except (KafkaException, BicycleError, TimeoutError) as error:
            if not self._has_failed:
                log_event(
                    _logger,
                    "kafka_offsets_not_reported",
                    level=logging.WARNING,
                    vertex=self._vertex,
                    group=self._group,
                    reason=str(error),
                )
            self._has_failed = True
