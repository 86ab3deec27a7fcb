"""Published offsets told to a consumer group, for tools that show lag. Nothing depends on it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Lock

from confluent_kafka import KafkaError, KafkaException

from bicycle_runtime.base.clock import SystemClock
from bicycle_runtime.base.logging import log_event
from bicycle_runtime.connectors.kafka.access import Rights, is_refusal
from bicycle_runtime.connectors.kafka.cluster import Cluster

__all__ = ["GroupReporter"]

_logger = logging.getLogger(__name__)
_INTERVAL_S = 1.0
_LAST_WAIT_S = 2.0
_STEP_S = 0.05


class GroupReporter:
    """Reports the newest offsets at most once a second, one report under way at a time.

    ``report`` is called by the thread that publishes, everything else by the one that polls.

    Args:
        group: Name of the consumer group.
        vertex: For the log.
        user: Who reports, for the log; None where a certificate tells.
    """

    def __init__(self, *, group: str, vertex: str, user: str | None = None) -> None:
        self._group = group
        self._vertex = vertex
        self._user = user
        self._clock = SystemClock()
        self._lock = Lock()
        self._waiting: dict[str, int] = {}
        self._is_under_way = False
        self._sent_s = -_INTERVAL_S
        self._has_failed = False

    def report(self, offsets: Mapping[str, int]) -> None:
        """Take note of published offsets."""
        with self._lock:
            self._waiting.update(offsets)

    def send_due(self, cluster: Cluster) -> None:
        """Send what waits, unless the last report was just now or is under way."""
        cluster.serve()
        if self._clock.monotonic() - self._sent_s >= _INTERVAL_S:
            self._send(cluster)

    def send_last(self, cluster: Cluster) -> None:
        """Send what waits, and wait a moment for it; not when the last report failed."""
        deadline_s = self._clock.monotonic() + _LAST_WAIT_S
        while not self._has_failed and (self._is_under_way or self._waiting):
            self._send(cluster)
            if self._clock.monotonic() > deadline_s:
                self.note_result(KafkaError(KafkaError._TIMED_OUT))
            cluster.serve(_STEP_S)

    def note_result(self, error: KafkaError | None) -> None:
        """Take note of how a report ended; the first of several failures is told."""
        self._is_under_way = False
        if error is not None and not self._has_failed:
            lack = Rights(group=self._group).lack(error, self._user) if is_refusal(error) else None
            log_event(
                _logger,
                "kafka_offsets_not_reported",
                level=logging.WARNING,
                vertex=self._vertex,
                group=self._group,
                reason=error.str(),
                fix=lack.hint if lack else None,
            )
        self._has_failed = error is not None

    def _send(self, cluster: Cluster) -> None:
        if self._is_under_way:
            return
        with self._lock:
            offsets, self._waiting = self._waiting, {}
        if not offsets:
            return
        self._sent_s = self._clock.monotonic()
        self._is_under_way = True
        try:
            cluster.report(offsets)
        except KafkaException as error:
            self.note_result(error.args[0])
