"""The consumer of the Pulsar backend: alone, resumable, or one of a group.

A shard is a topic, read by a reader, which belongs to nobody but this process, or by a
subscription, which the cluster keeps. Both begin at an entry, which may hold many messages, so that
those before the wanted one are dropped here.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar, Self, TypeAlias

import pulsar

from bicycle_streams.addresses import WILDCARD, StreamKey
from bicycle_streams.consuming import Subscription
from bicycle_streams.errors import StreamEndedError, StreamError, StreamUnsupportedError
from bicycle_streams.messages import BEGINNING, END, At, Headers, Message, SeqPos
from bicycle_streams.pulsar.cluster import Cluster, reason_of
from bicycle_streams.pulsar.errors import (
    GROUP_IN_USE,
    POSITION_UNUSABLE,
    READ_FAILED,
)
from bicycle_streams.pulsar.positions import id_of, sequence_of
from bicycle_streams.thread_consuming import ThreadConsumer

__all__ = ["PulsarConsumer"]

Stream: TypeAlias = tuple[StreamKey, int]
_FIRST_MS = 5_000  # A message of which the client knows comes at once.
_WAIT_MS, _TURN_MS = 100, 5  # For one shard, and for one of several.


class PulsarConsumer(ThreadConsumer):
    """Reads topics; made by ``open``."""

    client_error: ClassVar[type[Exception]] = pulsar.PulsarException

    def __init__(self, cluster: Cluster, subscription: Subscription) -> None:
        super().__init__(cluster.address, subscription, cluster.options)
        self._cluster = cluster
        self._shards: dict[Stream, _Shard] = {}
        self._done: dict[Stream, list[int]] = {}  # Acknowledged, and not yet told.
        self._turn = 0

    @classmethod
    async def open(cls, cluster: Cluster, subscription: Subscription) -> Self:
        """Return a consumer whose position is fixed."""
        if WILDCARD in subscription.keys:
            raise _cannot(
                cluster, "read all streams", "the namespace may contain streams of other programs"
            )
        if not subscription.is_live and subscription.mode != "real-time":
            reason = "the position of a group is unknown, so its end cannot be detected"
            raise _cannot(cluster, "end where a stream ends in a group", reason)
        return await cls(cluster, subscription)._start()

    def _error_of(self, error: pulsar.PulsarException) -> StreamError:
        return READ_FAILED(address=self.address, reason=reason_of(error))

    def _begin(self) -> None:
        position = BEGINNING if self.subscription.start == "earliest" else END
        for stream, topic in self._topics().items():
            shard = self._shards[stream] = _Shard(self._cluster, stream, topic)
            if self._keeps:
                shard.subscribe(self.subscription)
            else:
                shard.read_from(position)

    def _topics(self) -> dict[Stream, str]:
        return {
            (key, number): topic
            for key in self.subscription.keys
            for number, topic in enumerate(self._cluster.partitions(key))
        }

    def _read(self) -> list[Message | StreamError]:
        shards = list(self._shards.values())
        items: list[Message | StreamError] = []
        for shard in shards:
            items += shard.take(self._prefetch_messages, 0)
        if items or not shards:
            return items
        if not self.subscription.is_live and all(shard.is_at_end() for shard in shards):
            raise StreamEndedError(address=self.address)
        self._turn = (self._turn + 1) % len(shards)
        wait_ms = _WAIT_MS if len(shards) == 1 else _TURN_MS
        return shards[self._turn].take(self._prefetch_messages, wait_ms)

    def _move_client(self, target: SeqPos | int) -> bool:
        wanted = {
            stream: self._shards.get(stream) or _Shard(self._cluster, stream, topic)
            for stream, topic in self._topics().items()
            if not self._assigned or stream in self._assigned
        }
        targets: dict[Stream, SeqPos] = {}
        for stream, shard in wanted.items():
            if isinstance(target, int | At):
                found = shard.find(target)
                targets[stream] = END if found is None else At(found)
            else:
                targets[stream] = target
        if isinstance(target, int | At) and all(each is END for each in targets.values()):
            return False
        if self._shares:
            self._shares = self._keeps = False
            for shard in self._shards.values():
                shard.close()
        for stream in self._shards.keys() - wanted.keys():
            self._shards[stream].close()
        for stream, shard in wanted.items():
            if self._keeps and stream not in self._shards:
                shard.subscribe(self.subscription)
            shard.move(targets[stream])
        self._shards = wanted
        return True

    def _forget(self) -> None:
        super()._forget()
        self._done.clear()

    def _ack(self, message: Message) -> None:
        self._require_group()
        stream = (message.stream_key, message.shard_id)
        self._done.setdefault(stream, []).append(message.sequence)

    async def _commit(self) -> None:
        done, self._done = self._done, {}
        if done:
            await self._in_thread(self._tell, done)

    def _tell(self, done: dict[Stream, list[int]]) -> None:
        for stream, sequences in done.items():
            shard = self._shards.get(stream)
            known = [] if shard is None else [n for n in sequences if n in shard.given]
            if shard is None or not known:
                continue  # It has moved meanwhile, or they were told before.
            if self._shares:
                shard.done(known)
            else:
                shard.done_to(max(known))

    def _unacknowledged_count(self) -> int:
        if not self._keeps:
            return 0
        given = sum(len(shard.given) for shard in self._shards.values()) - len(self._items)
        return given - sum(map(len, self._done.values()))

    def _close_client(self) -> None:
        for shard in self._shards.values():
            shard.close()


def _cannot(cluster: Cluster, action: str, reason: str) -> StreamUnsupportedError:
    return StreamUnsupportedError(
        backend=cluster.address,
        action=action,
        reason=reason,
        hint="name the streams, and read to the end in mode real-time",
    )


class _Shard:
    """A topic, and where in it we are. Calls wait: use a thread.

    Args:
        cluster: Where it is.
        stream: Its key, and its number.
        topic: Its name in Pulsar.
    """

    def __init__(self, cluster: Cluster, stream: tuple[StreamKey, int], topic: str) -> None:
        self.stream = stream
        self._cluster = cluster
        self._topic = topic
        self._reader: Any = None
        self._subscribed: Any = None
        self._first = 0  # Messages before this sequence are dropped.
        self._shares = False
        # Of messages that were given and are not done: what the client asks for to acknowledge.
        self.given: dict[int, Any] = {}

    def read_from(self, position: SeqPos) -> None:
        """Read without a group from a position on, or from the next message."""
        self.close()
        self._reader = self._reader_at(position)
        self._first = position.sequence if isinstance(position, At) else 0

    def _reader_at(self, position: SeqPos) -> Any:
        begin, is_inclusive = pulsar.MessageId.earliest, True
        if isinstance(position, At):
            begin = id_of(position.sequence)
        elif position is END and (last_id := self._cluster.last_id(self._topic)) is not None:
            # By its place, since a reader of what comes forgets it when a connection is lost.
            begin, is_inclusive = last_id, False
        return self._cluster.client.create_reader(
            self._topic,
            begin,
            receiver_queue_size=self._cluster.options.prefetch_messages,
            start_message_id_inclusive=is_inclusive,
        )

    def subscribe(self, subscription: Subscription) -> None:
        """Read as a member of a group, from its position; a new group has a start option.

        Raises:
            GROUP_IN_USE: somebody else has the group for itself.
        """
        self.close()
        self._first = 0
        self._shares = subscription.mode == "load-balanced"
        is_early = subscription.start == "earliest"
        begin = pulsar.InitialPosition.Earliest if is_early else pulsar.InitialPosition.Latest
        kinds = pulsar.ConsumerType
        try:
            self._subscribed = self._cluster.client.subscribe(
                self._topic,
                subscription.position_name,
                consumer_type=kinds.Shared if self._shares else kinds.Exclusive,
                initial_position=begin,
                receiver_queue_size=self._cluster.options.prefetch_messages,
                batch_index_ack_enabled=True,
                start_message_id_inclusive=True,
            )
        except pulsar.ConsumerBusy:
            raise GROUP_IN_USE(
                address=self._cluster.address, group=subscription.position_name, key=self.stream[0]
            ) from None

    def find(self, target: SeqPos | int) -> int | None:
        """Return the sequence of the first message from a position or time on, or None.

        The cluster finds times by when messages were sent, which is no earlier than their times.
        """
        probe = self._reader_at(target if isinstance(target, At) else BEGINNING)
        try:
            if isinstance(target, int):
                self._seek_time(probe, target)
            while probe.has_message_available():
                found = probe.read_next(_FIRST_MS)
                sequence = sequence_of(found.message_id())
                is_wanted = (
                    time_of(found) >= target
                    if isinstance(target, int)
                    else not isinstance(target, At) or sequence >= target.sequence
                )
                if is_wanted:
                    return sequence
            return None
        finally:
            probe.close()

    def _seek_time(self, probe: Any, timestamp_ms: int) -> None:
        """Move a reader to a time; brokers refuse it while they still begin the reader."""
        deadline = time.monotonic() + self._cluster.options.connect_timeout_ms / 1_000
        while True:
            try:
                probe.seek(timestamp_ms)
                return
            except pulsar.BrokerMetadataError:
                if time.monotonic() > deadline:
                    raise

    def move(self, position: SeqPos) -> None:
        """Go to a position, as reader or as subscription."""
        self.given.clear()
        if self._subscribed is None:
            self.read_from(position)
            return
        self._first = position.sequence if isinstance(position, At) else 0
        edge = pulsar.MessageId.earliest if position is BEGINNING else pulsar.MessageId.latest
        self._subscribed.seek(id_of(self._first) if isinstance(position, At) else edge)

    def take(self, count_max: int, wait_ms: int) -> list[Message | StreamError]:
        """Return messages that are there; waits so long for the first."""
        key, shard_id = self.stream
        receive = self._subscribed.receive if self._reader is None else self._reader.read_next
        items: list[Message | StreamError] = []
        keeps = self._subscribed is not None
        try:
            while len(items) < count_max:
                found = receive(0 if items else wait_ms)
                message_id = found.message_id()
                try:
                    sequence = sequence_of(message_id)
                except ValueError as error:
                    items.append(
                        POSITION_UNUSABLE(address=self._cluster.address, id=str(error), key=key)
                    )
                    continue
                is_again = sequence < self._first or sequence in self.given
                if keeps:
                    self.given[sequence] = message_id
                if is_again:  # A connection was lost: what was not told to be done comes again.
                    continue
                if not self._shares:
                    self._first = sequence + 1
                head = (key, shard_id, sequence, time_of(found))
                items.append(Message(*head, found.data() or b"", *_head_of(found)))
        except pulsar.Timeout:
            return items  # There are no more.
        return items

    def is_at_end(self) -> bool:
        """Return whether a reader has read all messages."""
        return self._reader is not None and not self._reader.has_message_available()

    def done(self, sequences: list[int]) -> None:
        """Acknowledge messages to the cluster, in the order of the messages."""
        for sequence in sequences:
            self._subscribed.acknowledge(self.given.pop(sequence))

    def done_to(self, sequence: int) -> None:
        """Acknowledge all messages up to this one to the cluster."""
        self._subscribed.acknowledge_cumulative(self.given[sequence])
        for each in [each for each in self.given if each <= sequence]:
            del self.given[each]

    def close(self) -> None:
        """Release the topic."""
        opened = [each for each in (self._reader, self._subscribed) if each is not None]
        self._reader = self._subscribed = None
        for each in opened:
            try:
                each.close()
            except pulsar.PulsarException:
                continue  # The server is gone, and notices it by itself.


def _head_of(found: Any) -> tuple[bytes | None, Headers]:
    """Return key and headers of a message; an empty key is None."""
    properties = found.properties()
    headers = tuple((name, value.encode()) for name, value in properties.items())
    return found.partition_key().encode() or None, headers


def time_of(found: Any) -> int:
    """Return the time of a message: its event time, else its publish time."""
    return int(found.event_timestamp() or found.publish_timestamp())
