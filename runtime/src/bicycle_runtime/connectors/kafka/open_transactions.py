"""Bounded reading with open transactions at the start: wait, for a limited time.

A bounded source ends where the partitions ended at its first start, open transactions included.
Messages of a transaction are readable once it has ended, which brokers enforce at its timeout. A
transaction that outlasts the limit is left unread, and the log reports how much that is.
"""

from __future__ import annotations

import logging
from typing import Any

from bicycle_runtime.connectors.kafka.progress import Progress
from bicycle_sdk.clock import Clock
from bicycle_sdk.logging import log_event

_logger = logging.getLogger(__name__)
_LOG_AFTER_S = 1.0


class OpenTransactions:
    """The partitions of a bounded source that wait for the end of a transaction.

    Args:
        progress: Positions, ends and stops; a stop is lowered when the wait is over.
        clock: Measures the wait.
        limit_ms: How long to wait for one transaction.
        vertex: For the log.
    """

    def __init__(self, progress: Progress, clock: Clock, *, limit_ms: int, vertex: str) -> None:
        self._progress = progress
        self._clock = clock
        self._limit_s = limit_ms / 1_000
        self._vertex = vertex
        self._since: dict[str, tuple[int, float]] = {}  # The unmoved end, and since when.
        self._logged: set[str] = set()

    def look(self) -> None:
        """Compare positions, ends and stops, after the ends were requested."""
        for shard, stop in (self._progress.stops or {}).items():
            end = self._progress.ends.get(shard)
            position = self._progress.positions.get(shard)
            if end is None or position is None or position < end or end >= stop:
                self._since.pop(shard, None)
                self._logged.discard(shard)
            else:
                self._wait(shard, end, stop)

    def _wait(self, shard: str, end: int, stop: int) -> None:
        now_s = self._clock.monotonic()
        known_end, since_s = self._since.setdefault(shard, (end, now_s))
        if known_end != end:
            self._since[shard] = (end, now_s)
            return
        if now_s - since_s >= self._limit_s:
            self._progress.stop_before(shard, end)
            facts = self._facts(shard, end=end, stop=stop)
            log_event(_logger, "kafka_transaction_left_unread", level=logging.WARNING, **facts)
        elif now_s - since_s >= _LOG_AFTER_S and shard not in self._logged:
            self._logged.add(shard)
            facts = self._facts(shard, end=end, stop=stop)
            log_event(_logger, "kafka_waits_for_transaction", **facts)

    def _facts(self, shard: str, *, end: int, stop: int) -> dict[str, Any]:
        return {
            "vertex": self._vertex,
            "partition": shard,
            "offset": end,
            "unread_offset_count": stop - end,
            "limit_ms": round(self._limit_s * 1_000),
        }
