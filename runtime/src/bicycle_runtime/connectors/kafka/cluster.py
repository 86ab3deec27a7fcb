"""The driver's requests to brokers: topics, offsets, reports to a consumer group.

They go through a consumer that has no partitions (see ``bicycle_streams.kafka.offsets``). A missing
answer because no broker is there is a ``ClusterSilentError``: the caller asks again later. After
long silence, another client asks (``bicycle_streams.kafka.silence``).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from threading import Thread
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from bicycle_runtime.connectors.kafka.reader import partition_of
from bicycle_runtime.connectors.kafka.settings import SOURCE_DEFAULTS, ClientProperties
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.logging import log_event
from bicycle_streams.kafka.failures import (
    ABSENT,
    NO_RIGHTS,
    LastError,
    Rights,
    is_of_group,
    is_outage,
    is_refusal,
)
from bicycle_streams.kafka.offsets import LATEST, ask_offsets
from bicycle_streams.kafka.silence import Silence, close_behind
from bicycle_streams.kafka.topics import visible_topics

_logger = logging.getLogger(__name__)
_REQUEST_S = 3.0
_RENEW_S = 10.0
_CLOSE_S = 2.0


class ClusterSilentError(Exception):
    """No broker answered in time. Internal to the source; ``refusal`` is set when one said no."""

    def __init__(self, reason: str, refusal: KafkaError | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refusal = refusal


class OffsetQuery:
    """A question for offsets that is under way.

    Args:
        future: Returns places with an offset or an error each.
        cluster: Makes errors of ours.
    """

    def __init__(self, future: Future[list[TopicPartition]], cluster: Brokers) -> None:
        self._future = future
        self._cluster = cluster
        self._asked_s = self._done_s = cluster.now_s()
        future.add_done_callback(self._note_done)

    def _note_done(self, _future: Future[list[TopicPartition]]) -> None:
        self._done_s = self._cluster.now_s()

    @property
    def duration_s(self) -> float:
        """The duration of the request."""
        return self._done_s - self._asked_s

    def is_done(self, wait_s: float) -> bool:
        """Wait a little, and return whether the answer is there."""
        return not wait([self._future], timeout=wait_s).not_done

    def result(self) -> dict[str, int]:
        """Return the offsets, without removed and leaderless partitions.

        Raises:
            ClusterSilentError: no broker answered.
            KafkaAccessError: a broker refused the request.
        """
        action = "the request for offsets"
        try:
            topic_partitions = self._future.result()
        except KafkaException as error:
            if error.args[0].code() in ABSENT:
                return {}
            raise self._cluster.silence(error.args[0], action) from None
        offsets: dict[str, int] = {}
        silent: KafkaError | None = None
        for each in topic_partitions:
            if each.error is None:
                offsets[f"{each.topic}/{each.partition}"] = each.offset
            elif each.error.code() not in ABSENT:
                rights = Rights(topic=each.topic)
                self._cluster.refuse_unless_outage(each.error, action, rights)
                silent = each.error
        if silent is not None and not offsets:
            raise self._cluster.silence(silent, action)
        if offsets:
            self._cluster.note_answer()
        return offsets


class IdentityQuery:
    """A question for the ids of topics that is under way.

    Args:
        futures: By topic.
    """

    def __init__(self, futures: Mapping[str, Future[Any]]) -> None:
        self._futures = futures

    def is_done(self, wait_s: float) -> bool:
        """Wait up to some seconds; return whether all answers are there."""
        return not wait(self._futures.values(), timeout=wait_s).not_done

    def result(self) -> dict[str, str]:
        """Return the ids that are known; a topic without an answer is absent."""
        found = {}
        for name, future in self._futures.items():
            if future.done():
                with contextlib.suppress(KafkaException):
                    found[name] = str(future.result().topic_id)
        return found


class Brokers:
    """The brokers, as the driver of a source sees them. Connects when it is made.

    Args:
        properties: Of the vertex, with brokers and group.
        on_reported: Called by ``serve`` with the error, or None, of a report to the group; also
            when the group may not be used.
    """

    def __init__(
        self,
        properties: ClientProperties,
        *,
        on_reported: Callable[[KafkaError | None], None],
    ) -> None:
        self.properties = properties.with_defaults(SOURCE_DEFAULTS).bound()
        self._last = LastError()
        self._on_reported = on_reported
        self._clock = SystemClock()  # Real time passes in real requests.
        self._silence: Silence | None = None  # Since the first request without an answer.
        self._admin: AdminClient | None = None
        self._connect()

    def _connect(self) -> None:
        callbacks = {
            "error_cb": self._last.note,
            "on_commit": lambda error, _partitions: self._on_reported(error),
        }
        self._client = self.properties.open(Consumer, callbacks)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kafka-offsets")

    def close(self) -> None:
        """Wait a moment for requests in progress, and close the connection."""
        self._leave_client().join(_CLOSE_S)

    def _leave_client(self) -> Thread:
        """Begin to close the client, once nothing uses it."""
        client, pool = self._client, self._pool

        def close() -> None:
            pool.shutdown(wait=True, cancel_futures=True)
            client.close()

        return close_behind(close)

    def now_s(self) -> float:
        """Return the time on the clock by which waits for brokers are measured."""
        return self._clock.monotonic()

    def serve(self, wait_s: float = 0) -> None:
        """Serve the client's events; without a right to its group, stop reports."""
        event = self._client.poll(wait_s)
        error = None if event is None else event.error()
        if error is not None and is_of_group(error):
            self._on_reported(error)

    def names(self, timeout_s: float) -> list[str]:
        """Return all topics that this user may see, Kafka's own ones left out.

        Raises:
            ClusterSilentError: no broker answered.
        """
        action = "listing topics"
        try:
            return list(visible_topics(self._client, timeout_s))
        except KafkaException as error:
            raise self.silence(error.args[0], action) from None

    def partition_counts(self, names: Iterable[str], timeout_s: float) -> dict[str, int]:
        """Return the topics that exist, each with the number of its partitions.

        Raises:
            ClusterSilentError: no broker answered.
            KafkaAccessError: a topic may not be described by this user.
        """
        counts: dict[str, int] = {}
        for name in names:
            action = f"the description of topic {name!r}"
            try:
                topic = self._client.list_topics(name, timeout=timeout_s).topics[name]
            except KafkaException as error:
                raise self.silence(error.args[0], action) from None
            if topic.error is None:
                counts[name] = len(topic.partitions)
            elif topic.error.code() not in ABSENT:
                raise self.silence(topic.error, action, Rights(topic=name))
        return counts

    def ask_identities(self, names: Sequence[str]) -> IdentityQuery:
        """Request the ids of topics, which change when a topic is created again.

        Does not wait. Called right after the brokers answered something else: see above.
        """
        if self._admin is None:
            self._admin = self.properties.open(AdminClient, {})
        topics = TopicCollection(list(names))
        asked = self._admin.describe_topics(topics, request_timeout=_REQUEST_S) if names else {}
        return IdentityQuery(asked)

    def ask(
        self, shards: Iterable[str], timestamp_ms: int, client: Consumer | None = None
    ) -> OffsetQuery:
        """Request offsets of partitions. Does not wait.

        Args:
            shards: The partitions.
            timestamp_ms: A time in ms since 1970: the answer is the first offset at or after it, or
                -1. ``EARLIEST`` requests the first offset, ``LATEST`` the end of what may be read.
            client: Sends the request. Default: the client of these brokers.
        """
        topic_partitions = [TopicPartition(*partition_of(shard), timestamp_ms) for shard in shards]
        if not topic_partitions:
            nothing: Future[list[TopicPartition]] = Future()
            nothing.set_result([])
            return OffsetQuery(nothing, self)
        asked = self._pool.submit(ask_offsets, client or self._client, topic_partitions, _REQUEST_S)
        return OffsetQuery(asked, self)

    def high_ends(self, shards: Sequence[str]) -> dict[str, int]:
        """Return the ends of partitions with open transactions; as ``OffsetQuery.result``."""
        own = {"isolation.level": "read_uncommitted"}
        with closing(self.properties.open(Consumer, own)) as client:
            return self.ask(shards, LATEST, client).result()

    def report(self, offsets: Mapping[str, int]) -> None:
        """Report offsets to the consumer group.

        Does not wait: ``serve`` reports the result.

        Raises:
            KafkaException: the client cannot even try.
        """
        topic_partitions = [
            TopicPartition(*partition_of(shard), offset) for shard, offset in offsets.items()
        ]
        self._client.commit(offsets=topic_partitions, asynchronous=True)

    def refuse_unless_outage(
        self, error: KafkaError, action: str, rights: Rights = NO_RIGHTS
    ) -> None:
        """Raise our error unless it goes away by itself."""
        if is_refusal(error) or not is_outage(error):
            raise self.properties.error(error, action, rights)

    def silence(
        self, error: KafkaError, action: str, rights: Rights = NO_RIGHTS
    ) -> ClusterSilentError:
        """Return the error of an outage, with the client's last error; raise others.

        When there was no answer for long, the next question goes through another client.
        """
        self.refuse_unless_outage(error, action, rights)
        self.serve()
        if self._silence is None and (refused := self.properties.refused_handshake()):
            self._last.error = refused
        reason = self.properties.redacted(self._last.error or error)
        self._renew_if_silent()
        return ClusterSilentError(reason, self._last.refusal)

    def note_answer(self) -> None:
        """Forget why brokers were silent."""
        self._last.error = self._silence = None

    def _renew_if_silent(self) -> None:
        if self._silence is None:
            self._silence = Silence(self._clock, after_s=_RENEW_S)
        elif self._silence.is_over_limit():
            self._leave_client()
            self._admin = None
            self._connect()
            log_event(_logger, "kafka_client_renewed", vertex=self.properties.vertex)
