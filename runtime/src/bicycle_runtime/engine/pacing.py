"""How much the next epoch may take: small when idle, large under load, never over the limits."""

from __future__ import annotations

from bicycle_runtime.engine.options import EngineOptions

__all__ = ["Pacer"]

_FIRST_BYTES = 1 << 20
_FIRST_RECORDS = 50_000
_GROWTH_MAX = 4.0
_SHRINK_MAX = 0.25


class Pacer:
    """Adapts the budget of epochs so that a full one takes about ``epoch_target_ms``.

    In batch mode nobody waits for an epoch: each may take all that the limits allow.

    Only epochs that used most of their budget teach anything; a small one says nothing about a
    large one.
    """

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        if options.is_batch:
            self.byte_count = options.max_bytes_per_epoch
            self.record_count = options.max_records_per_epoch
            return
        self.byte_count = min(_FIRST_BYTES, options.max_bytes_per_epoch)
        self.record_count = min(_FIRST_RECORDS, options.max_records_per_epoch)

    def learn(self, *, duration_ms: float, has_backlog: bool) -> None:
        """Take note of an epoch that has just run.

        Args:
            duration_ms: How long it took, above 0.
            has_backlog: Whether input was left when it was planned.
        """
        if self._options.is_batch:
            return
        factor = self._options.epoch_target_ms / max(duration_ms, 1.0)
        if not has_backlog and factor > 1:
            return
        factor = min(max(factor, _SHRINK_MAX), _GROWTH_MAX)
        self.byte_count = _within(
            self.byte_count * factor, _FIRST_BYTES, self._options.max_bytes_per_epoch
        )
        self.record_count = _within(
            self.record_count * factor, _FIRST_RECORDS, self._options.max_records_per_epoch
        )


def _within(value: float, low: int, high: int) -> int:
    return int(min(max(value, min(low, high)), high))
