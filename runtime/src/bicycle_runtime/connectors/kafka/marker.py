"""Epoch markers: the last published epoch of each writer, in its transactions.

A marker is a record in a compacted topic of its own, one partition per writer. It is in the
transaction that carries the messages, so it is there exactly when they are. ``identity``
distinguishes the history of one checkpoint directory from that of a job of the same name that began
from the start.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from bicycle_runtime.base.stored import STORED_VERSION, refuse_newer
from bicycle_runtime.connectors.kafka.settings import ClientProperties
from bicycle_sdk.clock import Clock
from bicycle_streams.kafka.offsets import messages_to_end, watermarks

_CALL_S = 1.0
_PAUSE_S = 0.01
_READ_S_MAX = 20.0
_FIRST_REACH = 8
_TOPIC_LENGTH_MAX = 240  # Kafka allows 249.
_CONSUMER = {
    "group.id": "bicycle-markers",  # Needed, and never used: nothing is committed.
    "enable.partition.eof": "true",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": "10",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The last epoch of a history that a writer has published."""

    identity: str
    epoch: int

    def to_bytes(self) -> bytes:
        """Return the value of the record; ``from_bytes`` is the inverse."""
        return json.dumps(
            {"version": STORED_VERSION, "identity": self.identity, "epoch": self.epoch}
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> Marker:
        """Return the marker in a record of the partition ``path``.

        Raises:
            STORED_NEWER: a newer version of the runtime wrote it.
            ValueError: it is no marker.
        """
        found = json.loads(data)
        version = found.get("version") if isinstance(found, dict) else None
        if isinstance(version, int):
            refuse_newer(version, path=path)
        if version != STORED_VERSION:
            raise ValueError(f"{data[:100]!r} is not an epoch marker")
        return cls(identity=str(found["identity"]), epoch=int(found["epoch"]))


def branch_of(identity: str, word: str) -> str:
    """Return the identity of a history that continues another one.

    Example:
        >>> branch_of("a1", "b2"), is_branch("a1.b2", of="a1"), is_branch("a1", of="a1.b2")
        ('a1.b2', True, False)
    """
    return f"{identity}.{word}"


def is_branch(identity: str, *, of: str) -> bool:
    """Return whether a history is another one, or continues from it."""
    return identity == of or identity.startswith(f"{of}.")


def marker_topic_name(prefix: str) -> str:
    """Return the name of the marker topic that belongs to a transactional id prefix.

    Example:
        >>> marker_topic_name("bicycle-orders-counts")
        'bicycle-orders-counts-marker'
        >>> marker_topic_name("orders/eu")
        'orders-eu-df09ed59-marker'
    """
    plain = re.sub(r"[^a-zA-Z0-9._-]", "-", prefix)[: _TOPIC_LENGTH_MAX - 20]
    if plain != prefix:  # Two prefixes must never share a topic.
        plain += "-" + hashlib.sha256(prefix.encode()).hexdigest()[:8]
    return f"{plain}-marker"


class MarkerReader:
    """Reads the last marker of a partition.

    Args:
        client: Properties of the client.
        topic: The marker topic.
        clock: Bounds how long one reading may take.
        wait: Called between short waits; may raise to end the wait.
    """

    def __init__(
        self, client: ClientProperties, topic: str, clock: Clock, wait: Callable[[], None]
    ) -> None:
        self._client = client
        self._topic = topic
        self._clock = clock
        self._wait = wait

    def last(self, writers: list[int], *, behind: int = -1) -> dict[int, Marker]:
        """Return the last marker of each writer that has one.

        Args:
            writers: Their indexes, which are partitions of the topic.
            behind: Offset of a record that is known to be there (see ``end``); it is waited for
                until the brokers show it. Without it, a broker that has just restarted may hide
                the last records.

        Raises:
            KafkaException: the brokers do not answer, or do not show that record.
        """
        with closing(self._client.open(Consumer, _CONSUMER)) as consumer:
            found = {writer: self._last_of(consumer, writer, behind) for writer in writers}
        return {writer: marker for writer, marker in found.items() if marker is not None}

    def end(self, writer: int) -> int:
        """Return the offset behind all records of a writer's partition, committed or not.

        Raises:
            KafkaException: the brokers do not answer.
        """
        uncommitted = {**_CONSUMER, "isolation.level": "read_uncommitted"}
        with closing(self._client.open(Consumer, uncommitted)) as consumer:
            return self._bounds(consumer, TopicPartition(self._topic, writer), behind=-1)[1]

    def _last_of(self, consumer: Consumer, partition: int, behind: int) -> Marker | None:
        """Read backward from the last stable offset, ever further, until a record appears."""
        topic_partition = TopicPartition(self._topic, partition)
        low, end = self._bounds(consumer, topic_partition, behind)
        reach = _FIRST_REACH
        while low < end:
            start = max(low, end - reach)
            data = self._last_record(consumer, TopicPartition(self._topic, partition, start))
            if data is not None:
                return Marker.from_bytes(data, path=f"{self._topic}/{partition}")
            if start == low:
                break
            reach *= 2
        return None

    def _bounds(
        self, consumer: Consumer, topic_partition: TopicPartition, behind: int
    ) -> tuple[int, int]:
        deadline = self._clock.monotonic() + _READ_S_MAX
        while True:
            reason = f"{topic_partition} ends before offset {behind}"
            problem = KafkaException(KafkaError(KafkaError._TIMED_OUT, reason))
            try:
                low, end = watermarks(consumer, topic_partition, _CALL_S)
                if end > behind:
                    return low, end
            except KafkaException as error:
                problem = error
            if self._clock.monotonic() > deadline:
                raise problem
            self._wait()
            consumer.poll(_PAUSE_S)  # Nothing is assigned: it only waits.

    def _last_record(self, consumer: Consumer, start: TopicPartition) -> bytes | None:
        """Return the value of the last committed record from ``start`` on."""
        last: bytes | None = None
        for message in messages_to_end(
            consumer, [start], limit_s=_READ_S_MAX, clock=self._clock, wait=self._wait
        ):
            last = message.value() or last
        return last
