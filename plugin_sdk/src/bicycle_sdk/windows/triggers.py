"""Triggers of windows. Without a trigger, a window fires when no record of it is expected.

A trigger is called at each record and at each timer that it registered, and returns a
``TriggerResult``. It keeps its state in the context, per key and window: a trigger object itself is
shared by all windows and keeps nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from bicycle_sdk.errors import MergeMissingError, StreamDefinitionError
from bicycle_sdk.windows.assigners import Duration, duration_ms, whole_count
from bicycle_sdk.windows.panes import Window

__all__ = [
    "ContinuousEventTimeTrigger",
    "CountTrigger",
    "EventTimeTrigger",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "can_merge",
]


class TriggerResult(Enum):
    """The action for a window: nothing, fire, fire and purge, or purge."""

    CONTINUE = "continue"
    FIRE = "fire"
    FIRE_AND_PURGE = "fire_and_purge"
    PURGE = "purge"

    @property
    def fires(self) -> bool:
        """Return whether the window emits a result."""
        return self in (TriggerResult.FIRE, TriggerResult.FIRE_AND_PURGE)

    @property
    def purges(self) -> bool:
        """Return whether the window's records go."""
        return self in (TriggerResult.PURGE, TriggerResult.FIRE_AND_PURGE)


class TriggerContext(Protocol):
    """The context of a trigger: time, timers and state per key and window.

    There is one timer per time and kind; setting it again has no effect. Event-time timers fire
    when input before their time is complete, so a timer at ``window.end`` fires with the window;
    processing-time timers fire in the first epoch at or after it. A timer in the past fires in the
    same epoch.
    """

    def current_watermark(self) -> int:
        """Return the event time in ms before which input is complete.

        For windows other than sessions that is 1 ms more than the watermark that functions see:
        a window is complete when this has reached ``window.end``.
        """

    def current_processing_time(self) -> int:
        """Return the recorded time of the epoch in ms."""

    def register_event_time_timer(self, time_ms: int) -> None:
        """Register a timer for ``on_event_time``."""

    def register_processing_time_timer(self, time_ms: int) -> None:
        """Register a timer for ``on_processing_time``."""

    def delete_event_time_timer(self, time_ms: int) -> None:
        """Take back a timer, if it exists."""

    def delete_processing_time_timer(self, time_ms: int) -> None:
        """Take back a timer, if it exists."""

    def get_state(self, name: str, default: Any = None) -> Any:
        """Return the saved value, or ``default``."""

    def save_state(self, name: str, value: Any) -> None:
        """Save a value: plain data."""


