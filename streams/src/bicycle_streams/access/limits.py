"""Limits of rate: how much one token, or one address, may request.

Each limit is a token bucket: a request removes one token, and is rejected while the bucket is
empty. Callers on this machine that need no token are not limited, because they can read the files
anyway.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from bicycle_streams.access.errors import RATE_EXCEEDED
from bicycle_streams.access.roles import LOCAL, Identity

_KEYS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRate:
    """So many at once, and so many a second after that."""

    burst: int
    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """The rate limits of one token, or of one address without a token.

    Attributes:
        reads: Requests that change nothing.
        writes: Requests that may change something.
        failures: Invalid tokens of one address.
    """

    reads: RequestRate = RequestRate(burst=200, per_second=20)
    writes: RequestRate = RequestRate(burst=30, per_second=2)
    failures: RequestRate = RequestRate(burst=10, per_second=1 / 12)


class Limits:
    """Counts requests.

    Args:
        options: How many are answered.
        seconds: A clock that does not go back, in s.
    """

    def __init__(
        self, options: LimitOptions, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._seconds = seconds
        self._stores: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def take(self, identity: Identity, address: str, *, is_write: bool) -> None:
        """Count one request.

        Raises:
            RATE_EXCEEDED: it is one too many.
        """
        if identity == LOCAL:
            return
        rate = self._options.writes if is_write else self._options.reads
        who = identity.token or f"{identity.name}@{address}"
        self._take("writes" if is_write else "reads", who, rate)

    def fail(self, address: str) -> None:
        """Count an invalid token; valid ones of the same address are still accepted.

        Raises:
            RATE_EXCEEDED: it is one too many.
        """
        self._take("failures", address, self._options.failures)

    def _take(self, kind: str, who: str, rate: RequestRate) -> None:
        now, key = self._seconds(), (kind, who)
        left, at = self._stores.pop(key, (float(rate.burst), now))
        left = min(rate.burst, left + (now - at) * rate.per_second)
        self._stores[key] = (max(left - 1, 0.0) if left >= 1 else left, now)
        if len(self._stores) > _KEYS_MAX:
            self._stores.popitem(last=False)
        if left < 1:
            raise RATE_EXCEEDED(kind=kind, wait_s=max(1, math.ceil((1 - left) / rate.per_second)))
