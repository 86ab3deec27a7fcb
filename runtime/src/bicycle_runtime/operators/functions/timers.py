"""Firing of a function's timers: in order, each once, until no timer is due.

Event-time timers fire once the watermark has reached them, then processing-time timers; timers that
``on_timer`` sets for a past time fire in the same round. A failure is settled by the operator's
policy, with the key and the time of the timer in place of a record.
"""

from __future__ import annotations

import inspect
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from bicycle_runtime.base.user_code import users_error
from bicycle_runtime.operators.batch import NO_INPUT, Batch, ExchangeLineage, without_gaps
from bicycle_runtime.operators.errors import ENDLESS_TIMERS, RUNAWAY_TIMERS
from bicycle_runtime.operators.functions.operator import Advance, as_sequences
from bicycle_runtime.operators.user_calls.batches import go_through
from bicycle_runtime.operators.user_calls.policy import RecordPolicy
from bicycle_runtime.operators.user_calls.user_functions import run, run_watched
from bicycle_sdk.contexts import WATERMARK_MAX, WATERMARK_MIN
from bicycle_sdk.state import Timer

if TYPE_CHECKING:
    from bicycle_runtime.operators.functions.keyed_contexts import KeyedContext

_LAST_FIRINGS_MAX = 10_000  # Of timers of one key that were set when all input had ended.
_FIRINGS_MAX = 10_000_000  # Of timers of one key in one round.
_LISTS = frozenset({list, tuple})
_ENTRY_KEY = itemgetter(2, 1)
_UNCOUNTED_PART = 10  # Timers are counted by key only after this part of them has fired.


class FiresEach(Protocol):
    """A function that handles many timers in one call, as in ``BuiltInFunction``."""

    fires_in_context: bool

    @property
    def is_complete(self) -> bool:
        """Return whether no record waits for ``complete_each``."""

    def complete_each(self, timers: Sequence[Timer], due_ms: int) -> Iterable[tuple[Any, int]]:
        """Take timers up to a time; return the key and time of each result."""

    def fire_each(self, timers: Iterable[tuple[Any, int]], results: list[Any]) -> None:
        """Fire timers, given by key and time."""


