"""Rates of streams: messages and bytes per second, minute and hour."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from bicycle_streams.addresses import StreamKey
from bicycle_streams.admin import StreamInfo
from bicycle_streams.errors import StreamError
from bicycle_streams.messages import Message

MINUTE_S, HOUR_S = 60, 3_600


@dataclass(frozen=True, slots=True)
class Throughput:
    """The amounts of the last full second, and of the last minute and hour."""

    second: int = 0
    minute: int = 0
    hour: int = 0

    def __add__(self, other: Throughput) -> Throughput:
        return Throughput(
            self.second + other.second, self.minute + other.minute, self.hour + other.hour
        )


class Rates:
    """Counts messages and bytes by the second, for one hour; its size does not grow.

    Example:
        >>> rates = Rates()
        >>> for time_ms in (1_000, 9_000, 10_000):
        ...     rates.add(time_ms, 100)
        >>> rates.messages(now_ms=11_000), rates.sizes(now_ms=70_999).minute
        (Throughput(second=1, minute=3, hour=3), 0)
    """

    def __init__(self) -> None:
        self._seconds = [-1] * HOUR_S
        self._counts = [0] * HOUR_S
        self._bytes = [0] * HOUR_S

    def add(self, timestamp_ms: int, size: int) -> None:
        """Count a message; drop one that is older than its slot's content."""
        second = timestamp_ms // 1_000
        location = second % HOUR_S
        if self._seconds[location] < second:
            self._seconds[location], self._counts[location], self._bytes[location] = second, 0, 0
        if self._seconds[location] == second:
            self._counts[location] += 1
            self._bytes[location] += size

    def messages(self, *, now_ms: int) -> Throughput:
        """Return how many messages came."""
        return self._throughput(self._counts, now_ms // 1_000)

    def sizes(self, *, now_ms: int) -> Throughput:
        """Return how many bytes of payloads came."""
        return self._throughput(self._bytes, now_ms // 1_000)

    def _throughput(self, numbers: list[int], now: int) -> Throughput:
        found = [
            (second, number)
            for second, number in zip(self._seconds, numbers, strict=True)
            if now - HOUR_S < second <= now
        ]
        return Throughput(
            second=sum(number for second, number in found if second == now - 1),
            minute=sum(number for second, number in found if second > now - MINUTE_S),
            hour=sum(number for _, number in found),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The thresholds of marks on a stream.

    Args:
        stale_ms: So long after its latest message it is stale.
        burst_factor: It is bursting with so many times the messages per second of the minute.
        burst_messages_min: With fewer in the last second it is not.
    """

    stale_ms: int = 60_000
    burst_factor: float = 3.0
    burst_messages_min: int = 10

    def of(self, messages: Throughput, age_ms: int | None) -> tuple[str, ...]:
        """Return the marks of a stream.

        Example:
            >>> Marks().of(Throughput(second=40, minute=50), 800), Marks().of(Throughput(), 61_000)
            (('bursting',), ('stale',))
        """
        before = (messages.minute - messages.second) / (MINUTE_S - 1)
        is_bursting = messages.second >= max(self.burst_messages_min, self.burst_factor * before)
        is_stale = age_ms is None or age_ms > self.stale_ms
        return ("bursting",) * is_bursting + ("stale",) * is_stale


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One stream at one moment.

    ``info`` is None where the backend cannot be asked, ``error`` why a stream is not read.
    """

    location: str
    key: StreamKey
    messages: Throughput
    sizes: Throughput
    latest: Message | None
    latest_ms: int | None
    age_ms: int | None
    marks: tuple[str, ...]
    info: StreamInfo | None
    error: StreamError | None

    @property
    def name(self) -> str:
        """The stream with its place."""
        return f"{self.location}/{self.key}"

    @property
    def lag(self) -> int | None:
        """Messages that wait for the group that is furthest behind."""
        return None if self.info is None else self.info.lag

    @property
    def producer_count(self) -> int | None:
        """The number of producers, if the backend reports it."""
        return None if self.info is None else self.info.producer_count

    @property
    def consumer_count(self) -> int | None:
        """The number of consumers in groups, if the backend reports it."""
        return None if self.info is None else self.info.consumer_count


@dataclass(slots=True)
class StreamWatch:
    """The state of one watched stream."""

    location: str
    key: StreamKey
    rates: Rates = field(default_factory=Rates)
    latest: Message | None = None
    info: StreamInfo | None = None
    error: StreamError | None = None

    def add(self, message: Message) -> None:
        """Count a message."""
        self.rates.add(message.timestamp_ms, message.size)
        if self.latest is None or message.timestamp_ms >= self.latest.timestamp_ms:
            self.latest = message

    def figures(self, marks: Marks, *, now_ms: int) -> Figures:
        """Return the current figures of the stream."""
        times = [
            self.latest.timestamp_ms if self.latest is not None else None,
            self.info.last_timestamp_ms if self.info is not None else None,
        ]
        latest_ms = max((each for each in times if each is not None), default=None)
        age_ms = None if latest_ms is None else max(0, now_ms - latest_ms)
        messages = self.rates.messages(now_ms=now_ms)
        return Figures(
            location=self.location,
            key=self.key,
            messages=messages,
            sizes=self.rates.sizes(now_ms=now_ms),
            latest=self.latest,
            latest_ms=latest_ms,
            age_ms=age_ms,
            marks=marks.of(messages, age_ms),
            info=self.info,
            error=self.error,
        )


def total(figures: Iterable[Figures], part: Callable[[Figures], Throughput]) -> Throughput:
    """Return the sum of a figure over several streams."""
    return sum(map(part, figures), start=Throughput())
