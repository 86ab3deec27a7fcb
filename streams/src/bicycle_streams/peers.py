"""Streams between two peers without storage: WebSockets, and lines over TCP.

A client reconnects automatically, after increasing, random pauses. A server sends messages to its
connected clients. A backend implements connecting, listening, and reading one *peer*.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from bicycle_sdk.client_options import Listening
from bicycle_sdk.logging import log_event
from bicycle_sdk.options import option
from bicycle_sdk.random_source import system_random
from bicycle_streams.addresses import StreamerUri
from bicycle_streams.backoff import Backoff
from bicycle_streams.consuming import Consumer, Subscription
from bicycle_streams.contract import Streamer
from bicycle_streams.delivering import Hub, HubConsumer
from bicycle_streams.errors import ConnectionLostError, StreamEndedError, error_of
from bicycle_streams.options import StreamerOptions, connect_error

Peer = TypeVar("Peer")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PeerOptions(Listening):
    """The options of a streamer with peers, in addition to ``StreamerOptions``."""

    __slots__ = ()  # The slots of a subclass are added to these.

    broadcast: bool = option(
        False, doc="Whether a server forwards messages of a client to all other clients."
    )
    retry_delay_ms: int = option(
        100, low=1, high=60_000, doc="First delay before a reconnect.", aliases=("pause_ms",)
    )
    retry_delay_max_ms: int = option(
        30_000,
        low=1,
        high=3_600_000,
        doc="Maximum delay before a reconnect.",
        aliases=("pause_max_ms",),
    )
    retry_timeout_ms: int = option(
        600_000, low=0, high=86_400_000, doc="Time after which reconnecting fails."
    )


class PeerStreamer(Streamer, Generic[Peer]):
    """Streams of one connection, or of the clients of a server.

    Args:
        uri: Where the other side is, or where to listen.
        options: ``StreamerOptions`` with ``PeerOptions``.

    Attributes:
        dropped_count: Messages of a server that a client did not receive, or that had no client.
        refused_count: Clients of a server beyond the maximum.
    """

    # The exceptions of a connection that the peer has closed.
    away: ClassVar[tuple[type[Exception], ...]]
    default_port: ClassVar[int | None] = None

    def __init__(self, uri: StreamerUri, options: StreamerOptions) -> None:
        super().__init__(uri, options)
        assert isinstance(options, PeerOptions), "a backend with peers has both"
        self.address = str(uri)
        self.peers: set[Peer] = set()
        self.connection_count = 0
        self.dropped_count = 0
        self.refused_count = 0
        self._peer_options: PeerOptions = options
        self._hub = Hub()
        self._random = system_random()
        self._keeping: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._is_closing = False

    @property
    def is_reachable(self) -> bool:
        """Return whether the other side is connected; always True for a server."""
        return self._peer_options.listen or bool(self.peers)

    @property
    @abstractmethod
    def port(self) -> int:
        """The port of a server, useful if port 0 was requested."""

    @abstractmethod
    async def _listen(self, host: str, port: int) -> None:
        """Start the server; each client is passed to ``_serve``."""

    @abstractmethod
    async def _connect(self) -> Peer:
        """Return the connected and initialized other side; raise an ``away`` error."""

    @abstractmethod
    async def _take(self, peer: Peer) -> None:
        """Pass a peer's messages to the hub until it disconnects, which is no error."""

    @abstractmethod
    async def _part(self, peer: Peer) -> None:
        """Close the connection of one peer, after its pending messages."""

    @abstractmethod
    async def _stop_listening(self) -> None:
        """Stop the server, if it runs."""

    async def _open(self) -> None:
        address = self.uri.host_and_port(self.default_port)
        try:
            if self._peer_options.listen:
                await self._listen(*address)
                return
            first = self._join(await self._connect())
        except Exception as error:
            if not isinstance(error, (*self.away, ValueError)):
                raise
            raise connect_error(self.address, error) from None
        self._keeping = asyncio.create_task(self._keep(first))

    async def _close(self) -> None:
        self._is_closing = True
        # Remaining input is read meanwhile, because the end of the connection follows it.
        await asyncio.gather(*(self._part(peer) for peer in self.peers))
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await self._stop_listening()
        self._hub.end(StreamEndedError(address=self.address))

    async def _make_consumer(self, subscription: Subscription) -> Consumer:
        return HubConsumer(self.address, subscription, self.options, self._hub)

    async def _keep(self, peer: Peer) -> None:
        """Read until the other side stays away; an unexpected error ends the hub, too."""
        try:
            await self._read_always(peer)
        except Exception as error:  # noqa: BLE001 - without an end, consumers would wait forever.
            self._hub.end(error_of(error, self.address))
        self._changed.set()

    async def _read_always(self, peer: Peer) -> None:
        """Read forever, and connect again after pauses that grow and differ."""
        loop = asyncio.get_running_loop()
        options = self._peer_options
        while True:
            await self._read(peer)
            if self._is_closing:
                return
            pauses = Backoff(
                first_ms=options.retry_delay_ms,
                longest_ms=options.retry_delay_max_ms,
                source=self._random,
            )
            deadline = loop.time() + options.retry_timeout_ms / 1_000
            while True:
                pause_s = pauses.next_s()
                if loop.time() + pause_s > deadline:
                    raise ConnectionLostError(address=self.address, reason="it did not reconnect")
                await asyncio.sleep(pause_s)
                with contextlib.suppress(*self.away):
                    peer = self._join(await self._connect())
                    break

    def others(self, sender: Peer) -> list[Peer]:
        """Return the clients to which the messages of a client are forwarded."""
        is_forwarding = self._peer_options.broadcast
        return [peer for peer in self.peers if is_forwarding and peer is not sender]

    async def _serve(self, peer: Peer) -> None:
        """Serve a client until it disconnects."""
        await self._read(self._join(peer))

    def _join(self, peer: Peer) -> Peer:
        self.connection_count += 1
        self.peers.add(peer)
        self._changed.set()
        return peer

    async def _read(self, peer: Peer) -> None:
        try:
            await self._take(peer)
        except Exception:
            await self._part(peer)
            raise
        finally:
            self.peers.discard(peer)

    def admits(self, client_count: int) -> bool:
        """Return whether a server takes one more client; count a client that it rejects.

        Args:
            client_count: Number of the other open connections.
        """
        if client_count < self._peer_options.clients_max:
            return True
        self.refused_count += 1
        if self.refused_count & (self.refused_count - 1) == 0:  # Ever more rarely.
            log_event(
                _LOG, "socket_client_refused", level=logging.WARNING, address=self.address,
                reason=f"clients_max is {self._peer_options.clients_max}",
                refused_count=self.refused_count,
            )  # fmt: skip
        return False

    def note_dropped(self, message_count: int, results: list[bool]) -> None:
        """Count a server's messages that not all clients received.

        Args:
            message_count: How many messages were sent.
            results: Of each client, whether it has taken them.
        """
        if self._peer_options.listen:
            self.dropped_count += message_count * (results.count(False) if results else 1)

    async def wait_for_peer(self) -> None:
        """Wait for a connected peer; a server sends to its present clients at once.

        Raises:
            ConnectionLostError: the other side did not come back.
        """
        while not self.peers and not self._peer_options.listen:
            if self._hub.end_error is not None:
                raise self._hub.end_error
            self._changed.clear()
            await self._changed.wait()
