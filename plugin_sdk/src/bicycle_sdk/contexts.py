"""The context of a running function: its identity, time, metrics and state.

The runtime makes the contexts of a job and subclasses them; the classes here work on their own too,
so that a function can be called in a test or a notebook with ``Context.standalone()``. Nothing here
is durable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Required, Self, TypedDict, TypeVar, Unpack, cast

from bicycle_sdk.state.access import LocalEntries, StateAccess
from bicycle_sdk.state.descriptors import StateDescriptor, TimeDomain
from bicycle_sdk.state.timers import Timer, TimerQueue, TimerService

if TYPE_CHECKING:
    import random as random_module

__all__ = [
    "WATERMARK_MAX",
    "WATERMARK_MIN",
    "Context",
    "ContextOptions",
    "Counter",
    "Gauge",
    "Histogram",
    "KeyedProcessContext",
    "Metrics",
    "OnTimerContext",
    "ProcessContext",
    "RuntimeContext",
    "SourceMessage",
    "TaskInfo",
    "wall_clock_ms",
]

K = TypeVar("K")

# The watermark before any event time is known, and the watermark behind the last record of all.
WATERMARK_MIN = -(2**63)
WATERMARK_MAX = 2**63 - 1


def wall_clock_ms() -> int:
    """Return the time of day in ms since 1970, the only clock that this package reads."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """The operator instance that a function runs in; ``subtask_index`` counts from 0.

    ``properties`` are the properties set by ``env.set_property``, the same in the whole job.
    """

    job_id: str
    operator_name: str
    subtask_index: int = 0
    parallelism: int = 1
    max_parallelism: int = 128
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMessage:
    """The position, key, headers and time of a record in its source.

    ``source`` is the id of the source's vertex, ``shard`` a part of it (a file, a topic partition),
    ``offset`` the position there. ``key`` is decoded, ``headers`` are pairs of name and bytes
    (None: a header without a value); both are empty where a source has no such
    things. ``timestamp_ms`` is event time since 1970.
    """

    source: str
    shard: str
    offset: int
    key: Any = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, n: int = 1) -> None:
        """Add ``n``."""
        self.value += n


class Gauge:
    """A number that is set; the last value counts."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, v: float) -> None:
        """Replace the value."""
        self.value = v


