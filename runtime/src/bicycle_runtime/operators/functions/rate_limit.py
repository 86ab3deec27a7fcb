"""An operator that limits the rate of records: one token bucket in each subtask.

A record takes a token. Tokens come at an even rate, and at most ``burst`` of them wait for records,
so that after a pause so many may pass at once. A bucket is full when a worker process begins; no
checkpoint holds it, since time passes while a job is down.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic

from bicycle_runtime.operators.batch import Batch, PickLineage
from bicycle_runtime.operators.functions.contexts import WorkerContext
from bicycle_runtime.operators.functions.operator import Operator
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.operators.user_calls.policy import RecordPolicy
from bicycle_runtime.operators.user_calls.waits import WAITS

# Records are emitted in pieces of at least this time, since each piece costs about as much as a
# record.
_PIECE_S = 0.01
_EXACTNESS = 1e-9  # of sums of fractions
_WAIT_MIN_S = 1e-9  # A shorter wait may be below the clock's resolution, and never end.


class TokenBucket:
    """Tokens that come at an even rate.

    Args:
        per_second: How many come.
        burst: How many it holds, 1 or more; it begins full.
        now: Reads a clock that only goes forward, in seconds.
        wait: Waits so many seconds of that clock; None waits in real time.

    Example:
        >>> from bicycle_sdk.clock import ManualClock
        >>> clock = ManualClock()
        >>> bucket = TokenBucket(
        ...     2, 3, now=clock.monotonic, wait=lambda s: clock.advance(round(s * 1_000))
        ... )
        >>> [bucket.take(5), bucket.take(2), clock.monotonic()]
        [3, 1, 0.5]
    """

    def __init__(
        self,
        per_second: float,
        burst: int,
        *,
        now: Callable[[], float] = monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._piece = min(burst, max(1, int(per_second * _PIECE_S)))
        self.before_wait: Callable[[], None] | None = None  # Passing records do not wait for it.
        self.follow(now, _wait if wait is None else wait)

    def follow(self, now: Callable[[], float], wait: Callable[[float], object]) -> None:
        """Go by this clock from now on, with a full bucket."""
        self._now, self._wait = now, wait
        self._tokens, self._seen = float(self._burst), now()

    def take(self, wanted: int) -> int:
        """Wait until records may pass, take their tokens; return a count up to ``wanted``."""
        enough = min(wanted, self._piece)
        self._fill()
        if self._tokens < enough - _EXACTNESS and self.before_wait is not None:
            self.before_wait()
            self._fill()
        while self._tokens < enough - _EXACTNESS:
            self._wait(max((enough - self._tokens) / self._per_second, _WAIT_MIN_S))
            self._fill()
        count = min(wanted, int(self._tokens + _EXACTNESS))
        self._tokens -= count
        return count

    async def reserve(self, count: int) -> None:
        """Take the tokens of records, and wait until they come, while other calls run."""
        self._fill()
        self._tokens -= count
        if self._tokens >= -_EXACTNESS:
            return
        seconds = max(-self._tokens / self._per_second, _WAIT_MIN_S)
        try:
            if self._wait is _wait:
                WAITS.tell(seconds)
                await asyncio.sleep(seconds)
            else:
                self._wait(seconds)
        except asyncio.CancelledError:
            self._tokens += count
            raise

    def _fill(self) -> None:
        now = self._now()
        self._tokens = min(self._tokens + (now - self._seen) * self._per_second, float(self._burst))
        self._seen = now


def _wait(seconds: float) -> None:
    WAITS.tell(seconds)
    threading.Event().wait(seconds)


class RateLimitOperator(Operator):
    """An operator that limits the rate of records; excess records delay the task.

    The subtasks share the rate and the burst evenly. Records that may pass are emitted through the
    chain at once, by ``emit``, which the chain sets; the last piece of a batch is the result of
    ``apply``. If the next operator has several calls in flight, it starts them at this rate, so
    that calls run while others wait: then ``is_handed_on``, and all records pass.
    """

    is_handed_on = False

    def __init__(self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext) -> None:
        super().__init__(spec, policy, context)
        details, parallelism = spec.vertex.details, spec.vertex.parallelism
        self.bucket = TokenBucket(
            details["per_second"] / parallelism, max(1, details["burst"] // parallelism)
        )
        self.emit: Callable[[Batch], None] = self._stands_in_no_chain

    def apply(self, batch: Batch) -> Batch:
        if self.is_handed_on:
            return batch
        total = len(batch.values)
        start = 0
        while True:
            end = start + self.bucket.take(total - start)
            piece = batch.values if end - start == total else batch.values[start:end]
            output = Batch(piece, PickLineage(batch.lineage, partial(range, start, end)))
            if end == total:
                return output
            self.records_out += end - start
            self.emit(output)
            start = end

    def took(self, duration_ns: int, record_count: int) -> None:
        """Count no time: it is that of waiting, and of the operators behind it."""

    def _stands_in_no_chain(self, _: Batch) -> None:
        raise AssertionError(f"operator {self.spec.uid!r} is not in a chain")
