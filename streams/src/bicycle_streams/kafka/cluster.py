"""A Kafka cluster: the settings of its clients, and its topics. Calls here wait: use a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bicycle_sdk.kafka.values import is_secret_property
from bicycle_sdk.secrets import Secret
from bicycle_streams.addresses import StreamerUri
from bicycle_streams.kafka.clients import ClientConfigError, ClientSettings, texts
from bicycle_streams.kafka.errors import SETTINGS_UNREADABLE, TOPIC_MISSING
from bicycle_streams.kafka.offsets import end_offsets, watermarks
from bicycle_streams.kafka.options import KafkaOptions
from bicycle_streams.kafka.topics import grow_topic, make_topic, patiently
from bicycle_streams.options import connect_error

C = TypeVar("C")
S = TypeVar("S", bound=str)
T = TypeVar("T")
_RETRY_S = 0.1


class Cluster:
    """A Kafka cluster, and queries to it.

    Args:
        uri: ``kafka://host:port,host:port``.
        options: Options of the backend.

    Attributes:
        admin_client: The client for questions about topics and groups; there once it is open.
    """

    def __init__(self, uri: StreamerUri, options: KafkaOptions) -> None:
        self.address = str(uri)
        self.options = options
        self._timeout_s = options.connect_timeout_ms / 1_000
        self._bootstrap = ",".join(uri.nodes)

    @cached_property
    def _settings(self) -> ClientSettings:
        options = self.options
        plain: dict[str, str] = {
            "bootstrap.servers": self._bootstrap,
            "security.protocol": "PLAINTEXT",
            "client.id": "bicycle",
            "log_level": "0",
        }
        secrets: dict[str, str] = {}
        given = {**options.security_properties(), **(options.properties or {})}
        for name, value in given.items():
            text = value.reveal() if isinstance(value, Secret) else value
            (secrets if is_secret_property(name) else plain)[name] = text
        settings = ClientSettings(plain=plain, values=secrets)
        for name, problem, hint in settings.contradictions():  # No secret is sent in the clear.
            reason = f"{name}: {problem}; {hint}"
            raise SETTINGS_UNREADABLE(address=self.address, reason=reason)
        return settings

    def open_client(self, make: Callable[[dict[str, Any]], C], own: Mapping[str, object]) -> C:
        """Return a client with the user's settings, which win over its own ones.

        Raises:
            StreamConnectError: the client refuses a setting.
        """
        try:
            return self._settings.with_defaults(texts(own)).open(make, {})
        except ClientConfigError as error:
            raise SETTINGS_UNREADABLE(address=self.address, reason=str(error)) from None

    def config_value(self, name: str, own: Mapping[str, object]) -> str | None:
        """Return a setting of a client, given by the user or its own, or None."""
        return self._settings.with_defaults(texts(own)).value(name)

    def redacted(self, reason: str | KafkaException | KafkaError) -> str:
        """Return the text of an error without secrets."""
        return self._settings.redacted(reason)

    def open(self) -> None:
        """Reach the cluster once.

        Raises:
            StreamConnectError: no broker answers, or the TLS handshake fails.
        """
        self.admin_client = self.open_client(AdminClient, {})
        try:
            self.admin_client.list_topics(timeout=self._timeout_s)
        except KafkaException as error:
            refused = self._settings.refused_handshake()
            raise connect_error(self.address, self.redacted(refused or error)) from None

    def ensure(self, topic: str, partition_count: int = 0) -> int:
        """Return a topic's partition count, created or increased if allowed and required.

        Raises:
            StreamConnectError: it has fewer, or does not exist.
        """
        wanted = max(1, partition_count)
        found = self.partition_count(topic)
        if found >= wanted:
            return found
        if self.options.create == "never":
            raise TOPIC_MISSING(address=self.address, key=topic, partitions=wanted)
        count = max(wanted, self.options.partitions)
        new = NewTopic(topic, count, replication_factor=self.options.replication_factor)
        try:
            if found:
                grow_topic(self.admin_client, topic, wanted, self._timeout_s)
            else:
                make_topic(self.admin_client, new, self._timeout_s)
        except KafkaException as error:
            raise connect_error(self.address, self.redacted(error)) from None
        if not self.wait_for_count(topic, lambda found: found >= wanted):
            raise TOPIC_MISSING(address=self.address, key=topic, partitions=wanted)
        return self.partition_count(topic)

    def wait_for_count(self, topic: str, is_wanted: Callable[[int], bool]) -> bool:
        """Return whether all brokers know a topic's required partition count in time."""
        deadline = time.monotonic() + self._timeout_s
        while not is_wanted(self.partition_count(topic)):
            if time.monotonic() > deadline:
                return False
            self.admin_client.poll(_RETRY_S)
        return True

    def patiently(self, call: Callable[[], T]) -> T:
        """Return the result of a call; repeat it while the cluster is not ready."""
        deadline = time.monotonic() + self._timeout_s

        def wait(error: KafkaException) -> None:
            if time.monotonic() > deadline:
                raise error
            self.admin_client.poll(_RETRY_S)

        return patiently(call, wait)

    def watermarks(self, client: Consumer, partition: TopicPartition) -> tuple[int, int]:
        """Return the first remaining offset of a partition, and its end."""
        return self.patiently(lambda: watermarks(client, partition, self._timeout_s))

    def ends(self, streams: Collection[tuple[S, int]]) -> dict[tuple[S, int], int]:
        """Return the end of partitions, behind messages of open transactions, too.

        Raises:
            KafkaException: a broker does not answer.
        """
        own = {"group.id": "bicycle-ends", "isolation.level": "read_uncommitted"}
        with closing(self.open_client(Consumer, own)) as client:
            return self.patiently(lambda: end_offsets(client, streams, self._timeout_s))

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 if it does not exist."""
        topics = self.admin_client.list_topics(timeout=self._timeout_s).topics
        return len(topics[topic].partitions) if topic in topics else 0