class Trigger(ABC):
    """The rule for when a window fires; derive from it for a custom rule.

    All methods are called on a worker and must not block. An exception in one of them fails the
    epoch; ``on_error`` does not apply.
    """

    @abstractmethod
    def on_element(
        self, value: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        """Answer to a record that was just put into the window. Called once per record."""

    def on_event_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Answer to an event-time timer. Called once per timer."""
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time_ms: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        """Answer to a processing-time timer. Called once per timer."""
        return TriggerResult.CONTINUE

    def on_merge(
        self, states: Sequence[Mapping[str, Any]], window: Window, ctx: TriggerContext
    ) -> None:
        """Set the state and the timers of a session that was merged from several.

        Called before ``on_element`` of the record that caused the merge. The new window starts
        without timers and state; a trigger without this method cannot be used with sessions.

        Args:
            states: The saved state of each old window, the earliest first.
            window: The new window.
            ctx: That of the new window.

        Raises:
            MergeMissingError: the class does not define this method.
        """
        raise MergeMissingError(owner=type(self).__qualname__, what="on_merge(states, window, ctx)")

    def on_expiry(self, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Decide about a window whose allowed lateness is over, before its removal.

        Called once per window of event time, in order of time.
        """
        return TriggerResult.CONTINUE

    def describe(self) -> str:
        """Return a word or two for plans and graphs."""
        return type(self).__name__


class EventTimeTrigger(Trigger):
    """Fires when the window is complete, and again after late records.

    ``early`` adds results before that, ``late`` sets how often results follow late records that are
    still allowed (by default once per epoch with such records).

    Example:
        >>> EventTimeTrigger().early(count=100).late(every=60_000).describe()
        'watermark, early every 100 records, late every 60000 ms'
    """

    def __init__(self) -> None:
        self._early: _Pace | None = None
        self._late: _Pace | None = None

    def early(self, *, every: Duration | None = None, count: int | None = None) -> EventTimeTrigger:
        """Return a trigger that also fires before the end.

        Args:
            every: Processing time from the first record to a result, and from then on.
            count: Records from one result to the next.
        """
        return self._with(early=_Pace("early", every=every, count=count), late=self._late)

    def late(self, *, every: Duration | None = None, count: int | None = None) -> EventTimeTrigger:
        """Return a trigger that emits results of late records less often.

        Results that are still pending are emitted when the allowed lateness ends.

        Args:
            every: Processing time from a late record to its result.
            count: Late records from one result to the next.
        """
        return self._with(early=self._early, late=_Pace("late", every=every, count=count))

    def on_element(
        self, value: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.save_state("pending", ctx.get_state("pending", 0) + 1)
        is_late = window.end <= ctx.current_watermark()
        pace = self._late if is_late else self._early
        if not is_late or pace is None:
            ctx.register_event_time_timer(window.end)
        return TriggerResult.CONTINUE if pace is None else pace.on_element(ctx)

    def on_event_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if self._early is not None:
            self._early.stop(ctx)
        return self._fire(ctx)

    def on_processing_time(
        self, time_ms: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.save_state("next", None)
        if not ctx.get_state("pending", 0):
            return TriggerResult.CONTINUE
        return self._fire(ctx)

    def on_merge(
        self, states: Sequence[Mapping[str, Any]], window: Window, ctx: TriggerContext
    ) -> None:
        ctx.save_state("pending", sum(state.get("pending", 0) for state in states))
        times = [state["next"] for state in states if state.get("next") is not None]
        if times:
            ctx.save_state("next", min(times))
            ctx.register_processing_time_timer(min(times))
        if self._late is None or window.end > ctx.current_watermark():
            ctx.register_event_time_timer(window.end)

    def on_expiry(self, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._fire(ctx) if ctx.get_state("pending", 0) else TriggerResult.CONTINUE

    def describe(self) -> str:
        paces = [pace.describe() for pace in (self._early, self._late) if pace is not None]
        return ", ".join(["watermark", *paces])

    def _fire(self, ctx: TriggerContext) -> TriggerResult:
        ctx.save_state("pending", 0)
        return TriggerResult.FIRE

    def _with(self, *, early: _Pace | None, late: _Pace | None) -> EventTimeTrigger:
        changed = EventTimeTrigger()
        changed._early, changed._late = early, late
        return changed


class _Pace:
    """The interval of early or late firings of an ``EventTimeTrigger``."""

    def __init__(self, name: str, *, every: Duration | None, count: int | None) -> None:
        if (every is None) == (count is None):
            raise StreamDefinitionError(
                call=name,
                problem="exactly one of every and count must be set",
                hint="set an interval of processing time or a number of records",
            )
        self.name = name
        self.every_ms = None if every is None else duration_ms("every", every)
        self.count = None if count is None else whole_count("count", count)

    def on_element(self, ctx: TriggerContext) -> TriggerResult:
        if self.count is not None:
            if ctx.get_state("pending", 0) < self.count:
                return TriggerResult.CONTINUE
            ctx.save_state("pending", 0)
            return TriggerResult.FIRE
        assert self.every_ms is not None
        if ctx.get_state("next") is None:
            moment = ctx.current_processing_time() + self.every_ms
            ctx.save_state("next", moment)
            ctx.register_processing_time_timer(moment)
        return TriggerResult.CONTINUE

    def stop(self, ctx: TriggerContext) -> None:
        moment = ctx.get_state("next")
        if moment is not None:
            ctx.delete_processing_time_timer(moment)
            ctx.save_state("next", None)

    def describe(self) -> str:
        what = f"{self.every_ms} ms" if self.count is None else f"{self.count} records"
        return f"{self.name} every {what}"


class CountTrigger(Trigger):
    """Fires at every ``count``-th record of the window since the last firing."""

    def __init__(self, count: int) -> None:
        self.count = whole_count("count", count)

    def on_element(
        self, value: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        seen = ctx.get_state("count", 0) + 1
        # None, not 0: a purged window that still has state is never removed.
        ctx.save_state("count", None if seen >= self.count else seen)
        return TriggerResult.FIRE if seen >= self.count else TriggerResult.CONTINUE

    def on_merge(
        self, states: Sequence[Mapping[str, Any]], window: Window, ctx: TriggerContext
    ) -> None:
        ctx.save_state("count", sum(state.get("count", 0) for state in states))

    def describe(self) -> str:
        return f"every {self.count} records"


class ProcessingTimeTrigger(Trigger):
    """Fires once per ``interval`` of processing time while records arrive.

    The clock runs from the first record after a firing.
    """

    def __init__(self, interval: Duration) -> None:
        self.interval_ms = duration_ms("interval", interval)

    def on_element(
        self, value: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        if ctx.get_state("next") is None:
            self._start(ctx, ctx.current_processing_time() + self.interval_ms)
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time_ms: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.save_state("next", None)
        return TriggerResult.FIRE

    def on_merge(
        self, states: Sequence[Mapping[str, Any]], window: Window, ctx: TriggerContext
    ) -> None:
        times = [state["next"] for state in states if state.get("next") is not None]
        if times:
            self._start(ctx, min(times))

    def on_expiry(self, window: Window, ctx: TriggerContext) -> TriggerResult:
        is_pending = ctx.get_state("next") is not None
        return TriggerResult.FIRE if is_pending else TriggerResult.CONTINUE

    def describe(self) -> str:
        return f"every {self.interval_ms} ms"

    def _start(self, ctx: TriggerContext, moment: int) -> None:
        ctx.save_state("next", moment)
        ctx.register_processing_time_timer(moment)


class ContinuousEventTimeTrigger(Trigger):
    """Fires at the first multiple of ``interval`` after each record, and at the end.

    A window that got no record in an interval does not fire for it.
    """

    def __init__(self, interval: Duration) -> None:
        self.interval_ms = duration_ms("interval", interval)

    def on_element(
        self, value: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.register_event_time_timer(window.end)
        self._set_next(max(timestamp, ctx.current_watermark()), window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_merge(
        self, states: Sequence[Mapping[str, Any]], window: Window, ctx: TriggerContext
    ) -> None:
        ctx.register_event_time_timer(window.end)
        self._set_next(max(window.start, ctx.current_watermark()), window, ctx)

    def describe(self) -> str:
        return f"every {self.interval_ms} ms of event time"

    def _set_next(self, after: int, window: Window, ctx: TriggerContext) -> None:
        moment = after - after % self.interval_ms + self.interval_ms
        if moment < window.end:
            ctx.register_event_time_timer(moment)


class PurgingTrigger(Trigger):
    """A trigger that fires with another trigger, and purges the records each time."""

    def __init__(self, inner: Trigger) -> None:
        self.inner = inner

    def on_element(
        self, value: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        return _purging(self.inner.on_element(value, timestamp, window, ctx))

    def on_event_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.inner.on_event_time(time_ms, window, ctx))

    def on_processing_time(
        self, time_ms: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        return _purging(self.inner.on_processing_time(time_ms, window, ctx))

    def on_merge(
        self, states: Sequence[Mapping[str, Any]], window: Window, ctx: TriggerContext
    ) -> None:
        self.inner.on_merge(states, window, ctx)

    def on_expiry(self, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.inner.on_expiry(window, ctx))

    def describe(self) -> str:
        return f"{self.inner.describe()}, purging"


class NeverTrigger(Trigger):
    """A trigger that never fires: the default of global windows."""

    def on_element(
        self, value: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(
        self, states: Sequence[Mapping[str, Any]], window: Window, ctx: TriggerContext
    ) -> None:
        """Do nothing: this trigger keeps no state."""

    def describe(self) -> str:
        return "never"


def can_merge(trigger: Trigger) -> bool:
    """Return whether a trigger may be used with sessions."""
    if isinstance(trigger, PurgingTrigger):
        return can_merge(trigger.inner)
    return type(trigger).on_merge is not Trigger.on_merge


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result is TriggerResult.FIRE else result
