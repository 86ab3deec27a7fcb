"""The contract of streams: the streamer, and the rules that all backends keep.

A backend subclasses ``Streamer``, ``Sender`` and ``Consumer`` and implements the methods whose
names start with an underscore. The rules are implemented once, here and in ``producing`` and
``consuming``:

- ``At(n)`` is inclusive: message n is the next one. ``seek(t)`` moves to the earliest message whose
  time is t or later. Without such a message, ``SeekError`` is raised, and the position is
  unchanged.
- A send does not block. Its receipt may be awaited, or dropped.
- A canceled call loses no message: the next call returns it.

Queues are bounded by ``StreamerOptions``. Nothing here opens a file or a connection.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import ClassVar, Self

from bicycle_streams.addresses import StreamerUri, StreamKey
from bicycle_streams.admin import StreamAdmin
from bicycle_streams.consuming import Consumer, Subscription
from bicycle_streams.errors import STREAMER_NOT_OPEN, StreamKeyEmptyError, StreamUnsupportedError
from bicycle_streams.options import Durability, Mode, Start, StreamerOptions
from bicycle_streams.producing import Producer, Sender

_LOOPBACK = re.compile(r"^(localhost|\[::1\])(?=[:/]|$)")
_PORT = re.compile(r":\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The capabilities of a backend, proven by the conformance suite.

    Args:
        modes: The supported modes of consumers.
        durabilities: The supported durabilities of producers.
        is_replayable: Whether consumers can seek and rewind.
        has_shards: Whether a stream may have other shards than 0.
        has_headers: Whether messages may have a key and headers.
        has_transactions: Whether producers support transactions, with positions of consumers.
        is_binary: Whether payloads may be any bytes; otherwise they are text without line ends.
        first_sequence: The sequence number of the first message of a stream.
    """

    modes: frozenset[Mode] = frozenset({"real-time"})
    durabilities: frozenset[Durability] = frozenset({"at-most-once", "at-least-once"})
    is_replayable: bool = False
    has_shards: bool = False
    has_headers: bool = False
    has_transactions: bool = False
    is_binary: bool = True
    first_sequence: int = 0


