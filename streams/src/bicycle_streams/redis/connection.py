"""Calls of a Redis server or cluster, which are repeated for a time.

Consumers and producers of the toolkit, and connectors of jobs, use it on threads.
"""

from __future__ import annotations

import contextlib
import copy
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from redis import Redis, cluster
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
from redis.retry import Retry

from bicycle_sdk.random_source import system_random
from bicycle_streams.addresses import StreamerUri, StreamKey
from bicycle_streams.errors import ConnectionLostError, StreamUrlError
from bicycle_streams.options import connect_error
from bicycle_streams.redis.errors import LOGIN_REFUSED
from bicycle_streams.redis.ids import ZeroKey, shard_of
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
_THREADS_MAX = 32


def facts_of(pairs: list[Any]) -> dict[str, Any]:
    """Return the fields of an ``XINFO`` response by name."""
    return {name.decode(): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}


def _as_they_come(callbacks: dict[str, Any]) -> None:
    """Disable the conversion of responses, except for requests of the client itself."""
    for name in [name for name in list(callbacks) if not name.startswith(_ITS_OWN)]:
        callbacks.pop(name, None)  # Another thread may find the nodes at the same time.


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
    """A server or a cluster, and how long to wait for it. Its calls wait: use a thread.

    The client is opened at the first call. Each thread may make calls.

    Args:
        uri: ``redis://host:port`` or, with TLS, ``rediss://host:port``; of a cluster, some nodes.
        options: Options of the backend. With ``retry_timeout_ms=0``, no call is repeated.

    Attributes:
        is_stopping: Set when calls must not be repeated any longer.
    """

    def __init__(self, uri: StreamerUri, options: RedisOptions) -> None:
        self.address = str(uri)
        self.options = options
        self.is_stopping = threading.Event()
        self._random = system_random()
        self._uri = uri
        self._words = _client_words(uri, options)
        self._client: Any = None

    @property
    def redis(self) -> Any:
        """The client; a lost one is replaced after ``close``.

        Raises:
            RedisError: no node answers, or the login is refused.
            StreamUrlError: several nodes are named, and they are no cluster.
        """
        if self._client is None:
            self._client = self._find_client()
        return self._client

    @property
    def is_cluster(self) -> bool:
        """True if the server belongs to a cluster."""
        return isinstance(self.redis, cluster.RedisCluster)

    def branch(self) -> Connection:
        """Return a connection with the same client that can be stopped separately."""
        other = copy.copy(self)
        other.is_stopping = threading.Event()
        return other

    def open(self) -> None:
        """Reach the server once, and see whether it belongs to a cluster.

        Raises:
            StreamConnectError: it is not there, or refuses us.
            StreamUrlError: several nodes are named, and they are no cluster.
        """
        try:
            _ = self.redis
        except (AuthenticationError, AuthorizationError, ResponseError) as error:
            raise LOGIN_REFUSED(address=self.address, reason=str(error)) from None
        except LOST as error:  # Refusals of a login are among them for the client.
            raise connect_error(self.address, self._reason_of(error)) from None

    def _find_client(self) -> Any:
        """Return a client of the first node that answers, or of its cluster."""
        words = {**self._words, "db": self.options.db}
        hosts = self._uri.hosts(PORT)
        for number, (host, port) in enumerate(hosts, start=1):
            client: Any = Redis(host=host, port=port, retry=_no_retry(), **words)
            _as_they_come(client.response_callbacks)
            try:
                is_cluster = _IS_CLUSTER in client.execute_command("INFO", "cluster")
            except NoPermissionError:
                return client  # This user may not ask.
            except LOST as error:
                client.close()
                is_refusal = isinstance(error, AuthenticationError | AuthorizationError)
                if is_refusal or number == len(hosts):
                    raise
                continue
            if not is_cluster and len(hosts) == 1:
                return client
            client.close()
            if is_cluster:
                return self._cluster_client(hosts)
            problem = "it has several nodes, but the first that responds is not a cluster"
            raise StreamUrlError(address=str(self._uri), problem=problem)
        raise AssertionError("an address has a node")

    def _cluster_client(self, hosts: list[tuple[str, int]]) -> Any:
        # The library lacks types here.
        nodes = [cluster.ClusterNode(*host) for host in hosts]  # type: ignore[no-untyped-call]
        client: Any = cluster.RedisCluster(startup_nodes=nodes, retry=_no_retry(), **self._words)
        _as_nodes_send(client)
        return client

    def _reason_of(self, error: Exception) -> Exception:
        """Return the reason of the server if the client has lost it, or else the error."""
        tls = self.options.tls_context(self.address, "rediss")
        if tls is None or isinstance(error, TimeoutError) or tls_hint(error) is not None:
            return error
        if not self.options.verify_certificate:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        timeout_s = self.options.connect_timeout_ms / 1_000
        found = refused_handshake(*self._uri.hosts(PORT)[-1], tls, timeout_s=timeout_s)
        return found or error

    def close(self) -> None:
        """Close all connections; a later call opens a new client."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def call(self, *words: Any, retry_ms: int | None = None) -> Any:
        """Return the answer to a command that may be given twice; errors as of ``again``."""
        return self.again(lambda: self.redis.execute_command(*words), retry_ms)

    def again(self, call: Callable[[], T], retry_ms: int | None = None) -> T:
        """Call until the server answers.

        Args:
            call: Uses the client.
            retry_ms: How long to repeat it; by default ``retry_timeout_ms``.

        Raises:
            ConnectionLostError: it did not in that time.
            LOGIN_REFUSED: this user may not do that.
        """
        retry_ms = self.options.retry_timeout_ms if retry_ms is None else retry_ms
        deadline = time.monotonic() + retry_ms / 1_000
        pause_s = _PAUSE_S
        while True:
            try:
                return call()
            except NoPermissionError as error:
                raise LOGIN_REFUSED(address=self.address, reason=str(error)) from None
            except LOST as error:
                if time.monotonic() + pause_s > deadline or self.is_stopping.is_set():
                    raise ConnectionLostError(address=self.address, reason=str(error)) from None
            # Pipelines do not find the replica that has taken over by themselves.
            with contextlib.suppress(*LOST):
                if self.is_cluster:
                    self.redis.nodes_manager.initialize()
                    _as_nodes_send(self.redis)
            self.is_stopping.wait(pause_s * self._random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def names(self, pattern: str) -> list[bytes]:
        """Return the keys of streams that match a pattern, on all masters of a cluster."""
        return self.again(
            lambda: sorted(set(self.redis.scan_iter(pattern, _SCAN_COUNT, _type="stream")))
        )

    def shards(self, keys: Iterable[StreamKey]) -> dict[bytes, tuple[StreamKey, int]]:
        """Return the Redis streams that hold shards of streams; shard 0 may be missing."""
        found = {key.encode(): (key, 0) for key in keys}
        for key in [key for key, _ in found.values()]:
            for name in self.names(f"{key}:*"):
                if (shard := shard_of(name, key)) is not None:
                    found[name] = (key if shard else ZeroKey(key), shard)
        return dict(sorted(found.items()))

    def facts(self, name: bytes) -> dict[str, Any] | None:
        """Return the answer to ``XINFO STREAM`` by name; None if there is no such key."""
        try:
            return facts_of(self.call("XINFO", "STREAM", name))
        except ResponseError as error:
            if "no such key" in str(error):
                return None
            raise

    def move_group(self, name: bytes | str, group: str, last_id: bytes) -> None:
        """Set the position of a group, which is created if it is missing."""
        try:
            self.call("XGROUP", "SETID", name, group, last_id)
        except ResponseError:
            self.call("XGROUP", "CREATE", name, group, last_id, "MKSTREAM")

    def read(
        self, command: tuple[Any, ...], streams: dict[bytes, bytes], block_ms: int | None
    ) -> list[Any]:
        """Return entries of streams: stream names with entries.

        Args:
            command: ``XREAD`` or ``XREADGROUP``, up to ``BLOCK``.
            streams: Names of streams, each with the id after which it is read.
            block_ms: Time limit of the wait for an entry; None for no wait.
        """

        def ask(streams: dict[bytes, bytes], block_ms: int | None) -> list[Any]:
            block = () if block_ms is None else ("BLOCK", block_ms)
            words = (*command, *block, "STREAMS", *streams, *streams.values())
            return self.call(*words) or []

        if len(streams) == 1 or not self.is_cluster:
            return ask(streams, block_ms)
        # Each may be on another node; results of a node are kept if another node fails.
        wait_ms = None if block_ms is None else min(block_ms, _CLUSTER_BLOCK_MS)
        answers = side_by_side([partial(ask, dict([each]), wait_ms) for each in streams.items()])
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        found = [each for a in answers if not isinstance(a, BaseException) for each in a]
        if errors and not found:
            raise errors[0]
        return found


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T | BaseException]:
    """Return the results of calls that are made at once on threads, or their errors."""
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(min(len(calls), _THREADS_MAX)) as threads:
        futures = [threads.submit(call) for call in calls]
    return [future.exception() or future.result() for future in futures]


def _no_retry() -> Any:
    return Retry(NoBackoff(), 0)  # `Connection.again` repeats calls.


def _as_nodes_send(client: Any) -> None:
    """Disable the conversion of responses of all nodes of a cluster."""
    for node in client.get_nodes():
        _as_they_come(client.get_redis_connection(node).response_callbacks)
