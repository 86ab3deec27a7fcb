"""Bounded reading with open transactions at the start: wait, for a limited time.

A bounded source ends where the partitions ended at its first start, open transactions included. A
transaction that outlasts the limit is left unread, and the log reports how much that is.
"""

from __future__ import annotations

import logging
from typing import Any

from bicycle_runtime.connectors.kafka.progress import Progress
from bicycle_sdk.clock import Clock
from bicycle_sdk.logging import log_event
from bicycle_streams.kafka.offsets import TransactionWaits

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
        self._limit_s = limit_ms / 1_000
        self._vertex = vertex
        self._waits = TransactionWaits[str](clock)
        self._logged: set[str] = set()

    def look(self) -> None:
        """Compare positions, ends and stops, after the ends were requested."""
        progress = self._progress
        for shard, stop in (progress.stops or {}).items():
            end = progress.ends.get(shard, stop)
            position = progress.positions.get(shard, -1)
            waited_s = self._waits.duration_s(shard, position=position, end=end, stop=stop)
            if waited_s is None:
                self._logged.discard(shard)
            elif waited_s >= self._limit_s:
                progress.stop_before(shard, end)
                facts = self._facts(shard, end=end, stop=stop)
                log_event(_logger, "kafka_transaction_left_unread", level=logging.WARNING, **facts)
            elif waited_s >= _LOG_AFTER_S and shard not in self._logged:
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