class Histogram:
    """A histogram with count, sum and bounds of the values, of constant size."""

    __slots__ = ("count", "high", "low", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.low: float | None = None
        self.high: float | None = None

    def observe(self, v: float) -> None:
        """Take one value."""
        self.count += 1
        self.sum += v
        self.low = v if self.low is None or v < self.low else self.low
        self.high = v if self.high is None or v > self.high else self.high


class Metrics:
    """The counters, gauges and histograms of one subtask, created on first use.

    Example:
        >>> metrics = Metrics()
        >>> metrics.counter("lines").inc(2)
        >>> metrics.snapshot()["counters"]
        {'lines': 2}
    """

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}

    def counter(self, name: str) -> Counter:
        """Return the counter of this name."""
        return self._counters.setdefault(name, Counter())

    def gauge(self, name: str) -> Gauge:
        """Return the gauge of this name."""
        return self._gauges.setdefault(name, Gauge())

    def histogram(self, name: str) -> Histogram:
        """Return the histogram of this name."""
        return self._histograms.setdefault(name, Histogram())

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Return all values as plain data, sorted by name."""
        return {
            "counters": {name: c.value for name, c in sorted(self._counters.items())},
            "gauges": {name: g.value for name, g in sorted(self._gauges.items())},
            "histograms": {
                name: {"count": h.count, "sum": h.sum, "min": h.low, "max": h.high}
                for name, h in sorted(self._histograms.items())
            },
        }


class ContextOptions(TypedDict, total=False):
    """The keyword arguments of every context; see ``Context``."""

    task_info: Required[TaskInfo]
    processing_time: int | None
    random: random_module.Random | None
    metrics: Metrics | None
    clock: Callable[[], int]


class Context:
    """The context of every function.

    ``processing_time`` (ms) and ``random`` are recorded by the runtime: when an epoch is computed
    again, a function sees the same values. ``current_processing_time()`` is the wall clock and is
    not recorded. ``message`` holds the metadata of the current record from the source; it is None
    behind an exchange, such as ``key_by``, and without a source.

    Args:
        task_info: Which instance of the function this is.
        processing_time: Time of the epoch in ms; None reads ``clock``.
        random: Source of random numbers; None seeds one with the operator's name and subtask.
        metrics: Where the function counts; None makes an empty set.
        clock: Returns the wall clock in ms.
    """

    def __init__(
        self,
        *,
        task_info: TaskInfo,
        processing_time: int | None = None,
        random: random_module.Random | None = None,
        metrics: Metrics | None = None,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.task_info = task_info
        self.processing_time = clock() if processing_time is None else processing_time
        self.random = _seed(task_info) if random is None else random
        self.metrics = Metrics() if metrics is None else metrics
        self.message: SourceMessage | None = None
        self._clock = clock

    @classmethod
    def standalone(cls, operator_name: str = "standalone") -> Self:
        """Return a context that needs no runtime, for tests and notebooks."""
        return cls(task_info=TaskInfo(job_id="standalone", operator_name=operator_name))

    def now(self) -> int:
        """Return the recorded time in ms: the same at each attempt of an epoch."""
        return self.processing_time

    def current_processing_time(self) -> int:
        """Return the wall clock in ms. An epoch that is computed again sees another value."""
        return self._clock()


class RuntimeContext(StateAccess, Context):
    """The context of functions with state: watermark, key, states, named values.

    ``get_state`` and its companions keep one value per name and key on a keyed stream, and one per
    name and subtask otherwise. ``get_value_state`` and its kin return typed states of a keyed
    stream. They are durable in a job; standalone they are held by this object.
    """

    def __init__(self, **options: Unpack[ContextOptions]) -> None:
        StateAccess.__init__(self)
        Context.__init__(self, **options)
        self.local_entries = LocalEntries(self.state_time)
        self.watermark = WATERMARK_MIN
        self._key: Any = None
        self.named_values: dict[tuple[Hashable, str], Any] = {}

    def current_watermark(self) -> int:
        """Return the watermark in ms, or ``WATERMARK_MIN`` if unknown."""
        return self.watermark

    def current_key(self) -> Any:
        """Return the key of the current record; None on a stream without keys."""
        return self._key

    def set_current_key(self, key: Hashable) -> None:
        """Switch to the state of another key. Called by the runtime, never by functions."""
        self._key = key

    def state_entries(self, descriptor: StateDescriptor) -> Any:
        """Return the entries of a state.

        Called by the context itself.
        """
        return self.local_entries.entries_of(descriptor)

    def state_key(self) -> Hashable:
        """Return the key under which state is read and written. Called by handles."""
        return cast("Hashable", self._key)

    def state_time(self, domain: TimeDomain) -> int:
        """Return the time in ms by which states expire."""
        return self.processing_time if domain == "processing" else self.watermark

    def get_state(self, name: str, default: Any = None) -> Any:
        """Return the saved value, or ``default`` without one."""
        return self.named_values.get((self._key, name), default)

    def save_state(self, name: str, value: Any) -> None:
        """Save a value under a name, and replace the previous value."""
        self.named_values[self._key, name] = value

    def delete_state(self, name: str) -> None:
        """Forget the value of a name, if it exists."""
        self.named_values.pop((self._key, name), None)


class ProcessContext(RuntimeContext):
    """The context of a ``ProcessFunction``: also event time, and side outputs.

    ``timestamp`` is the event time of the current record in ms, or None without event time.
    """

    def __init__(self, **options: Unpack[ContextOptions]) -> None:
        super().__init__(**options)
        self.timestamp: int | None = None
        self._side_outputs: list[tuple[str, Any]] = []
        self._timers: tuple[TimerQueue, TimerQueue] | None = None

    @property
    def timer_service(self) -> TimerService:
        """Sets and deletes the timers of the current key, on a keyed stream."""
        event, processing = self.timer_queues()
        return TimerService(self, event=event, processing=processing)

    def timer_queues(self) -> tuple[TimerQueue, TimerQueue]:
        """Return the timers that wait for event time, and for processing time."""
        if self._timers is None:
            self._timers = TimerQueue("event"), TimerQueue("processing")
        return self._timers

    def state_time(self, domain: TimeDomain) -> int:
        """Return the time in ms by which states expire."""
        known = super().state_time(domain)
        if domain == "processing" or self.timestamp is None:
            return known
        return max(self.timestamp, known)

    def side_output(self, tag: str, value: Any) -> None:
        """Send a value to the readers of ``stream.side_output(tag)``, if there are any."""
        self._side_outputs.append((tag, value))

    def take_side_outputs(self) -> list[tuple[str, Any]]:
        """Return the side outputs since the last call, in order, and clear them."""
        taken, self._side_outputs = self._side_outputs, []
        return taken


class KeyedProcessContext(ProcessContext, Generic[K]):
    """A ``ProcessContext`` on a keyed stream: the key is always present and typed."""

    def current_key(self) -> K:
        """Return the key of the current record."""
        return cast("K", self._key)


class OnTimerContext(KeyedProcessContext[K]):
    """The context of ``on_timer``, with key and time of the timer that fires.

    ``timestamp`` is the time of the timer in ms, ``time_domain`` which time it waited for.
    """

    def __init__(self, **options: Unpack[ContextOptions]) -> None:
        super().__init__(**options)
        self.time_domain: TimeDomain = "event"
        self._fired: Timer | None = None
        self._previous = WATERMARK_MIN

    def set_fired(self, timer: Timer, previous: int) -> None:
        """Switch to a timer that fires.

        Called by the runner of the function.

        Args:
            timer: The timer.
            previous: The watermark in ms before timers began to fire.
        """
        self.set_current_key(timer.key)
        self._fired, self._previous = timer, previous
        self.timestamp = timer.time_ms
        self.time_domain = timer.domain

    def end_fired(self) -> None:
        """Clear the current timer.

        Called by the runner of the function.
        """
        self._fired = None
        self.timestamp = None

    def state_time(self, domain: TimeDomain) -> int:
        """Return the time in ms by which states expire."""
        fired = self._fired
        if fired is None or domain == "processing":
            return super().state_time(domain)
        return self.fired_time(fired)

    def fired_time(self, fired: Timer) -> int:
        """Return the event time in ms while a timer fires."""
        if fired.domain == "processing":
            return self.watermark  # The time of the timer is that of the clock.
        # Not the watermark, which is as far as epochs are long: states would expire by chance.
        return max(fired.time_ms, self._previous)


def _seed(task_info: TaskInfo) -> random_module.Random:
    # Slow library on the start path of every plugin: random loads hashlib and math.
    import random as random_module

    return random_module.Random(f"{task_info.operator_name}/{task_info.subtask_index}")
