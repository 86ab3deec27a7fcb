"""Clients of a Redis server or cluster, and calls that are repeated for a time.

The toolkit and the connectors of jobs find a server here.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redis import Redis, cluster
from redis import asyncio as asynchronous
from redis.asyncio import cluster as asynchronous_cluster
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
from redis.retry import Retry as SyncRetry

from bicycle_sdk.random_source import system_random
from bicycle_streams.addresses import StreamerUri
from bicycle_streams.errors import ConnectionLostError, StreamUrlError
from bicycle_streams.options import connect_error
from bicycle_streams.redis.errors import LOGIN_REFUSED
from bicycle_streams.redis.options import RedisOptions
from bicycle_streams.tls_failures import refused_handshake, tls_hint

T = TypeVar("T")
# The first two are raised by the client; errors of clusters end when a replica takes over.
LOST = (
    ConnectionError, TimeoutError, OSError, ClusterError, RedisClusterException, TryAgainError,
    ReadOnlyError,
)  # fmt: skip
PORT = 6379
_IS_CLUSTER = b"cluster_enabled:1"
_ITS_OWN = ("CLUSTER", "COMMAND", "READONLY", "SCAN")
# While several streams of a cluster are read, each node delays an empty response for this time.
_CLUSTER_BLOCK_MS = 50
_SCAN_COUNT = 1_000
_PAUSE_S, _PAUSE_MAX_S = 0.02, 1.0


def open_client(uri: StreamerUri, options: RedisOptions, retry: SyncRetry) -> Any:
    """Return a client that waits, of a server or of a cluster.

    Args:
        uri: The server, or some nodes of a cluster.
        options: Options of the backend.
        retry: How often lost connections are retried, and the pauses.

    Raises:
        RedisError: no node answers, or the login is refused.
        StreamUrlError: several nodes are named, and they are no cluster.
    """
    client, is_cluster = _find_node(uri, options, retry)
    if not is_cluster:
        return client
    client.close()
    # The library lacks types here.
    nodes = [cluster.ClusterNode(*host) for host in uri.hosts(PORT)]  # type: ignore[no-untyped-call]
    words = _client_words(uri, options)
    found: Any = cluster.RedisCluster(startup_nodes=nodes, retry=retry, **words)
    for node in found.get_nodes():
        _as_they_come(found.get_redis_connection(node).response_callbacks)
    return found


def _find_node(uri: StreamerUri, options: RedisOptions, retry: SyncRetry) -> tuple[Any, bool]:
    """Return a client of the first node that answers; whether it is of a cluster."""
    words = {**_client_words(uri, options), "db": options.db, "retry": retry}
    words["retry_on_error"] = [ConnectionError, TimeoutError]
    hosts = uri.hosts(PORT)
    for number, (host, port) in enumerate(hosts, start=1):
        client: Any = Redis(host=host, port=port, **words)
        _as_they_come(client.response_callbacks)
        try:
            is_cluster = _IS_CLUSTER in client.execute_command("INFO", "cluster")
        except NoPermissionError:
            return client, False  # This user may not ask.
        except LOST as error:
            client.close()
            is_refusal = isinstance(error, AuthenticationError | AuthorizationError)
            if is_refusal or number == len(hosts):
                raise
            continue
        if is_cluster or len(hosts) == 1:
            return client, is_cluster
        client.close()
        problem = "it has several nodes, but the first that responds is not a cluster"
        raise StreamUrlError(address=str(uri), problem=problem)
    raise AssertionError("an address has a node")


def facts_of(pairs: list[Any]) -> dict[str, Any]:
    """Return the fields of an ``XINFO`` response by name."""
    return {name.decode(): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}


def _as_they_come(callbacks: dict[str, Any]) -> None:
    """Disable the conversion of responses, except for requests of the client itself."""
    for name in [name for name in callbacks if not name.startswith(_ITS_OWN)]:
        del callbacks[name]


def _client_words(uri: StreamerUri, options: RedisOptions) -> dict[str, Any]:
    """Return the arguments of all clients.

    Raises:
        STREAM_TLS_UNUSABLE: a file cannot be used, or is given for redis://.
    """
    timeout_s = options.connect_timeout_ms / 1_000
    words: dict[str, Any] = {
        "username": options.username or None,
        "password": options.password,
        "protocol": 2,
        "socket_connect_timeout": timeout_s,
        "socket_timeout": timeout_s + options.block_ms / 1_000,
        "socket_keepalive": True,
    }
    if options.tls_context(str(uri), "rediss") is None:
        return words
    words |= {
        "ssl": True,
        "ssl_ca_certs": options.ca_file,
        "ssl_certfile": options.cert_file,
        "ssl_keyfile": options.key_file,
    }
    if options.verify_certificate:
        return words
    return words | {"ssl_cert_reqs": "none", "ssl_check_hostname": False}


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
        self._uri = uri
        self._words = _client_words(uri, options)
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
            retry: Any = SyncRetry(NoBackoff(), 0)
            found = await asyncio.to_thread(_find_node, self._uri, self.options, retry)
            client, self.is_cluster = found
            node = {name: client.get_connection_kwargs()[name] for name in ("host", "port")}
            client.close()
            retry = Retry(NoBackoff(), 0)  # `again` tries again.
            if self.is_cluster:
                nodes = [asynchronous_cluster.ClusterNode(*host) for host in self._hosts]
                self.redis = asynchronous.RedisCluster(
                    startup_nodes=nodes, retry=retry, **self._words
                )
                await self.redis.initialize()
            else:
                words = {**self._words, **node, "db": self.options.db}
                self.redis = asynchronous.Redis(retry=retry, **words)
            _as_they_come(self.redis.response_callbacks)
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
        timeout_s = self.options.connect_timeout_ms / 1_000
        found = await asyncio.to_thread(
            refused_handshake, *self._hosts[-1], self._tls, timeout_s=timeout_s
        )
        return found or error

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
        if self.is_cluster:
            await self.redis.initialize()  # It forgot its nodes when one of them went away.
        found = self.redis.scan_iter(pattern, _SCAN_COUNT, _type="stream")
        return sorted({name async for name in found})

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
