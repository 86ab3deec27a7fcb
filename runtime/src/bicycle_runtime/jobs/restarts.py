"""When a job that lost its workers, or Spark itself, is started again: its restart strategy.

Errors of user code, of input and of options are not met by starting again: they end the job, and
``on_error`` is there for records that fail. Each sealed epoch refills the attempts, so that a job
which runs for months is not ended by the sum of its bad days.
"""

from __future__ import annotations

from dataclasses import replace

from bicycle_sdk.graph import RestartKind, RestartStrategy

__all__ = ["Restarts"]


class Restarts:
    """Counts the restarts of one run.

    Args:
        strategy: The job's restart strategy.
        attempt_count: Attempts in place of the strategy's; None keeps them.
    """

    def __init__(self, strategy: RestartStrategy, attempt_count: int | None = None) -> None:
        if attempt_count is not None:
            strategy = replace(strategy, max_attempts=attempt_count)
        self._strategy = strategy
        self._epoch = -1
        self.used_count = 0

    def delay_ms(self, *, epoch: int) -> int | None:
        """Return how long to wait before the next start; None when the job has to fail.

        Args:
            epoch: The last sealed epoch; progress since the last failure refills the attempts.
        """
        strategy = self._strategy
        if epoch > self._epoch:
            self._epoch, self.used_count = epoch, 0
        if strategy.kind is RestartKind.NONE or self.used_count >= strategy.max_attempts:
            return None
        self.used_count += 1
        if strategy.kind is RestartKind.EXPONENTIAL_BACKOFF:
            return strategy.delay_ms << (self.used_count - 1)
        return strategy.delay_ms
