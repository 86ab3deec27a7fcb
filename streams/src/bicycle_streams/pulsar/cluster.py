"""A Pulsar cluster: its client, its topics, and its administration. Calls here wait: use a thread.

Logging of the client is disabled: with a Python logger, its threads would acquire the interpreter's
lock for each log message, and by default it writes to the standard output.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

import pulsar

from bicycle_sdk.random_source import system_random
from bicycle_streams.addresses import StreamerUri, StreamKey
from bicycle_streams.errors import StreamConnectError
from bicycle_streams.messages import Message
from bicycle_streams.options import connect_error
from bicycle_streams.pulsar.errors import (
    ADMIN_UNREACHABLE,
    DEDUPLICATION_OFF,
    PARTITIONS_MISSING,
    READ_FAILED,
)
from bicycle_streams.pulsar.options import PulsarOptions
from bicycle_streams.pulsar.positions import id_of
from bicycle_streams.tls_failures import refused_handshake

T = TypeVar("T")
PORT = 6650
TLS_PROTOCOL = "pulsar+ssl"
_TLS_PORT = 6651
_ADMIN_PORT, _ADMIN_TLS_PORT = 8080, 8443
_MISSING, _CONFLICT = 404, 409
_ASKED_KEY = "bicycle"  # Any topic; a request for its partitions shows whether a broker responds.


class _NoRedirect(HTTPRedirectHandler):
    """Leaves redirects to the caller: the token must not be sent to another server."""

    def redirect_request(self, *_words: Any) -> None:
        return None


class Cluster:
    """A Pulsar cluster, and queries to it.

    Args:
        uri: ``pulsar://host:port,host:port``, or ``pulsar+ssl://`` with TLS.
        options: Options of the backend.
    """

    def __init__(self, uri: StreamerUri, options: PulsarOptions) -> None:
        self.address = str(uri)
        self.options = options
        self._timeout_s = max(1, options.connect_timeout_ms // 1_000)
        self._tls = options.tls_context(str(uri), TLS_PROTOCOL)
        self._hosts = uri.hosts(PORT if self._tls is None else _TLS_PORT)
        names = ",".join(f"{_host_text(host)}:{port}" for host, port in self._hosts)
        self._service_url = f"{uri.protocol}://{names}"
        host = _host_text(self._hosts[0][0])
        by_itself = f"http://{host}:{_ADMIN_PORT}"
        if self._tls is not None:
            by_itself = f"https://{host}:{_ADMIN_TLS_PORT}"
        self._admin_url = (options.admin_url or by_itself).rstrip("/")
        self._client: Any = None

    @property
    def client(self) -> Any:
        """The client of Pulsar; there once it is open."""
        return self._client

    def open(self) -> None:
        """Reach the cluster once.

        Raises:
            StreamConnectError: no broker responds, or rejects the login or the TLS handshake.
        """
        options = self.options
        words: dict[str, Any] = {}
        if options.token is not None:
            words["authentication"] = pulsar.AuthenticationToken(options.token)
        elif options.cert_file is not None:
            key_file = options.key_file or options.cert_file
            words["authentication"] = pulsar.AuthenticationTLS(options.cert_file, key_file)
        try:
            self._client = pulsar.Client(
                self._service_url,
                operation_timeout_seconds=self._timeout_s,
                connection_timeout_ms=options.connect_timeout_ms,
                logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
                stats_interval_in_seconds=0,
                tls_trust_certs_file_path=options.ca_file,
                tls_validate_hostname=True,
                **words,
            )
            self._client.get_topic_partitions(self._topic(_ASKED_KEY))
        except (pulsar.PulsarException, ValueError, RuntimeError) as error:
            self.close()
            # For the client, a failed handshake is a connection that was closed.
            refused = None if self._tls is None else self._refused_handshake(self._tls)
            raise connect_error(self.address, str(refused or reason_of(error))) from None

    def _refused_handshake(self, context: ssl.SSLContext) -> Exception | None:
        host, port = self._hosts[0]
        return refused_handshake(host, port, context, timeout_s=self._timeout_s)

    def close(self) -> None:
        """Close the client; all that was made with it is closed by then."""
        client, self._client = self._client, None
        if client is not None:
            try:
                client.close()
            except pulsar.PulsarException:
                client.shutdown()  # The server does not respond; it has the acknowledged messages.

    def partitions(self, key: str, count: int = 0) -> list[str]:
        """Return the topics of the shards: at least so many, made where that is allowed.

        Raises:
            StreamConnectError: it has fewer.
        """
        wanted = max(1, count)
        names = self._partitions(key)
        may_make = self.options.create == "if-missing"
        if may_make and not self._is_partitioned(names) and not self._exists(key):
            self._ask("PUT", f"{self._path(key)}/partitions", max(wanted, self.options.partitions))
            names = self._partitions(key)
        if may_make and self._is_partitioned(names) and len(names) < wanted:
            self._ask("POST", f"{self._path(key)}/partitions", wanted)
            names = self._partitions(key)
        if len(names) < wanted:
            raise PARTITIONS_MISSING(
                address=self.address,
                key=key,
                found=len(names) if self._is_partitioned(names) else 0,
                partitions=wanted,
            )
        return names

    def last_id(self, topic: str) -> Any:
        """Return the position of a topic's last message, or None if it is empty.

        Only a consumer can read it, so a consumer is open for a moment.
        """
        with self.temporary_consumer(topic) as looking:
            return last_id_of(looking)

    def open_reader(self, topic: str, sequence: int, *, after: Any = None, queue_size: int) -> Any:
        """Return a reader of a topic's messages.

        Args:
            topic: The topic of one shard.
            sequence: Begins at the entry of this sequence; 0 is the first entry.
            after: The id after which it begins instead.
            queue_size: Messages that the client fetches ahead.
        """
        begin = after
        if begin is None:
            begin = id_of(sequence) if sequence else pulsar.MessageId.earliest
        return self._client.create_reader(
            topic,
            begin,
            receiver_queue_size=queue_size,
            start_message_id_inclusive=after is None,
        )

    @contextmanager
    def temporary_consumer(self, topic: str, time_ms: int | None = None) -> Iterator[Any]:
        """Yield the consumer of a temporary group, which begins at a publish time."""
        name = f"bicycle-look-{system_random().getrandbits(64):016x}"
        try:
            consumer = self.subscribe(topic, name, position=time_ms)
        except pulsar.PulsarException:
            with suppress(pulsar.PulsarException):  # A group that remains retains messages.
                self.subscribe(topic, name).unsubscribe()
            raise
        try:
            yield consumer
        finally:
            consumer.unsubscribe()
            consumer.close()

    def subscribe(
        self,
        topic: str,
        group: str,
        *,
        position: Any = None,
        receiver_queue_size: int = 1,
        **words: Any,
    ) -> Any:
        """Return a member of a group, which moves first if a position is given.

        A client that has moved its group is closed, and another one reads. The messages that
        the broker sent to it before, during and after the move are lost with it.

        Args:
            topic: The topic of one shard.
            group: The name of the subscription.
            position: A message id, or a time in ms since the epoch.
            receiver_queue_size: Messages that the client fetches ahead.
            words: Further settings of the client.

        Raises:
            pulsar.ConsumerBusy: another member has the group for itself.
        """
        words |= {"batch_index_ack_enabled": True, "start_message_id_inclusive": True}

        def join(size: int) -> Any:
            return self._client.subscribe(topic, group, receiver_queue_size=size, **words)

        if position is None:
            return join(receiver_queue_size)
        mover = join(1)
        try:
            # Brokers refuse it while they still begin the subscription.
            self._retry(lambda: mover.seek(position), pulsar.BrokerMetadataError)
        finally:
            mover.close()
        return self._retry(lambda: join(receiver_queue_size), pulsar.ConsumerBusy)

    def _retry(self, call: Callable[[], T], passing: type[pulsar.PulsarException]) -> T:
        """Repeat a call that raises a passing error, up to the connect timeout."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return call()
            except passing:
                if time.monotonic() > deadline_s:
                    raise

    def require_deduplication(self, key: str) -> None:
        """Require deduplication on the brokers.

        Raises:
            StreamUnsupportedError: deduplication is off, or unknown.
        """
        try:
            namespace = self._ask("GET", f"namespaces/{self.options.namespace}/deduplication")
            if namespace is None:  # The namespace has no word of its own.
                settings = self._ask("GET", "brokers/configuration/runtime") or {}
                namespace = settings.get("brokerDeduplicationEnabled") == "true"
        except StreamConnectError as error:
            raise DEDUPLICATION_OFF(address=self.address, key=key, reason=error.summary) from None
        if not namespace:
            reason = "deduplication is disabled in its namespace"
            raise DEDUPLICATION_OFF(address=self.address, key=key, reason=reason)

    def calling(self, call: Callable[[], T]) -> T:
        """Return the answer of a call of the client.

        Raises:
            READ_FAILED: there is no such value.
        """
        try:
            return call()
        except pulsar.PulsarException as error:
            raise READ_FAILED(address=self.address, reason=reason_of(error)) from None

    def _topic(self, key: str) -> str:
        return f"persistent://{self.options.namespace}/{key}"

    def _path(self, key: str) -> str:
        return f"persistent/{self.options.namespace}/{quote(key)}"

    def _partitions(self, key: str) -> list[str]:
        topic = self._topic(key)
        names: list[str] = self.calling(lambda: self._client.get_topic_partitions(topic))
        return names

    @staticmethod
    def _is_partitioned(names: list[str]) -> bool:
        return len(names) > 1 or "-partition-" in names[0]

    def _exists(self, key: str) -> bool:
        topics = self._ask("GET", f"persistent/{self.options.namespace}") or []
        return self._topic(key) in topics

    def _ask(self, method: str, path: str, data: object = None) -> Any:
        """Return the response of the administration; a conflict counts as success."""
        url = f"{self._admin_url}/admin/v2/{path}"
        headers = {"Content-Type": "application/json"}
        if self.options.token is not None:
            headers["Authorization"] = f"Bearer {self.options.token}"
        body = None if data is None else json.dumps(data).encode()
        try:
            request = Request(url, data=body, headers=headers, method=method)
            opener = build_opener(HTTPSHandler(context=self._tls), _NoRedirect)
            with opener.open(request, timeout=self._timeout_s) as answer:
                text = answer.read()
            return json.loads(text) if text else None
        except HTTPError as error:
            if error.code == _CONFLICT:
                return None
            reason = f"{error.code} {error.reason}"
            if target := error.headers.get("Location"):
                found = urlsplit(target)
                reason += f" to {found.scheme}://{found.netloc.rpartition('@')[2]}"
        except (URLError, OSError, ValueError) as error:
            reason = str(getattr(error, "reason", error))
        raise ADMIN_UNREACHABLE(address=self.address, url=self._admin_url, reason=reason)


def last_id_of(consumer: Any) -> Any:
    """Return the id of the last message that a consumer's topic has, or None."""
    found = consumer.get_last_message_id()
    return None if found.entry_id() < 0 else found


def message_of(found: Any, stream: tuple[StreamKey, int], sequence: int) -> Message:
    """Return a message of the client; an empty key is None."""
    headers = tuple((name, value.encode()) for name, value in found.properties().items())
    key = found.partition_key().encode() or None
    return Message(*stream, sequence, time_of(found), found.data() or b"", key, headers)


def time_of(found: Any) -> int:
    """Return the time of a message: its event time, else its publish time."""
    return int(found.event_timestamp() or found.publish_timestamp())


def reason_of(error: Exception) -> str:
    """Return the client's message of an error."""
    return str(error).removeprefix("Pulsar error: ") or type(error).__name__


def _host_text(host: str) -> str:
    return f"[{host}]" if ":" in host else host
