"""The consumer of the Pulsar backend: alone, resumable, or one of a group.

A shard is a topic. It is read by a reader, which belongs to this process, or by a subscription,
which the cluster stores. Both start at an entry, which may contain many messages, so that messages
before the requested message are dropped here.

A client that seeks may get the broker's response before or after its subscription was reopened. It
then drops the first messages, or keeps old messages (apache/pulsar issue 10671). So nothing is read
through a client after a seek: a separate client moves the subscription, and a reader starts at an
entry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeAlias

import pulsar

from bicycle_sdk.clock import Clock, SystemClock
from bicycle_streams.addresses import WILDCARD, StreamKey
from bicycle_streams.consuming import Subscription
from bicycle_streams.errors import StreamEndedError, StreamError, StreamUnsupportedError
from bicycle_streams.messages import BEGINNING, END, At, Message, SeqPos
from bicycle_streams.pulsar.cluster import Cluster, message_of, reason_of, time_of
from bicycle_streams.pulsar.errors import GROUP_IN_USE, READ_FAILED
from bicycle_streams.pulsar.positions import id_of, sequence_of
from bicycle_streams.thread_consuming import ThreadConsumer

Stream: TypeAlias = tuple[StreamKey, int]
_FIRST_MS = 5_000  # A message of which the client knows comes at once.
_FIND_TRIES = 3
_KINDS, _EDGES = pulsar.ConsumerType, pulsar.InitialPosition
_WAIT_MS, _TURN_MS = 100, 5  # For one shard, and for one of several.
_SILENCE_S, _SILENCE_S_MAX = 10.0, 300.0


class PulsarConsumer(ThreadConsumer):
    """Reads topics; made by ``open``."""

    client_error: ClassVar[type[Exception]] = pulsar.PulsarException

    def __init__(self, cluster: Cluster, subscription: Subscription, clock: Clock) -> None:
        super().__init__(cluster.address, subscription, cluster.options)
        self._cluster = cluster
        self._clock = clock
        self._shards: dict[Stream, _Shard] = {}
        self._done: dict[Stream, list[int]] = {}  # Acknowledged, and not yet sent to the broker.
        self._turn = 0

    @classmethod
    async def open(
        cls, cluster: Cluster, subscription: Subscription, *, clock: Clock | None = None
    ) -> Self:
        """Return a consumer whose position is fixed."""
        if WILDCARD in subscription.keys:
            raise _cannot(
                cluster, "read all streams", "the namespace may contain streams of other programs"
            )
        if not subscription.is_live and subscription.mode != "real-time":
            reason = "the position of a group is unknown, so its end cannot be detected"
            raise _cannot(cluster, "end where a stream ends in a group", reason)
        return await cls(cluster, subscription, clock or SystemClock())._start()

    def _error_of(self, error: pulsar.PulsarException) -> StreamError:
        return READ_FAILED(address=self.address, reason=reason_of(error))

    def _begin(self) -> None:
        position = BEGINNING if self.subscription.start == "earliest" else END
        for stream, topic in self._topics().items():
            shard = self._shards[stream] = self._shard(stream, topic)
            if self._keeps:
                shard.subscribe()
            else:
                shard.read_from(position)

    def _shard(self, stream: Stream, topic: str) -> _Shard:
        return _Shard(
            self._cluster, stream, topic, subscription=self.subscription, clock=self._clock
        )

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
            stream: self._shards.get(stream) or self._shard(stream, topic)
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
            shard.move(targets[stream], keeps=self._keeps)
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
        done = {stream: list(sequences) for stream, sequences in self._done.items()}
        if done:
            await self._in_thread(self._tell, done)
        for stream, sequences in done.items():  # The next commit repeats one that failed.
            sent = set(sequences)
            self._done[stream] = [each for each in self._done.get(stream, ()) if each not in sent]

    def _tell(self, done: dict[Stream, list[int]]) -> None:
        for stream, sequences in done.items():
            shard = self._shards.get(stream)
            known = [] if shard is None else [n for n in sequences if n in shard.given]
            if shard is None or not known:
                continue  # It has moved meanwhile, or they were sent before.
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
        subscription: The parameters of the consumer.
        clock: The clock that measures silence.
    """

    def __init__(
        self,
        cluster: Cluster,
        stream: tuple[StreamKey, int],
        topic: str,
        *,
        subscription: Subscription,
        clock: Clock,
    ) -> None:
        self.stream = stream
        self._cluster = cluster
        self._topic = topic
        self._subscription = subscription
        self._clock = clock
        self._reader: Any = None
        self._subscribed: Any = None
        self._first = 0  # Messages before this sequence are dropped.
        self._keeps = self._shares = False
        self._heard_s, self._patience_s = clock.monotonic(), _SILENCE_S
        # Ids of delivered messages without acknowledgment, which the client needs to acknowledge.
        self.given: dict[int, Any] = {}

    def read_from(self, position: SeqPos) -> None:
        """Read without a group from a position on, or from the next message."""
        self.close()
        self._keeps = self._shares = False
        self._first = position.sequence if isinstance(position, At) else 0
        last_id = None
        if position is END and (last := self._last()) is not None:
            last_id, self._first = last[0], last[1] + 1
        # A reader of new messages loses its position with its connection.
        self._reader = self._reader_at(self._first, last_id)

    def _reader_at(self, sequence: int, last_id: Any = None) -> Any:
        """Return a reader of the messages after an id, or from the entry of a sequence on."""
        queue_size = self._cluster.options.prefetch_messages
        return self._cluster.open_reader(
            self._topic, sequence, after=last_id, queue_size=queue_size
        )

    def _last(self) -> tuple[Any, int] | None:
        """Return the id and the sequence of the last message that the broker has, or None.

        Raises:
            POSITION_UNUSABLE: the id cannot be converted.
        """
        if (last_id := self._cluster.last_id(self._topic)) is None:
            return None
        return last_id, self._sequence_of(last_id)

    def _sequence_of(self, message_id: Any) -> int:
        return sequence_of(message_id, self._cluster.address, self.stream[0])

    def subscribe(self, position: Any = None) -> None:
        """Read as a member of a group, from its position.

        Args:
            position: Where the group moves first, if anywhere.

        Raises:
            GROUP_IN_USE: another consumer uses the group exclusively.
        """
        self.close()
        wanted = self._subscription
        self._keeps, self._shares = True, wanted.mode == "load-balanced"
        try:
            self._subscribed = self._cluster.subscribe(
                self._topic,
                wanted.position_name,
                position=position,
                consumer_type=_KINDS.Shared if self._shares else _KINDS.Exclusive,
                initial_position=_EDGES.Earliest if wanted.start == "earliest" else _EDGES.Latest,
                receiver_queue_size=self._cluster.options.prefetch_messages,
            )
        except pulsar.ConsumerBusy:
            raise GROUP_IN_USE(
                address=self._cluster.address, group=wanted.position_name, key=self.stream[0]
            ) from None

    def find(self, target: At | int) -> int | None:
        """Return the sequence of the first message from a position or time on, or None.

        The cluster finds times by when messages were sent, which is no earlier than their times.

        Raises:
            pulsar.Timeout: the broker has such a message, and sent it to no client.
        """
        for _ in range(_FIND_TRIES - 1):
            with contextlib.suppress(pulsar.Timeout):
                return self._find(target)
        return self._find(target)

    def _find(self, target: At | int) -> int | None:
        if (found := self._last()) is None:
            return None
        _, last = found
        if not isinstance(target, int):
            first = target.sequence
            if first > last:
                return None
            with contextlib.closing(self._reader_at(first)) as probe:
                return self._first_of(probe.read_next, lambda sequence, _: sequence >= first, last)
        with contextlib.closing(self._reader_at(last)) as probe:
            if probe.read_next(_FIRST_MS).publish_timestamp() < target:
                return None
        with self._cluster.temporary_consumer(self._topic, target) as probe:
            return self._first_of(probe.receive, lambda _, time_ms: time_ms >= target, last)

    def _first_of(
        self, receive: Callable[[int], Any], is_wanted: Callable[[int, int], bool], last: int
    ) -> int | None:
        """Return the sequence of the first wanted message; None after the last one."""
        while True:
            found = receive(_FIRST_MS)
            sequence = self._sequence_of(found.message_id())
            if is_wanted(sequence, time_of(found)):
                return sequence
            if sequence >= last:
                return None

    def move(self, position: SeqPos, *, keeps: bool) -> None:
        """Go to a position, as reader or as the only member of a group."""
        self.given.clear()
        if not keeps:
            self.read_from(position)
            return
        self._first = position.sequence if isinstance(position, At) else 0
        edge = pulsar.MessageId.earliest if position is BEGINNING else pulsar.MessageId.latest
        self.subscribe(id_of(self._first) if isinstance(position, At) else edge)

    def take(self, count_max: int, wait_ms: int) -> list[Message | StreamError]:
        """Return messages that are there; waits so long for the first."""
        if self._reader is None and self._subscribed is None:  # An earlier renewal failed.
            self._open()
        receive = self._subscribed.receive if self._reader is None else self._reader.read_next
        items: list[Message | StreamError] = []
        try:
            while len(items) < count_max:
                found = receive(0 if items else wait_ms)
                message_id = found.message_id()
                try:
                    sequence = self._sequence_of(message_id)
                except StreamError as error:
                    items.append(error)
                    continue
                is_again = sequence < self._first or sequence in self.given
                if self._keeps:
                    self.given[sequence] = message_id
                if is_again:  # A connection was lost: unacknowledged messages are delivered again.
                    continue
                if not self._shares:
                    self._first = sequence + 1
                items.append(message_of(found, self.stream, sequence))
        except pulsar.Timeout:  # There are no more.
            if not items:
                self._renew_if_deaf()
                return items
        self._heard_s, self._patience_s = self._clock.monotonic(), _SILENCE_S
        return items

    def _renew_if_deaf(self) -> None:
        """Replace the client if it gets nothing and the broker has later messages.

        The silence of a member of a load-balanced group proves nothing: other members may have
        received the messages.
        """
        if self._shares or self._clock.monotonic() - self._heard_s < self._patience_s:
            return
        with contextlib.suppress(pulsar.PulsarException):  # The client reconnects by itself.
            if (last := self._last()) is not None and last[1] >= self._first:
                self._open()
        self._heard_s = self._clock.monotonic()
        self._patience_s = min(2 * self._patience_s, _SILENCE_S_MAX)

    def _open(self) -> None:
        """Read from the position on with a new client."""
        if self._keeps:
            self.subscribe()
        else:
            self.read_from(At(self._first))

    def is_at_end(self) -> bool:
        """Return whether a reader has read all messages."""
        return self._reader is not None and not self._reader.has_message_available()

    def done(self, sequences: list[int]) -> None:
        """Acknowledge messages to the cluster, in the order of the messages."""
        for sequence in sequences:
            self._subscribed.acknowledge(self.given[sequence])
            del self.given[sequence]

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
