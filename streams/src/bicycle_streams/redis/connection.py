"""Calls of a Redis server that may disconnect: they are repeated for a time."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterError,
    ConnectionError,
    NoPermissionError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from bicycle_sdk.random_source import system_random
from bicycle_streams.addresses import StreamerUri
from bicycle_streams.errors import ConnectionLostError, StreamUrlError
from bicycle_streams.options import TlsOptions, connect_error
from bicycle_streams.redis.errors import LOGIN_REFUSED
from bicycle_streams.redis.options import RedisOptions
from bicycle_streams.tls_failures import refused_handshake, tls_hint

__all__ = ["LOST", "PORT", "Connection", "as_they_come", "is_cluster", "no_cluster", "tls_words"]

T = TypeVar("T")
# The first two are raised by the client; errors of clusters end when a replica takes over.
LOST = (
    ConnectionError, TimeoutError, OSError, ClusterError, RedisClusterException, TryAgainError,
    ReadOnlyError,
)  # fmt: skip
PORT = 6379
_IS_CLUSTER = b"cluster_enabled:1"
_ITS_OWN = ("CLUSTER", "COMMAND", "READONLY")
# While several streams of a cluster are read, each node delays an empty response for this time.
_CLUSTER_BLOCK_MS = 50
_SCAN_COUNT = 1_000
_PAUSE_S, _PAUSE_MAX_S = 0.02, 1.0
_HANDSHAKE_MAX_S = 2.0


def is_cluster(info: bytes) -> bool:
    """Return whether the result of ``INFO cluster`` is from a cluster's node."""
    return _IS_CLUSTER in info


def as_they_come(callbacks: dict[str, Any]) -> None:
    """Disable response conversion of a cluster's client, except for its own requests."""
    for name in [name for name in callbacks if not name.startswith(_ITS_OWN)]:
        del callbacks[name]


def tls_words(uri: StreamerUri, options: TlsOptions, *, is_verified: bool) -> dict[str, Any]:
    """Return the TLS arguments of a client, empty for redis://.

    Raises:
        STREAM_TLS_UNUSABLE: a file cannot be used, or is given for redis://.
    """
    if options.tls_context(str(uri), "rediss") is None:
        return {}
    words: dict[str, Any] = {
        "ssl": True,
        "ssl_ca_certs": options.ca_file,
        "ssl_certfile": options.cert_file,
        "ssl_keyfile": options.key_file,
    }
    return words if is_verified else words | {"ssl_cert_reqs": "none", "ssl_check_hostname": False}


def no_cluster(address: str) -> StreamUrlError:
    """Return the error of an address with several nodes where there is no cluster."""
    return StreamUrlError(
        address=address,
        problem="it has several nodes, but the first that responds is not a cluster",
    )


