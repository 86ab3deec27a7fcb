"""Ranges of offsets from one consumer per worker, which fetches ahead.

The consumer delivers the messages of all its partitions in one queue. Each partition has a *lane*:
messages taken from the queue and not yet requested. A range that begins at the lane's position, or
a little later, costs no round trip; any other range assigns the partition again. Offsets have holes
(compaction, transactions), so a range ends with a message, or with the end of the partition, at or
behind its end. Nothing is remembered beyond messages that the broker can send again.

A consumer that was not read from for a second fetches nothing more until it is.

A silent client is replaced, ever less often (``bicycle_streams.kafka.silence``).
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from bicycle_runtime.connectors.kafka.idle_rest import IdleRest
from bicycle_runtime.connectors.kafka.settings import SOURCE_DEFAULTS, ClientProperties
from bicycle_runtime.contract import ReadOn
from bicycle_sdk.clock import Clock
from bicycle_sdk.logging import log_event
from bicycle_streams.kafka.clients import READS_MANY
from bicycle_streams.kafka.failures import ABSENT, Rights, is_of_group, is_outage
from bicycle_streams.kafka.offsets import watermarks
from bicycle_streams.kafka.silence import Silence, close_behind

_logger = logging.getLogger(__name__)
# hot path: the first keeps the broker from answering each time that a message arrives: at 10,000
# messages a second p99 is 20 ms at least once instead of 27, and 102 exactly once instead of 117.
# The second bounds the added delay for a lone message, and how long a new partition waits for the
# fetch that is under way: up to 500 ms by the client's own default.
CONSUMER_DEFAULTS: Final = {
    **READS_MANY,
    **SOURCE_DEFAULTS,
    "fetch.min.bytes": "100000",
    "fetch.wait.max.ms": "5",
}
_CONSUMER_FIXED: Final = {
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
}
# hot path: a list that the processor's cache holds: 1.0 µs of processor time a message of 100 B,
# value taken; 1.24 with 10,000, where the bare client takes 0.9. More come in several lists.
MESSAGES_PER_CALL = 2_500
_WAIT_S = 0.1  # The longest time in which no signal is seen.
_SILENCE_S, _SILENCE_S_MAX = 10.0, 60.0
_CLOSE_S = 2.0
_REST_S = 1.0  # Two hundred fetches a second, which find nothing, cost a broker a tenth of a core.
_QUERY_S = 1.0
_SKIP_MAX = 20_000  # Messages that are rather taken and dropped than fetched again.
_ALONE_MIN = 20_000  # A longer range has the consumer to itself.
_HELD_COUNT_MAX = 20_000
_HELD_BYTES_MAX = 16 << 20
_GONE = ABSENT | {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class PartitionGoneError(Exception):
    """A range of offsets, or a partition, that no longer exists.

    Internal to the source: the reader decides about it. The text is the client's.
    """


@dataclass(slots=True)
class Lane:
    """One partition: every message from ``start`` on is in ``held`` or still to come.

    All before ``reached`` have come.
    """

    start: int
    reached: int
    held: list[Message] = field(default_factory=list)

    def add(self, messages: list[Message]) -> None:
        """Add messages of this partition; drop messages before ``start``."""
        if _offset(messages[0]) < self.start:
            messages = messages[_index_of(messages, self.start) :]
        if messages:
            self.reached = max(self.reached, _offset(messages[-1]) + 1)
            self.held = [*self.held, *messages] if self.held else messages

    def take(self, end: int) -> list[Message]:
        """Remove and return the held messages before ``end``."""
        cut = _index_of(self.held, end)
        if cut == len(self.held):
            taken, self.held = self.held, []
        else:
            taken, self.held = self.held[:cut], self.held[cut:]
        if taken:
            self.start = _offset(taken[-1]) + 1
        return taken

    def give_back(self, messages: list[Message]) -> None:
        """Return unused messages to the front."""
        if messages:
            self.held = messages + self.held
            self.start = _offset(messages[0])

    def skip(self, start: int) -> None:
        """Drop messages before ``start``."""
        self.take(start)
        self.start = start

    def is_full(self) -> bool:
        """Return whether more messages are held than permitted for an unread partition."""
        if len(self.held) > _HELD_COUNT_MAX:
            return True
        return sum(map(len, self.held)) > _HELD_BYTES_MAX


class RangeConsumer:
    """Reads ranges of offsets; made when first used, closed with its worker.

    Args:
        properties: Of the vertex, with brokers and group; bound.
        clock: For the log of long silences.
    """

    def __init__(self, properties: ClientProperties, clock: Clock) -> None:
        self._properties = properties.with_defaults(CONSUMER_DEFAULTS)
        self._clock = clock
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._client: Consumer | None = None
        self._last_reason = ""
        self._in_use = IdleRest(self._stop_fetching, after_s=_REST_S, clock=clock)

    def read(
        self, topic: str, partition: int, *, start: int, end: int, byte_count: int
    ) -> Iterator[tuple[list[Message], int]]:
        """Yield the messages of ``[start, end)`` in order, in lists with the next offset.

        The last list, which may be empty, is followed by ``end``. Stops early, behind at least one
        message, when ``byte_count`` is used up. Waits for the broker without a limit, in short
        steps, so that the task can be canceled.

        Raises:
            PartitionGoneError: retention, or a deletion, removed the messages to read.
            KafkaAccessError: the broker refuses this client.
            KAFKA_CLIENT_FAILED: a message is damaged, or the client stopped.
        """
        with self._in_use:
            yield from self._read((topic, partition), start, end, byte_count)

    def _read(
        self, topic_partition: tuple[str, int], start: int, end: int, byte_count: int
    ) -> Iterator[tuple[list[Message], int]]:
        lane = self._lane(topic_partition, start, end)
        left = byte_count
        silence = Silence(self._clock, after_s=_SILENCE_S, most_s=_SILENCE_S_MAX)
        while True:
            messages = lane.take(end)
            if messages:
                size = sum(map(len, messages))
                if size >= left:
                    fitting = _fitting(messages, left)
                    lane.give_back(messages[fitting:])
                    yield messages[:fitting], _offset(messages[fitting - 1]) + 1
                    return
                left -= size
            if lane.reached >= end:
                lane.start = end
                yield messages, end
                return
            if messages:
                yield messages, lane.start
                silence.end()
            self._pull((topic_partition,), _WAIT_S)
            if not lane.held and silence.is_over_limit():
                self._tell_silence(topic_partition, lane, end)
                self.close()
                lane = self._assign(topic_partition, lane.start)

    def read_on(
        self, starts: Mapping[tuple[str, int], int], limits: ReadOn
    ) -> Iterator[list[tuple[tuple[str, int], list[Message], int]]]:
        """Yield new messages of some partitions, with the offset after them.

        Messages available at one time come together. Ends at a limit, or at a partition that is
        removed: its next reader gets the error.

        Args:
            starts: Partitions, each with the offset to begin at.
            limits: How far to read.

        Raises:
            KafkaAccessError: the broker refuses this client.
            KAFKA_CLIENT_FAILED: a message is damaged, or the client stopped.
        """
        with self._in_use:
            yield from self._read_on(starts, limits)

    def _read_on(
        self, starts: Mapping[tuple[str, int], int], limits: ReadOn
    ) -> Iterator[list[tuple[tuple[str, int], list[Message], int]]]:
        deadline = self._clock.monotonic() + limits.duration_ms / 1_000
        count, size = limits.record_count, limits.byte_count
        lanes = {
            topic_partition: self._lane(topic_partition, start, start)
            for topic_partition, start in starts.items()
        }
        for topic_partition in self._lanes.keys() - lanes.keys():
            self.forget(*topic_partition)
        while True:
            pieces = []
            for topic_partition, lane in lanes.items():
                messages = lane.take(lane.reached) if count > 0 and size > 0 else []
                if messages:
                    fitting = min(_fitting(messages, size), count)
                    lane.give_back(messages[fitting:])
                    messages = messages[:fitting]
                    pieces.append((topic_partition, messages, lane.start))
                    count, size = count - fitting, size - sum(map(len, messages))
            if pieces:
                yield pieces
            left_s = deadline - self._clock.monotonic()
            if left_s <= 0 or count <= 0 or size <= 0:
                return
            try:
                self._pull(lanes, min(left_s, _WAIT_S))
            except PartitionGoneError:
                return

    def watermarks(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the first remaining offset and the end, or None for a missing partition."""
        silence = Silence(self._clock, after_s=_SILENCE_S)
        while True:
            try:
                return watermarks(self._consumer, TopicPartition(topic, partition), _QUERY_S)
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() in _GONE:
                    return None
                if not is_outage(reason):
                    action = f"the request for offsets of {topic}/{partition}"
                    raise self._properties.error(reason, action, Rights(topic=topic)) from None
                if silence.is_over_limit():
                    self.close()

    def forget(self, topic: str, partition: int) -> None:
        """Stop fetching a partition."""
        if self._lanes.pop((topic, partition), None) is not None and self._client is not None:
            self._client.incremental_unassign([TopicPartition(topic, partition)])

    def _stop_fetching(self) -> None:
        """Stop fetching while there is no reader; the connection remains open."""
        client = self._client
        self._lanes.clear()
        if client is not None:
            client.unassign()

    def close(self) -> None:
        """Close the connection; reading again opens it again."""
        with self._in_use:
            client, self._client = self._client, None
            self._lanes.clear()
        if client is not None:
            close_behind(client.close).join(_CLOSE_S)  # One that hangs must not hold up the task.

    @property
    def _consumer(self) -> Consumer:
        if self._client is None:
            self._client = self._properties.open(
                Consumer, {**_CONSUMER_FIXED, "error_cb": self._note}
            )
        return self._client

    def _lane(self, topic_partition: tuple[str, int], start: int, end: int) -> Lane:
        """Return a lane that is at ``start``."""
        lane = self._lanes.get(topic_partition)
        if lane is not None and lane.start <= start <= lane.reached + _SKIP_MAX:
            lane.skip(start)
            return lane
        topic, partition = topic_partition
        if end - start > _ALONE_MIN:
            self._lanes.clear()
            self._consumer.unassign()
        elif lane is not None:
            self.forget(topic, partition)
        return self._assign(topic_partition, start)

    def _assign(self, topic_partition: tuple[str, int], start: int) -> Lane:
        """Begin to fetch a partition; return its lane."""
        lane = self._lanes[topic_partition] = Lane(start=start, reached=start)
        self._consumer.incremental_assign([TopicPartition(*topic_partition, start)])
        return lane

    def _pull(self, wanted: Collection[tuple[str, int]], wait_s: float) -> None:
        """Move the client's messages into the lanes; wait a moment if it has no messages."""
        # hot path: consume() with a timeout waits for the full count; so it only collects available
        # messages, and poll() does the waiting: 1.8 M messages/s against 1.5 M.
        messages = self._consumer.consume(MESSAGES_PER_CALL, 0)
        if not messages:
            first = self._consumer.poll(wait_s)
            if first is None:
                return
            messages = [first, *self._consumer.consume(MESSAGES_PER_CALL, 0)]
        if len(self._lanes) == 1:
            [(only, lane)] = self._lanes.items()
            if _is_plain(messages, only):
                lane.add(messages)
                return
        for topic_partition, run in _runs(messages):
            self._put(topic_partition, run, is_wanted=topic_partition in wanted)
        for topic_partition in [
            topic_partition for topic_partition in self._lanes if topic_partition not in wanted
        ]:
            if self._lanes[topic_partition].is_full():
                self.forget(*topic_partition)

    def _put(
        self, topic_partition: tuple[str, int], messages: list[Message], *, is_wanted: bool
    ) -> None:
        """Add messages of one partition to its lane; events among them only move it on."""
        lane = self._lanes.get(topic_partition)
        if any(map(Message.error, messages)):
            events = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
            for event in events:
                self._take_event(topic_partition, event, is_wanted=is_wanted)
        if lane is not None and messages:
            lane.add(messages)

    def _take_event(
        self, topic_partition: tuple[str, int], event: Message, *, is_wanted: bool
    ) -> None:
        error = event.error()
        lane = self._lanes.get(topic_partition)
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            if lane is not None:
                lane.reached = max(lane.reached, _offset(event))
        elif is_outage(error) or is_of_group(error):
            self._note(error)
        elif lane is not None and not is_wanted:
            self.forget(*topic_partition)  # The next caller sees the error.
        elif error.code() in _GONE:
            self.forget(*topic_partition)
            raise PartitionGoneError(error.str())
        else:
            action = f"the read of partition {topic_partition[0]}/{topic_partition[1]}"
            rights = Rights(operation="Read", topic=topic_partition[0])
            raise self._properties.error(error, action, rights)

    def _note(self, error: KafkaError) -> None:
        """Keep the client's last words; called by it while it is polled."""
        self._last_reason = self._properties.redacted(error)

    def _tell_silence(self, topic_partition: tuple[str, int], lane: Lane, end: int) -> None:
        log_event(
            _logger,
            "kafka_silent",
            level=logging.WARNING,
            vertex=self._properties.vertex,
            partition=f"{topic_partition[0]}/{topic_partition[1]}",
            offset=lane.reached,
            end=end,
            reason=self._last_reason,
        )


