"""Event time: timestamps of a stream's records, and the progress of that time.

A *timestamp* is the time of a record, in ms since 1970. A *watermark* W states that no record at or
before W is expected; windows and timers wait for it. A ``WatermarkStrategy`` provides
both. Nothing here reads a clock or runs a function; the runtime does, per shard of the input, once
per epoch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, TypeVar

from bicycle_sdk.errors import StreamDefinitionError

__all__ = [
    "IDLE_TIMEOUT_MS",
    "OUT_OF_ORDERNESS_MS",
    "TIME_MS_MAX",
    "WatermarkGenerator",
    "WatermarkStrategy",
    "as_ms",
]

T = TypeVar("T")

OUT_OF_ORDERNESS_MS = 5_000
IDLE_TIMEOUT_MS = 10_000
TIME_MS_MAX = 2**62  # far beyond any date, and far enough from the largest watermark
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MS = timedelta(milliseconds=1)


class WatermarkGenerator(ABC, Generic[T]):
    """A generator of watermarks from the records of one shard in one epoch.

    The runtime copies the object for each shard, task and epoch, so its attributes contain only
    facts about records of this epoch. A result below an earlier one is ignored: a watermark never
    decreases.
    """

    @abstractmethod
    def on_event(self, timestamp_ms: int, record: T) -> int | None:
        """Return the watermark after this record, or None for no change.

        No record with a time at or before the watermark is expected.

        Called on a worker, once per record and attempt, in the order of the shard.
        """

    def on_epoch_end(self) -> int | None:
        """Return the watermark after the last record of the epoch, or None.

        Called on a worker, once per shard that had records in the epoch.
        """
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkStrategy(Generic[T]):
    """The source of event time and of watermarks. Each call returns a changed copy.

    Example:
        >>> strategy = WatermarkStrategy.bounded_out_of_orderness(timedelta(seconds=2))
        >>> strategy.with_idle_timeout(None).delay_ms
        2000
    """

    kind: Literal["ascending", "bounded", "punctuated", "custom"]
    delay_ms: int = 0
    idle_timeout_ms: int | None = IDLE_TIMEOUT_MS
    alignment_group: str | None = None
    max_drift_ms: int = 0
    timestamps: Callable[[T], int | float | datetime] | None = None
    generator: Any = None

    @classmethod
    def ascending(cls) -> WatermarkStrategy[Any]:
        """Return a strategy for shards in which no record is older than one before it.

        The watermark is 1 ms before the newest, since more records may have that time.
        """
        return WatermarkStrategy(kind="ascending")

    @classmethod
    def bounded_out_of_orderness(
        cls, delay: timedelta | int = OUT_OF_ORDERNESS_MS
    ) -> WatermarkStrategy[Any]:
        """Return a strategy for records up to ``delay`` older than their shard's newest.

        The watermark is the newest time less ``delay`` less 1 ms.
        """
        return WatermarkStrategy(
            kind="bounded", delay_ms=_duration("bounded_out_of_orderness", delay, low=0)
        )

    @classmethod
    def punctuated(cls, function: Callable[[int, T], int | bool | None]) -> WatermarkStrategy[T]:
        """Return a strategy with watermarks from records.

        Args:
            function: Called with timestamp and record. Returns the watermark after the record, True
                for the timestamp of the record, or None or False for no change. No record with a
                time at or before the watermark is expected.
        """
        _check_callable("punctuated", function)
        return WatermarkStrategy(kind="punctuated", generator=function)

    @classmethod
    def custom(cls, generator: WatermarkGenerator[T]) -> WatermarkStrategy[T]:
        """Return a strategy with a user's generator."""
        if not isinstance(generator, WatermarkGenerator):
            raise StreamDefinitionError(
                call="WatermarkStrategy.custom",
                problem=f"{type(generator).__qualname__} is not a WatermarkGenerator",
                hint="derive the class from WatermarkGenerator and pass an object of it",
            )
        return WatermarkStrategy(kind="custom", generator=generator)

    def with_timestamps(
        self, function: Callable[[T], int | float | datetime]
    ) -> WatermarkStrategy[T]:
        """Set the function of a record's event time: ms since 1970, or an aware datetime.

        Without this the records keep the times of their source.
        """
        _check_callable("with_timestamps", function)
        return replace(self, timestamps=function)

    def with_idle_timeout(self, timeout: timedelta | int | None) -> WatermarkStrategy[T]:
        """Set the time after which an idle shard no longer holds back others; None: never.

        The default is 10 s. When all shards are idle, event time advances with the clock.
        """
        if timeout is None:
            return replace(self, idle_timeout_ms=None)
        return replace(self, idle_timeout_ms=_duration("with_idle_timeout", timeout, low=1))

    def with_alignment(self, group: str, max_drift: timedelta | int) -> WatermarkStrategy[T]:
        """Pause a source while it is over ``max_drift`` ahead of the slowest of a group.

        Args:
            group: Name of the group. All sources of the job with this name belong to it.
            max_drift: Maximum lead of the source in event time, as timedelta or ms.
        """
        drift_ms = _duration("with_alignment", max_drift, low=0)
        return replace(self, alignment_group=group, max_drift_ms=drift_ms)

    def details(self) -> dict[str, Any]:
        """Return the strategy's settings in a graph, without unset ones."""
        found: dict[str, Any] = {"watermarks": self.kind, "delay_ms": self.delay_ms}
        if self.idle_timeout_ms is not None:
            found["idle_timeout_ms"] = self.idle_timeout_ms
        if self.alignment_group is not None:
            found |= {"alignment_group": self.alignment_group, "max_drift_ms": self.max_drift_ms}
        return found


def as_ms(time: object) -> int:
    """Return an event time as ms since 1970.

    Args:
        time: ms as int or float, or a datetime with time zone.

    Raises:
        ValueError: it is something else, not a number, or out of bounds.

    Example:
        >>> from datetime import UTC
        >>> as_ms(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))
        2000
    """
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError(f"the timestamp {time.isoformat()} has no time zone")
        return (time - _EPOCH) // _MS
    if isinstance(time, bool) or not isinstance(time, (int, float)):
        raise ValueError(
            f"a timestamp is {type(time).__name__} ({str(time)[:40]!r}), "
            "expected ms since 1970 or a datetime with time zone"
        )
    if not math.isfinite(time) or not -TIME_MS_MAX < time < TIME_MS_MAX:
        raise ValueError(f"the timestamp {time} is not a time in ms since 1970")
    return math.floor(time)


def _duration(call: str, duration: object, *, low: int) -> int:
    ms = duration // _MS if isinstance(duration, timedelta) else duration
    if isinstance(ms, bool) or not isinstance(ms, int) or not low <= ms < TIME_MS_MAX:
        raise StreamDefinitionError(
            call=call,
            problem=f"{duration!r} is not a duration of {low} ms or more",
            hint="give a timedelta, or whole milliseconds",
        )
    return ms


def _check_callable(call: str, function: object) -> None:
    if not callable(function):
        raise StreamDefinitionError(
            call=f"WatermarkStrategy.{call}",
            problem=f"{type(function).__qualname__} is not callable",
            hint="pass a function or a lambda",
        )