class Streamer(ABC):
    """A location of streams, and the factory of its producers and consumers.

    Used as ``async with connect(uri) as streamer``: entering opens it, leaving disconnects.

    Args:
        uri: Where the streams are.
        options: Options of the backend.
    """

    capabilities: ClassVar[Capabilities]
    options_type: ClassVar[type[StreamerOptions]] = StreamerOptions
    # Options with which a command that only sends creates missing streams.
    words_to_write: ClassVar[Mapping[str, object]] = {}
    # The port of nodes without a port.
    default_port: ClassVar[int | None] = None

    def __init__(self, uri: StreamerUri, options: StreamerOptions) -> None:
        self.uri = uri
        self.options = options
        self._senders: list[Sender] = []
        self._consumers: list[Consumer] = []
        self._is_open = False

    @abstractmethod
    async def _open(self) -> None:
        """Open the shared resources of all producers and consumers."""

    @abstractmethod
    async def _make_sender(self, *, durability: Durability, shard_count: int) -> Sender:
        """Return the sender of one producer."""

    @abstractmethod
    async def _make_consumer(self, subscription: Subscription) -> Consumer:
        """Return a consumer whose position is fixed before this returns."""

    @abstractmethod
    async def _close(self) -> None:
        """Close the resources of ``_open``, after all senders and consumers."""

    @property
    def identity(self) -> Hashable:
        """The location of the streams, equal for all spellings of one address.

        The names of a machine other than ``localhost`` are not compared.
        """
        nodes = {_LOOPBACK.sub("127.0.0.1", node) for node in self.uri.nodes}
        if (port := self.default_port) is not None:
            nodes = {node if _PORT.search(node) else f"{node}:{port}" for node in nodes}
        return self.uri.protocol, frozenset(nodes)

    def admin(self) -> StreamAdmin:
        """Return the administration of the streams of this location.

        Raises:
            StreamUnsupportedError: the backend keeps nothing that could be listed.
        """
        raise self._cannot("list streams", "it keeps no messages")

    async def create_producer(
        self, key: str, *, durability: Durability | None = None, shard_count: int = 1
    ) -> Producer:
        """Return a producer that sends to one stream.

        Args:
            key: The stream.
            durability: The promise of a receipt. None: ``at-least-once``, or ``at-most-once`` if
                the backend supports nothing stronger.
            shard_count: Number of shards over which messages without a shard are distributed.
        """
        return Producer(await self._sender(durability, shard_count), StreamKey(key))

    async def create_generic_producer(
        self, *, durability: Durability | None = None, shard_count: int = 1
    ) -> Producer:
        """Return a producer that has no stream yet; like ``create_producer`` otherwise."""
        return Producer(await self._sender(durability, shard_count))

    async def create_consumer(
        self,
        keys: str | Iterable[str],
        *,
        mode: Mode = "real-time",
        group: str | None = None,
        start: Start = "latest",
        is_live: bool = True,
    ) -> Consumer:
        """Return a consumer of one or more streams.

        Args:
            keys: The streams.
            mode: ``real-time`` stores no position; ``resumable`` continues after the committed
                position; in ``load-balanced`` the consumers of a group share the messages.
            group: The group that stores the position or shares; not with ``real-time``.
            start: The start position if no position is stored.
            is_live: Whether to wait for further messages at the end.

        Raises:
            StreamKeyEmptyError: no stream is named.
            ConsumerGroupIsSetError: mode real-time was called with a group.
            ConsumerGroupNotSetError: mode load-balanced was called without a group.
            StreamUnsupportedError: the backend does not have this mode.
        """
        self._require_open()
        wanted = [keys] if isinstance(keys, str) else list(keys)
        if not wanted:
            raise StreamKeyEmptyError(address=str(self.uri), problem="no stream was named")
        subscription = Subscription(
            keys=tuple(dict.fromkeys(StreamKey(key) for key in wanted)),
            mode=mode,
            group=group,
            start=start,
            is_live=is_live,
        )
        if mode not in self.capabilities.modes:
            raise self._cannot(f"consume in mode {mode!r}", "it stores no positions")
        consumer = await self._make_consumer(subscription)
        # One that has ended needs nothing more: a server makes thousands of them.
        self._consumers = [each for each in self._consumers if not each.has_ended]
        self._consumers.append(consumer)
        return consumer

    async def disconnect(self) -> None:
        """Flush and end all producers, end all consumers, and close the streamer."""
        self._is_open = False
        senders, self._senders = self._senders, []
        consumers, self._consumers = self._consumers, []
        ends = [*(each.end for each in senders), *(each.end for each in consumers), self._close]
        async with AsyncExitStack() as stack:  # It calls all, whichever fails, the last one first.
            for end in reversed(ends):
                stack.push_async_callback(end)

    async def __aenter__(self) -> Self:
        await self._open()
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    async def _sender(self, durability: Durability | None, shard_count: int) -> Sender:
        self._require_open()
        if durability is None:
            has_more = "at-least-once" in self.capabilities.durabilities
            durability = "at-least-once" if has_more else "at-most-once"
        if durability not in self.capabilities.durabilities:
            reason = "it neither detects duplicates nor supports transactions"
            if durability == "at-least-once":
                reason = "receipts are not supported"
            elif durability == "at-most-once":
                reason = "its client repeats messages without a receipt"
            raise self._cannot(f"send {durability}", reason)
        if shard_count < 1 or (shard_count > 1 and not self.capabilities.has_shards):
            raise self._cannot(f"send to {shard_count} shards", "its streams have one shard")
        sender = await self._make_sender(durability=durability, shard_count=shard_count)
        self._senders = [*(each for each in self._senders if not each.was_ended), sender]
        return sender

    def _require_open(self) -> None:
        if not self._is_open:
            raise STREAMER_NOT_OPEN(address=str(self.uri))

    def _cannot(self, action: str, reason: str) -> StreamUnsupportedError:
        return StreamUnsupportedError(
            backend=str(self.uri),
            action=action,
            reason=reason,
            hint="see docs/how-to/streams.md for the features of each backend",
        )