def _fitting(messages: list[Message], byte_count: int) -> int:
    """Return how many messages use the bytes up; one at least."""
    total = 0
    for count, message in enumerate(messages, start=1):
        total += len(message)
        if total >= byte_count:
            return count
    return len(messages)


def _index_of(messages: list[Message], offset: int) -> int:
    """Return the index of the first message at or behind an offset."""
    if not messages or _offset(messages[-1]) < offset:
        return len(messages)
    return bisect_left(messages, offset, key=_offset)


def _is_plain(messages: list[Message], topic_partition: tuple[str, int]) -> bool:
    """Return whether all are messages of one partition, without an event."""
    is_one = (messages[0].topic(), messages[-1].topic()) == (topic_partition[0], topic_partition[0])
    is_one = is_one and set(map(Message.partition, messages)) == {topic_partition[1]}
    return is_one and not any(map(Message.error, messages))


def _runs(messages: list[Message]) -> Iterator[tuple[tuple[str, int], list[Message]]]:
    """Yield the messages of each partition, in order."""
    lanes: dict[tuple[str, int], list[Message]] = {}
    topic_partitions = zip(
        map(Message.topic, messages), map(Message.partition, messages), strict=True
    )
    for topic_partition, message in zip(topic_partitions, messages, strict=True):
        lanes.setdefault(topic_partition, []).append(message)  # type: ignore[arg-type]  # Never None here.
    yield from lanes.items()


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
