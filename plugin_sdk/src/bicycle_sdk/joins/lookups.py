"""The lookup join: rows are completed from another system, with a cache.

The cache belongs to one subtask and is no state: after a crash it is empty, and lookups are
repeated.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bicycle_sdk.contexts import Context
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.functions import AsyncIOFunction
from bicycle_sdk.windows.assigners import Duration, duration_ms

if TYPE_CHECKING:
    import asyncio

__all__ = ["Answers", "LookupCache", "LookupJoin", "LookupOptions"]

_SIZE_MAX = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupCache:
    """The size of each subtask's cache of answers, and their time to live."""

    size: int = 10_000
    ttl: Duration = 300_000

    def __post_init__(self) -> None:
        if not 0 <= self.size <= _SIZE_MAX:
            raise StreamDefinitionError(
                call="LookupCache",
                problem=f"size={self.size}, expected 0..{_SIZE_MAX}",
                hint="give a number of answers within the bounds; 0 keeps none",
            )
        duration_ms("ttl", self.ttl)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupOptions:
    """The options of a lookup join.

    ``key`` returns the lookup key of a row, ``lookup`` returns the answer or None, ``join`` makes
    the result. ``keeps_left`` emits rows without an answer, too.
    """

    key: Callable[[Any], Hashable]
    lookup: Callable[[Any], Any]
    join: Callable[[Any, Any], Any]
    keeps_left: bool
    cache: LookupCache


class Answers:
    """Answers by key: the ``size`` that were used last, each for ``ttl_ms``.

    Args:
        size: Most answers; 0 disables the cache.
        ttl_ms: How long one is good.
        clock: Returns the time in ms.
    """

    def __init__(self, size: int, ttl_ms: int, clock: Callable[[], int]) -> None:
        self._size, self._ttl_ms, self._clock = size, ttl_ms, clock
        self._kept: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Hashable) -> tuple[bool, Any]:
        """Return whether an answer is there that is still good, and the answer."""
        until_ms, answer = self._kept.get(key, (None, None))
        if until_ms is None:
            return False, None
        if until_ms <= self._clock():
            del self._kept[key]
            return False, None
        self._kept.move_to_end(key)
        return True, answer

    def keep(self, key: Hashable, answer: Any) -> None:
        """Cache an answer, and evict the least recently used one."""
        if self._size:
            self._kept[key] = (self._clock() + self._ttl_ms, answer)
            self._kept.move_to_end(key)
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)


@dataclass(slots=True)
class _Question:
    """A pending lookup, and its answer for the waiting rows.

    Callers take the answer from here, since a small cache may have evicted it before they resume.
    """

    lock: asyncio.Lock
    row_count: int = 0
    is_answered: bool = False
    answer: Any = None


class LookupJoin(AsyncIOFunction[Any, Any]):
    """A join of rows with looked-up data; concurrent rows of a key share a lookup."""

    def __init__(self, options: LookupOptions) -> None:
        self.options = options

    def open(self, ctx: Context) -> Any:
        """Start with an empty cache, and open the lookup function."""
        cache = self.options.cache
        # By the time of epochs: a cache then ages in a replay, or under a test's clock, as it did.
        self._answers = Answers(cache.size, duration_ms("ttl", cache.ttl), ctx.now)
        self._asking: dict[Hashable, _Question] = {}
        opening = getattr(self.options.lookup, "open", None)
        return None if opening is None else opening(ctx)

    def close(self) -> Any:
        """Close the lookup function."""
        closing = getattr(self.options.lookup, "close", None)
        return None if closing is None else closing()

    async def async_invoke(self, value: Any) -> list[Any]:
        """Return the row with its answer."""
        key = self.options.key(value)
        is_known, answer = self._answers.find(key)
        if not is_known:
            answer = await (self._ask(key) if self.options.cache.size else self._find(key))
        if answer is None and not self.options.keeps_left:
            return []
        result = self.options.join(value, answer)
        return [await result if inspect.isawaitable(result) else result]

    def timeout(self, value: Any) -> list[Any]:
        """Raise a failure for ``on_error`` after a time-out, instead of losing a row.

        Raises:
            TimeoutError: always.
        """
        raise TimeoutError(f"no answer within the time limit for {self.options.key(value)!r}")

    async def _ask(self, key: Hashable) -> Any:
        """Look up a key, or wait for a pending lookup of it; failures are not cached."""
        # Slow library on the start path of every plugin; a worker has it already.
        import asyncio

        question = self._asking.get(key)
        if question is None:
            question = self._asking[key] = _Question(asyncio.Lock())
        question.row_count += 1
        try:
            async with question.lock:
                if not question.is_answered:
                    question.answer, question.is_answered = await self._find(key), True
                    self._answers.keep(key, question.answer)
                    self._forget(key, question)  # Rows from now on look among the answers.
                return question.answer
        finally:
            question.row_count -= 1
            if not question.row_count:
                self._forget(key, question)

    async def _find(self, key: Hashable) -> Any:
        found = self.options.lookup(key)
        return await found if inspect.isawaitable(found) else found

    def _forget(self, key: Hashable, question: _Question) -> None:
        if self._asking.get(key) is question:
            del self._asking[key]