class TimerRound:
    """One round of firing.

    Args:
        context: The owner of the timers, and the argument of ``on_timer``.
        on_timer: The function's hook.
        function: Its name, for errors.
        policy: Settles failures.
        advance: How far time has come.
        due_ms: Timers of event time up to here are due.
        follows_time: The watermark that ``on_timer`` sees is the time of the timer.
        firings_max: So many timers of one key may fire; a function that sets timers for past times
            would never end.
    """

    def __init__(
        self, context: KeyedContext, on_timer: Callable[..., Any], *, function: str,
        policy: RecordPolicy, advance: Advance, due_ms: int, follows_time: bool = False,
        firings_max: int = _FIRINGS_MAX,
    ) -> None:  # fmt: skip
        self._context = context
        self._on_timer = on_timer
        self._function = function
        self._policy = policy
        self._advance = advance
        self._due_ms = due_ms
        self._follows_time = follows_time
        self._values: list[Any] = []
        self._times: list[int | None] = []
        self._is_last = advance.watermark == WATERMARK_MAX
        # The timers that the epoch had set or deleted before: a timer outside them is of this
        # round.
        self._before = set(context.timers.event.touched) if self._is_last else set()
        self._set_late: Counter[Any] = Counter()
        self._firings_max = firings_max
        self._count = 0
        self._by_key: Counter[Any] = Counter()
        self._ready: deque[Timer] = deque()  # They have been taken, and wait for their calls.

    def fire(self, fires_each: FiresEach | None = None, *, one_by_one: bool = False) -> Batch:
        """Call ``on_timer`` for each due timer, and return the outputs with their times.

        Args:
            fires_each: Prepares many timers of event time in one call, if present.
            one_by_one: Whether ``on_timer`` is called for each of these then, and not
                ``fire_each`` for all of them.
        """
        self._context.follow(())
        if fires_each is not None:
            queue = self._context.timers.event
            due = queue.take_due(self._due_ms)
            timers = queue.in_order(fires_each.complete_each(due, self._due_ms))
            self._policy.total += max(len(due) - len(timers), 0)
            if one_by_one:
                self._ready.extend(timers)
            else:
                self._fire_all(fires_each, timers)
        elif not self._is_last:  # Then it counts which timers were set in the round.
            self._fire_run()
        timer = self._next()
        while timer is not None:
            self._turn_to(timer)
            try:
                timer = self._fire_from(timer)
            finally:
                self._context.end_fired()
        return Batch(self._values, ExchangeLineage(None, without_gaps(self._times)))

    def _fire_all(self, fires_each: FiresEach, timers: Sequence[Timer]) -> None:
        """Fire event-time timers in one call; the call sets no timer."""
        results: list[Any] = []
        calls = map(self._turned_to if fires_each.fires_in_context else _ENTRY_KEY, timers)

        def again(index: int) -> Callable[[], Any]:
            self._turn_to(timers[index])
            return partial(self._call, timers[index])

        async def settle(error: BaseException, index: int, call: Callable[[], Any]) -> Any:
            return await self._settle(error, timers[index], call)

        self._policy.total += len(timers)
        try:
            go_through(partial(fires_each.fire_each, calls, results), results, settle, again)
            if _LISTS.issuperset(map(type, results)):
                self._values += chain.from_iterable(results)
                for (_, time_ms, _), result in zip(timers, results, strict=True):
                    self._times += [time_ms] * len(result)
                return
            for timer, result in zip(timers, results, strict=True):
                if type(result) not in _LISTS and inspect.isawaitable(result):
                    self._turn_to(timer)
                    run_watched(self._fire_async(timer, result, is_alone=True))
                elif result:  # hot path: most results are empty.
                    self._take(timer, result)
        finally:
            self._context.end_fired()

    def _fire_run(self) -> None:
        """Fire due event-time timers until one is set that precedes others."""
        queue = self._context.timers.event
        timers = queue.due_run(self._due_ms)
        done = 0
        later: tuple[Timer, Any] | None = None
        try:
            # hot path: half of the time that timers take which are popped one by one.
            for timer in timers:
                if queue.earliest_ms <= timer[1]:
                    break
                done += 1
                if not queue.is_taken(timer):
                    continue
                self._note_fired(timer)
                self._turn_to(timer)
                result = self._result_of(timer)
                if type(result) in _LISTS:
                    if result:
                        self._take(timer, result)
                elif inspect.isawaitable(result):
                    later = timer, result
                    break
                else:
                    self._take(timer, result)
        finally:
            queue.file_again(timers[done:])
            self._context.end_fired()
        if later is not None:
            self._turn_to(later[0])
            try:
                run_watched(self._fire_async(*later))
            finally:
                self._context.end_fired()

    def _turned_to(self, timer: Timer) -> tuple[Any, int]:
        self._turn_to(timer)
        return timer[2], timer[1]

    def _fire_from(self, timer: Timer) -> Timer | None:
        """Fire one timer; when its hook is ``async``, all that are due, in one event loop."""
        call = partial(self._call, timer)
        self._policy.total += 1
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001  # the boundary to user code
            result = run(self._settle(users_error(error), timer, call))
        if type(result) not in _LISTS and inspect.isawaitable(result):
            run_watched(self._fire_async(timer, result))
            return None
        self._take(timer, result)
        return self._next()

    def _result_of(self, timer: Timer) -> Any:
        """Return a timer's outputs, or the policy's outputs for its failure."""
        self._policy.total += 1
        try:
            return self._on_timer(timer[1], self._context)
        except BaseException as error:  # noqa: BLE001  # the boundary to user code
            failed = users_error(error)
            return run(self._settle(failed, timer, partial(self._call, timer)))

    async def _fire_async(self, timer: Timer, awaitable: Any, *, is_alone: bool = False) -> None:
        waiting: Timer | None = timer
        result = awaitable
        while waiting is not None:
            call = partial(self._call, waiting)
            try:
                result = call() if result is None else result
                result = await result if inspect.isawaitable(result) else result
            except BaseException as error:  # noqa: BLE001  # the boundary to user code
                result = await self._settle(users_error(error), waiting, call)
            self._take(waiting, result)
            result, waiting = None, None if is_alone else self._next()
            if waiting is not None:
                self._policy.total += 1
                self._turn_to(waiting)

    def _turn_to(self, timer: Timer) -> None:
        context, advance = self._context, self._advance
        if not self._follows_time:
            context.set_fired(timer, advance.previous, self._time_of(timer))
            return
        # Neither watermark nor TTL may show how far the epoch has come.
        context.set_fired(timer, WATERMARK_MIN, self._time_of(timer))
        context.watermark = timer.time_ms if timer.domain == "event" else advance.watermark

    def _call(self, timer: Timer) -> Any:
        return self._on_timer(timer.time_ms, self._context)

    async def _settle(self, error: BaseException, timer: Timer, call: Callable[[], Any]) -> Any:
        self._stand_for(timer)
        return await self._policy.settle(error, 0, call)

    def _take(self, timer: Timer, result: Any) -> None:
        outputs: Sequence[Any] = result
        if type(result) not in _LISTS:
            self._stand_for(timer)
            (outputs,) = as_sequences([result], function=self._function, policy=self._policy)
        if outputs:
            self._values += outputs
            self._times += [self._time_of(timer)] * len(outputs)

    def _stand_for(self, timer: Timer) -> None:
        times = [timer.time_ms] if timer.domain == "event" else None
        self._policy.batch = Batch([timer], ExchangeLineage(None, times), ordinal=NO_INPUT)

    def _next(self) -> Timer | None:
        if self._ready:
            return self._ready.popleft()
        timers, advance = self._context.timers, self._advance
        is_of_round = self._is_last and self._is_set_in_round(timers.event.peek())
        timer = timers.event.pop_due(self._due_ms)
        if timer is None:
            timer = timers.processing.pop_due(advance.now_ms)
        elif self._is_last:
            self._before.discard((timer.key, timer.time_ms))
        if timer is not None:
            self._note_fired(timer)
        if timer is not None and is_of_round:
            self._check_last(timer)
        return timer

    def _note_fired(self, timer: Timer) -> None:
        self._count += 1
        if self._count * _UNCOUNTED_PART > self._firings_max:
            self._check_key(timer)

    def _check_key(self, timer: Timer) -> None:
        """Raise an error if a single key keeps the round busy."""
        self._by_key[timer.key] += 1
        if self._by_key[timer.key] > self._firings_max:
            advance, is_event = self._advance, timer.domain == "event"
            raise RUNAWAY_TIMERS(
                operator=self._context.task_info.operator_name,
                function=self._function,
                key=repr(timer.key),
                count=self._firings_max,
                domain=timer.domain,
                time_ms=timer.time_ms,
                reached_ms=advance.watermark if is_event else advance.now_ms,
            )

    def _check_last(self, timer: Timer) -> None:
        """Take note that a timer has fired which was set in this round, the last one."""
        self._set_late[timer.key] += 1
        if self._set_late[timer.key] > _LAST_FIRINGS_MAX:
            raise ENDLESS_TIMERS(
                operator=self._context.task_info.operator_name,
                function=self._function,
                key=repr(timer.key),
                count=_LAST_FIRINGS_MAX,
            )

    def _is_set_in_round(self, timer: Timer | None) -> bool:
        if timer is None:
            return False
        entry_key = (timer.key, timer.time_ms)
        return entry_key in self._context.timers.event.touched and entry_key not in self._before

    def _time_of(self, timer: Timer) -> int | None:
        """Return the event time of a timer's outputs, or None if unknown.

        Results of processing time have no event time; they get the first time behind the earlier
        watermark, so that they are never late.
        """
        if timer.domain == "event":
            return timer.time_ms
        if self._advance.previous > WATERMARK_MIN:
            return self._advance.previous + 1
        return None