class Connection:
    """A server or a cluster, and how long to wait for it.

    Args:
        uri: ``redis://host:port`` or, with TLS, ``rediss://host:port``; of a cluster, some nodes.
        options: Options of the backend.

    Attributes:
        redis: The client, once it is open.
    """

    def __init__(self, uri: StreamerUri, options: RedisOptions) -> None:
        self.address = str(uri)
        self.options = options
        self.is_cluster = False
        self._random = system_random()
        self._hosts = uri.hosts(PORT)
        timeout_s = options.connect_timeout_ms / 1_000
        self._words: dict[str, Any] = {
            "username": options.username,
            "password": options.password,
            "protocol": 2,
            "socket_connect_timeout": timeout_s,
            "socket_timeout": timeout_s + options.block_ms / 1_000,
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),  # `again` tries again.
            **tls_words(uri, options, is_verified=options.verify_certificate),
        }
        self._tls = options.tls_context(str(uri), "rediss")
        if self._tls is not None and not options.verify_certificate:
            self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self.redis: Any = None

    async def open(self) -> None:
        """Reach the server once, and see whether it belongs to a cluster.

        Raises:
            StreamConnectError: it is not there, or refuses us.
            StreamUrlError: several nodes are named, and they are no cluster.
        """
        try:
            self.is_cluster = is_cluster(await self._first_answer())
            if self.is_cluster:
                await self.close()
                await self._open_cluster()
            elif len(self._hosts) > 1:
                raise no_cluster(self.address)
        except BaseException as error:
            if self.redis is not None:
                await self.close()
            if isinstance(error, AuthenticationError | AuthorizationError | ResponseError):
                raise LOGIN_REFUSED(address=self.address, reason=str(error)) from None
            if isinstance(error, LOST):  # Refusals of a login are among them for the client.
                raise connect_error(self.address, await self._reason_of(error)) from None
            raise

    async def _reason_of(self, error: Exception) -> Exception:
        """Return the reason of the server if the client has lost it, or else the error."""
        if self._tls is None or isinstance(error, TimeoutError) or tls_hint(error) is not None:
            return error
        timeout_s = min(self.options.connect_timeout_ms / 1_000, _HANDSHAKE_MAX_S)
        found = await asyncio.to_thread(
            refused_handshake, *self._hosts[-1], self._tls, timeout_s=timeout_s
        )
        return found or error

    async def _first_answer(self) -> bytes:
        """Connect to the first node that responds, and return its cluster information."""
        for number, (host, port) in enumerate(self._hosts, start=1):
            self.redis = Redis(host=host, port=port, db=self.options.db, **self._words)
            self.redis.response_callbacks = {}  # Answers come as they are.
            try:
                await self.redis.ping()
                info: bytes = await self.redis.execute_command("INFO", "cluster")
            except NoPermissionError:
                return b""  # This user may not ask.
            except LOST as error:
                is_refusal = isinstance(error, AuthenticationError | AuthorizationError)
                if is_refusal or number == len(self._hosts):
                    raise
                await self.close()
            else:
                return info
        raise AssertionError("an address has a node")

    async def _open_cluster(self) -> None:
        nodes = [ClusterNode(host, port) for host, port in self._hosts]
        self.redis = RedisCluster(startup_nodes=nodes, **self._words)
        await self.redis.initialize()
        as_they_come(self.redis.response_callbacks)

    async def close(self) -> None:
        """Close all connections."""
        await self.redis.aclose()

    async def call(self, *words: Any) -> Any:
        """Return the answer to a command that may be given twice."""
        return await self.again(lambda: self.redis.execute_command(*words))

    async def names(self, pattern: str) -> list[bytes]:
        """Return the keys of streams that match a pattern, on all masters of a cluster."""
        return await self.again(lambda: self._names(pattern))

    async def _names(self, pattern: str) -> list[bytes]:
        if not self.is_cluster:
            return await self._names_at({}, pattern)
        await self.redis.initialize()  # It forgot its nodes when one of them went away.
        found: set[bytes] = set()
        for node in self.redis.get_primaries():
            found.update(await self._names_at({"target_nodes": node}, pattern))
        return sorted(found)

    async def _names_at(self, node: dict[str, Any], pattern: str) -> list[bytes]:
        words = ("MATCH", pattern, "COUNT", _SCAN_COUNT, "TYPE", "stream")
        found: list[bytes] = []
        cursor: Any = 0
        while True:
            cursor, names = await self.redis.execute_command("SCAN", cursor, *words, **node)
            if isinstance(cursor, dict):  # The client of a cluster returns it by node.
                [cursor] = cursor.values()
            found += names
            if not (cursor := int(cursor)):
                return found

    async def read(
        self, command: tuple[Any, ...], streams: dict[bytes, bytes], block_ms: int | None
    ) -> list[Any]:
        """Return entries of streams: stream names with entries.

        Args:
            command: ``XREAD`` or ``XREADGROUP``, up to ``BLOCK``.
            streams: Names of streams, each with the id after which it is read.
            block_ms: Time limit of the wait for an entry; None for no wait.
        """

        async def ask(streams: dict[bytes, bytes], block_ms: int | None) -> list[Any]:
            block = () if block_ms is None else ("BLOCK", block_ms)
            words = (*command, *block, "STREAMS", *streams, *streams.values())
            return await self.call(*words) or []

        if not self.is_cluster or len(streams) == 1:
            return await ask(streams, block_ms)
        # Each may be on another node; results of a node are kept if another node fails.
        wait_ms = None if block_ms is None else min(block_ms, _CLUSTER_BLOCK_MS)
        answers = await asyncio.gather(
            *(ask({name: last_id}, wait_ms) for name, last_id in streams.items()),
            return_exceptions=True,
        )
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        found = [each for a in answers if not isinstance(a, BaseException) for each in a]
        if errors and not found:
            raise errors[0]
        return found

    async def again(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until the server answers.

        Raises:
            ConnectionLostError: it did not in ``retry_timeout_ms``.
            LOGIN_REFUSED: this user may not do that.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.options.retry_timeout_ms / 1_000
        pause_s = _PAUSE_S
        while True:
            try:
                return await call()
            except NoPermissionError as error:
                raise LOGIN_REFUSED(address=self.address, reason=str(error)) from None
            except LOST as error:
                if loop.time() + pause_s > deadline:
                    raise ConnectionLostError(address=self.address, reason=str(error)) from None
            if self.is_cluster:
                # Pipelines do not find the replica that has taken over by themselves.
                with contextlib.suppress(*LOST):
                    await self.redis.nodes_manager.initialize()
            await asyncio.sleep(pause_s * self._random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)
