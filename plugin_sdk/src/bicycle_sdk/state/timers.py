"""Timers: a function asks to be called again for a key at a time.

There is one timer per key, time and domain. Setting and deleting take effect at once; timers fire
by time, then by key, each once. ``TimerQueue`` keeps the timers of one domain for all keys; the
owner of the time decides when they fire.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, Protocol

from bicycle_sdk.errors import StateDefinitionError
from bicycle_sdk.state.descriptors import TimeDomain
from bicycle_sdk.state.part_order import natural_order

__all__ = ["SetTimers", "Timer", "TimerQueue", "TimerScope", "TimerService"]

_FEW = 16  # From so many on, and one of so many of all, times that are due are sorted at once.
_STALE_MIN = 64  # So many deleted timers may be filed before it is worth to file all again.
_TIME_MAX = 2**63 - 1
_TIME_MIN = -_TIME_MAX - 1


class Timer(NamedTuple):
    """A timer: it fires for ``key`` once the time of its domain reaches ``time_ms``."""

    domain: TimeDomain
    time_ms: int
    key: Any


class TimerScope(Protocol):
    """Knows whose timers are meant, and how late it is."""

    def state_key(self) -> Hashable:
        """Return the key of the current record or timer."""

    def current_watermark(self) -> int:
        """Return the watermark in ms."""

    def current_processing_time(self) -> int:
        """Return the wall clock in ms."""


class SetTimers(Protocol):
    """The timers of one domain, to be set and deleted."""

    def set(self, key: Hashable, time_ms: int) -> None:
        """Set a timer; harmless when it is set already."""

    def delete(self, key: Hashable, time_ms: int) -> None:
        """Delete a timer, if it exists."""


class TimerQueue:
    """The timers of one domain for all keys.

    Args:
        domain: Which time they wait for.
        order: Returns the sort key of keys at equal times.
    """

    def __init__(self, domain: TimeDomain, order: Callable[[Any], Any] = natural_order) -> None:
        self.domain = domain
        self._order = order
        self._times: list[int] = []  # A heap of the times in ``_by_time``.
        # Keys by time, perhaps of deleted timers; of the times in ``_sorted`` heaps with orders.
        self._by_time: dict[int, list[Any]] = {}
        self._sorted: set[int] = set()
        self._count = self._pushed = 0
        self._is_filed = True
        # No timer that was here when ``is_due`` was last asked, or was set since, is earlier.
        self.earliest_ms = _TIME_MIN
        self.waiting: dict[tuple[Any, int], None] = {}
        # The changes since the last save; true for new entries, of which nothing is saved.
        self.touched: dict[tuple[Any, int], bool] = {}

    def set(self, key: Hashable, time_ms: int) -> None:
        """Set a timer; harmless when it is set already."""
        entry_key = (key, time_ms)
        waiting = self.waiting
        count = len(waiting)
        waiting[entry_key] = None
        if len(waiting) == count:  # hot path: looked up once, whether it is there or not.
            return
        keys = self._by_time.get(time_ms)
        if keys is None or not self._is_filed or time_ms in self._sorted:
            self._file(key, time_ms)
        else:  # hot path: many timers have one time.
            keys.append(key)
            self._count += 1
        self.touched.setdefault(entry_key, True)
        if time_ms < self.earliest_ms:  # noqa: PLR1730  # hot path: a third of the time of min()
            self.earliest_ms = time_ms

    def delete(self, key: Hashable, time_ms: int) -> None:
        """Delete a timer, if it exists."""
        entry_key = (key, time_ms)
        if entry_key in self.waiting:
            del self.waiting[entry_key]
            self._note_gone(entry_key)

    def load_all(self, entry_keys: Sequence[tuple[Hashable, int]]) -> None:
        """Set timers that are sealed already, by key and time.

        They are sorted by time at the first read.
        """
        self.waiting.update(dict.fromkeys(entry_keys))
        self._is_filed = False

    def unload(self, key: Hashable, time_ms: int) -> None:
        """Take a sealed deletion over."""
        self.waiting.pop((key, time_ms), None)

    def pop_due(self, time_ms: int) -> Timer | None:
        """Take out and return the first timer that is due at a time, or None."""
        first = self.peek()
        if first is None or first[1] > time_ms:
            return None
        due_ms = first[1]
        heappop(self._by_time[due_ms])
        self._count -= 1
        entry_key = (first[2], due_ms)
        del self.waiting[entry_key]
        self._note_gone(entry_key)
        return first

    def take_due(self, time_ms: int) -> list[Timer]:
        """Take out and return all timers that are due at a time, in order."""
        found = []
        domain, waiting, touched = self.domain, self.waiting, self.touched
        # hot path: 300 ns a timer instead of 2,400 one by one; a call of ``Timer`` takes 150 more.
        new = tuple.__new__
        for due_ms, keys in self._due_keys(time_ms):
            for key in keys:
                entry_key = (key, due_ms)
                if entry_key in waiting:
                    del waiting[entry_key]
                    if not touched.pop(entry_key, False):
                        touched[entry_key] = False
                    found.append(new(Timer, (domain, due_ms, key)))
        return found

    def in_order(self, entry_keys: Iterable[tuple[Any, int]]) -> list[Timer]:
        """Return timers of this domain, given by key and time, in the order of the queue."""
        found = list(entry_keys)
        keys = sorted(dict.fromkeys(key for key, _ in found), key=self._order)
        rank = {key: number for number, key in enumerate(keys)}
        domain, new = self.domain, tuple.__new__
        ordered = sorted([(time_ms, rank[key], key) for key, time_ms in found])
        return [new(Timer, (domain, time_ms, key)) for time_ms, _, key in ordered]

    def due_run(self, time_ms: int) -> list[Timer]:
        """Return timers that are due at a time, in order; each waits until ``is_taken``.

        The remaining timers are passed to ``file_again``, at the latest before a timer by which
        ``earliest_ms`` is as early, since one was set, or earlier. A queue that pops timers one by
        one has no runs.
        """
        domain = self.domain
        found = [
            Timer(domain, due_ms, key) for due_ms, keys in self._due_keys(time_ms) for key in keys
        ]
        self.earliest_ms = _TIME_MAX
        return found

    def is_taken(self, timer: Timer) -> bool:
        """Remove a timer of a streak; return whether it was present and not deleted."""
        entry_key = (timer[2], timer[1])
        if entry_key not in self.waiting:
            return False
        del self.waiting[entry_key]
        self._note_gone(entry_key)
        return True

    def file_again(self, timers: Iterable[Timer]) -> None:
        """End a run: timers of it that were not taken wait for their turns."""
        self.earliest_ms = _TIME_MIN
        for _, time_ms, key in timers:
            self._file(key, time_ms)

    def _due_keys(self, time_ms: int) -> Iterator[tuple[int, list[Any]]]:
        """Remove due times from the index, and yield each with its keys, in order."""
        if not self._is_filed:
            self._file_again()
        for due_ms in self._due_times(time_ms):
            filed = self._by_time.pop(due_ms)
            self._count -= len(filed)
            keys = filed
            if due_ms in self._sorted:
                self._sorted.discard(due_ms)
                keys = [key for _, _, key in sorted(filed)]
            elif len(filed) > 1:
                keys = sorted(dict.fromkeys(filed), key=self._order)
            yield due_ms, keys

    def _due_times(self, time_ms: int) -> list[int]:
        """Take out and return the times of timers that are due, in order."""
        times = self._times
        found: list[int] = []
        while times and times[0] <= time_ms:
            if len(found) > _FEW and len(found) * _FEW > len(times):
                times.sort()  # Which is a heap, too.
                end = bisect_right(times, time_ms)
                found += times[:end]
                del times[:end]
                break
            found.append(heappop(times))
        return found

    def is_due(self, time_ms: int) -> bool:
        """Return whether a timer is due at a time. From then on ``earliest_ms`` can be trusted."""
        first = self.peek()
        self.earliest_ms = _TIME_MAX if first is None else first.time_ms
        return first is not None and first.time_ms <= time_ms

    def peek(self) -> Timer | None:
        """Return the first timer, or None."""
        if not self._is_filed:
            self._file_again()
        waiting = self.waiting
        while self._times:
            time_ms = self._times[0]
            if time_ms not in self._sorted:
                self._sort(time_ms)
            keys = self._by_time[time_ms]
            while keys and (keys[0][2], time_ms) not in waiting:
                heappop(keys)
                self._count -= 1
            if keys:
                return Timer(self.domain, time_ms, keys[0][2])
            self._drop_time()
        return None

    def next_time_ms(self) -> int | None:
        """Return the time of the first timer, or None."""
        first = self.peek()
        return None if first is None else first.time_ms

    def keep_only(self, keys: Container[Any]) -> None:
        """Forget the timers of other keys, as if there had never been any."""
        for key, time_ms in [entry_key for entry_key in self.waiting if entry_key[0] not in keys]:
            self.unload(key, time_ms)

    def reset(self) -> None:
        """Forget all timers, sealed or not."""
        self.waiting.clear()
        self.touched.clear()
        self._file_again()

    def times_of(self, key: Hashable) -> list[int]:
        """Return the times for which a key has timers, in order."""
        return sorted(time_ms for owner, time_ms in self.waiting if owner == key)

    def _file(self, key: Hashable, time_ms: int) -> None:
        """Put a key to its time, unless all are filed again later."""
        if not self._is_filed:
            return
        if self._count > 2 * len(self.waiting) + _STALE_MIN:
            self._is_filed = False
            return
        self._count += 1
        keys = self._by_time.get(time_ms)
        if keys is None:
            self._by_time[time_ms] = [key]
            heappush(self._times, time_ms)
        elif time_ms in self._sorted:
            self._pushed += 1  # So that keys are never compared.
            heappush(keys, (self._order(key), self._pushed, key))
        else:
            keys.append(key)

    def _sort(self, time_ms: int) -> None:
        """Put the keys of a time in order."""
        order, keys = self._order, self._by_time[time_ms]
        found = [(order(key), -index, key) for index, key in enumerate(dict.fromkeys(keys))]
        heapify(found)
        self._count -= len(keys) - len(found)
        self._by_time[time_ms] = found
        self._sorted.add(time_ms)

    def _drop_time(self) -> None:
        """Forget the first time, with the keys that are left there."""
        time_ms = heappop(self._times)
        self._count -= len(self._by_time.pop(time_ms))
        self._sorted.discard(time_ms)

    def _file_again(self) -> None:
        """Index all timers by time."""
        self._by_time = {}
        for key, time_ms in self.waiting:
            self._by_time.setdefault(time_ms, []).append(key)
        self._times = list(self._by_time)
        heapify(self._times)
        self._sorted.clear()
        self._count = len(self.waiting)
        self._is_filed = True

    def _note_gone(self, entry_key: tuple[Any, int]) -> None:
        """Note a removed timer; a timer that was never saved needs no note."""
        if not self.touched.pop(entry_key, False):
            self.touched[entry_key] = False


class TimerService:
    """Sets and deletes timers of the current key. ``ctx.timer_service`` of a process function."""

    __slots__ = ("_event", "_processing", "_scope")

    def __init__(self, scope: TimerScope, *, event: SetTimers, processing: SetTimers) -> None:
        self._scope = scope
        self._event = event
        self._processing = processing

    @property
    def event_timers(self) -> SetTimers:
        """The event-time timers by key, for functions of the SDK itself."""
        return self._event

    def register_event_time_timer(self, time_ms: int) -> None:
        """Request ``on_timer`` once the watermark has reached ``time_ms``.

        Every record at or before that time has been seen then. It is called after the records of
        an epoch, for a time that has passed already as well.
        """
        self._event.set(self._scope.state_key(), _check(time_ms))

    def register_processing_time_timer(self, time_ms: int) -> None:
        """Request ``on_timer`` once the clock has reached ``time_ms``."""
        self._processing.set(self._scope.state_key(), _check(time_ms))

    def delete_event_time_timer(self, time_ms: int) -> None:
        """Delete the timer of the current key at this time, if it exists."""
        self._event.delete(self._scope.state_key(), time_ms)

    def delete_processing_time_timer(self, time_ms: int) -> None:
        """Delete the timer of the current key at this time, if it exists."""
        self._processing.delete(self._scope.state_key(), time_ms)

    def current_watermark(self) -> int:
        """Return the watermark in ms: up to this event time input is complete."""
        return self._scope.current_watermark()

    def current_processing_time(self) -> int:
        """Return the wall clock in ms. An epoch that is computed again sees another value."""
        return self._scope.current_processing_time()


def _check(time_ms: Any) -> int:
    if type(time_ms) is not int or not _TIME_MIN <= time_ms <= _TIME_MAX:
        raise StateDefinitionError(
            state="timer",
            problem=f"{time_ms!r} is not a time in whole milliseconds",
            hint="give an int, such as ctx.timestamp + 60_000",
        )
    return time_ms
