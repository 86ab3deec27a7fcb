"""Cases: the knowledge of the suite about a backend, written by its author."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import ClassVar, TypeVar

from bicycle_sdk.clock import SystemClock
from bicycle_streams import Consumer, Streamer, connect
from bicycle_streams.options import Durability
from bicycle_streams.testing.rules import Suite

__all__ = [
    "CaseRules",
    "LosesConnections",
    "StreamCase",
    "lately_ms",
    "numbers",
    "play",
    "send",
    "texts",
]

T = TypeVar("T")
_HOUR_MS = 3_600_000


class StreamCase(ABC):
    """The outside world of one test.

    Attributes:
        word: The protocol of the backend.
        guarantee: The default guarantee of its producers.
        patience_s: How long one rule may take.
        repeats_on_join: Whether a member that joins a group gets again the messages that others
            hold.

    Args:
        folder: A new directory for this test.
    """

    word: ClassVar[str]
    guarantee: ClassVar[Durability] = "at-least-once"
    patience_s: float = 600.0
    repeats_on_join: bool = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    @abstractmethod
    def uri(self) -> str:
        """The location of the streams, empty at the start of the test."""

    @property
    def options(self) -> dict[str, object]:
        """The options of a streamer for the location, which create missing streams."""
        return {}

    def transaction_options(self, name: str) -> dict[str, object]:
        """Return further options with which producers have transactions, under this name."""
        return {}

    def key(self, name: str) -> str:
        """Return the key of a stream; another one where tests share a place."""
        return name

    def close(self) -> None:  # noqa: B027 - most hold nothing open.
        """Release the resources of the case.

        Called once, after the test.
        """


class LosesConnections(ABC):
    """The trait of a backend behind a connection that may break."""

    @abstractmethod
    def break_connections(self) -> None:
        """Break all connections once; acknowledged messages remain."""


class CaseRules(Suite):
    """The base of all rules of streams."""

    case_type: ClassVar[type[StreamCase]]


def play(
    case: StreamCase,
    scenario: Callable[[Streamer], Awaitable[T]],
    options: Mapping[str, object] | None = None,
) -> T:
    """Run a scenario with a streamer, disconnect it, and return the result.

    Args:
        case: Where the streams are.
        scenario: The actions on them.
        options: Further options of the streamer.
    """

    async def whole() -> T:
        words = {**case.options, **(options or {})}
        async with asyncio.timeout(case.patience_s), connect(case.uri, words) as streamer:
            return await scenario(streamer)

    return asyncio.run(whole())


def lately_ms() -> int:
    """Return a time that no server finds too old to keep, and that is past."""
    return SystemClock().now_ms() - _HOUR_MS


async def send(streamer: Streamer, key: str, values: Iterable[object]) -> list[int]:
    """Send values as texts and return their sequences, when all are acknowledged."""
    producer = await streamer.create_producer(key)
    sent = [producer.send(str(value)) for value in values]
    return [(await each).sequence for each in sent]


async def texts(consumer: Consumer, count: int) -> list[str]:
    """Return the payloads of messages that follow."""
    return [(await consumer.next()).as_str() for _ in range(count)]


async def numbers(consumer: Consumer, count: int) -> list[int]:
    """Return the payloads of messages that follow as numbers."""
    return [int(text) for text in await texts(consumer, count)]
