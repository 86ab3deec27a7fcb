"""The consumer of the Kafka backend: alone, resumable, or one of a group.

A client that reaches no broker for long is replaced, and the next one continues at its positions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from operator import methodcaller
from typing import Any, ClassVar, Self, TypeAlias

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Consumer as Client

from bicycle_sdk.clock import SystemClock
from bicycle_sdk.random_source import system_random
from bicycle_streams.addresses import StreamKey
from bicycle_streams.consuming import Subscription
from bicycle_streams.errors import StreamEndedError, StreamError
from bicycle_streams.kafka.clients import READS_MANY
from bicycle_streams.kafka.cluster import Cluster
from bicycle_streams.kafka.errors import READ_FAILED, TRANSACTION_LEFT_UNREAD
from bicycle_streams.kafka.failures import is_of_group, is_outage
from bicycle_streams.kafka.offsets import TransactionWaits, ask_offsets, check_each
from bicycle_streams.kafka.silence import Silence, close_behind, is_reached
from bicycle_streams.messages import BEGINNING, At, Message, SeqPos
from bicycle_streams.thread_consuming import ThreadConsumer

Stream: TypeAlias = tuple[StreamKey, int]
# Called so, the interpreter notices the error that the client leaves behind beside its result.
_headers_of = methodcaller("headers")
_WAIT_S = 0.1
_SILENCE_S = 30.0


class KafkaConsumer(ThreadConsumer):
    """Reads topics; made by ``open``."""

    client_error: ClassVar[type[Exception]] = KafkaException

    def __init__(self, cluster: Cluster, subscription: Subscription) -> None:
        super().__init__(cluster.address, subscription, cluster.options)
        self._cluster = cluster
        self._timeout_s = cluster.options.connect_timeout_ms / 1_000
        self._patiently = cluster.patiently
        self._client = self._make_client()
        self._keys = {key: key for key in subscription.keys}  # Topics by their names.
        self._at_end: dict[Stream, int] = {}  # The offset of the end that was reached.
        self._ends: dict[Stream, int] | None = None  # The ends when all were reached first.
        self._begins: dict[Stream, int] = {}  # Of partitions that no group shares out.
        self._uncommitted_begins: dict[Stream, Any] = {}  # A group with members refused them.
        self._waits = TransactionWaits[Stream](SystemClock())
        self._silence = Silence(SystemClock(), after_s=_SILENCE_S)
        self._given: dict[Stream, dict[int, bool]] = {}  # Sequence -> whether it is done.
        self._next: dict[Stream, int] = {}
        self._committed: dict[Stream, int] = {}
        self._revoked: deque[set[Stream]] = deque()  # Added to on the thread.
        self._revoked_count = 0  # How often; changed on the thread alone.
        self._is_torn = False  # Uncommitted messages may go to other consumers.
        self._is_transactional = False  # Whether positions are committed with the results.

    @classmethod
    async def open(cls, cluster: Cluster, subscription: Subscription) -> Self:
        """Return a consumer whose position is fixed."""
        return await cls(cluster, subscription)._start()

    def _make_client(self) -> Any:
        name = f"bicycle-alone-{system_random().getrandbits(64):016x}"
        own = {
            "group.id": self.subscription.position_name if self._keeps else name,
            "session.timeout.ms": self._cluster.options.session_timeout_ms,
            "auto.offset.reset": "earliest",  # If the next message was deleted.
            "enable.partition.eof": not self.subscription.is_live,
        }
        return self._cluster.open_client(Client, READS_MANY | own)

    def _error_of(self, error: KafkaException | KafkaError) -> StreamError:
        return READ_FAILED(address=self.address, reason=self._cluster.redacted(error))

    def _begin(self) -> None:
        """Fix where each partition is read from; a group without a position is given one."""
        partitions = self._partitions()
        kept: dict[Stream, int] = {}
        if self._keeps:
            found = self._ask_patiently(self._client.committed, partitions)
            kept = {_stream(each): each.offset for each in found}
        begins = []
        for partition in partitions:
            low, high = self._cluster.watermarks(self._client, partition)
            first = low if self.subscription.start == "earliest" else high
            offset = kept.get(_stream(partition), first)
            begins.append(TopicPartition(partition.topic, partition.partition, offset))
        new = [each for each in begins if _stream(each) not in kept]
        if self._keeps and new:
            try:
                self._commit_begins(self._client, new)
            except KafkaException as error:
                is_for_members = error.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
                if not self._shares or not is_for_members:  # A group with members: as one of them.
                    raise
                self._uncommitted_begins = {_stream(each): each for each in new}
        if self._shares:
            self._subscribe()
        else:
            self._assign(begins)

    def _subscribe(self) -> None:
        self._client.subscribe(
            list(self.subscription.keys),
            on_assign=self._take_partitions,
            on_revoke=self._leave_partitions,
        )

    def _commit_begins(self, client: Any, begins: list[Any]) -> None:
        self._patiently(lambda: client.commit(offsets=begins, asynchronous=False))

    def _partitions(self) -> list[Any]:
        return [
            TopicPartition(key, number)
            for key in self.subscription.keys
            for number in range(self._cluster.ensure(key))
        ]

    def _assign(self, begins: list[Any]) -> None:
        self._client.assign(begins)
        self._begins = {_stream(each): each.offset for each in begins}
        self._at_end.clear()
        self._ends = None

    async def _fetch(self, count_max: int) -> list[Message]:
        found = await super()._fetch(count_max)
        if self._shares:
            self._drop_revoked()
            for message in found:
                stream = (message.stream_key, message.shard_id)
                self._given.setdefault(stream, {})[message.sequence] = False
        return found

    def _read(self) -> list[Message | StreamError]:
        items: list[Message | StreamError] = []
        keys, append = self._keys, items.append
        # With a timeout, the client waits for the requested number of messages.
        events = self._client.consume(1, _WAIT_S)
        if events:
            self._silence.end()
        elif self._silence.is_over_limit() and not self._is_reached():
            self._renew()
        if events and self._prefetch_messages > 1:
            revoked_count = self._revoked_count
            events += self._client.consume(self._prefetch_messages - 1, 0)
            if self._revoked_count != revoked_count:  # They come again, here or elsewhere.
                self._go_back()
                return []
        for found in events:
            error = found.error()
            # hot path: 1.3 µs a message, of which 0.9 are calls of the client.
            if error is None:
                _, time_ms = found.timestamp()
                key, payload = keys[found.topic()], found.value() or b""
                partition, offset, message_key = found.partition(), found.offset(), found.key()
                try:
                    headers = tuple(given) if (given := _headers_of(found)) else ()
                except (UnicodeDecodeError, SystemError):
                    append(self._unreadable(found))
                    continue
                append(Message(key, partition, offset, time_ms, payload, message_key, headers))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._at_end[keys[found.topic()], found.partition()] = found.offset()
            elif not is_outage(error) and (self._keeps or not is_of_group(error)):
                append(self._error_of(error))
        if not items and self._begins and self._at_end.keys() >= self._begins.keys():
            self._end_or_wait()
        return items

    def _is_reached(self) -> bool:
        return is_reached(self._client, self.subscription.keys[0])

    def _end_or_wait(self) -> None:
        """End the stream, unless messages are left before the ends found first.

        Such messages came meanwhile, or belong to a transaction that is open.

        Raises:
            StreamEndedError: no message is left.
            TRANSACTION_LEFT_UNREAD: the transaction stays open for longer than the limit.
        """
        if self._ends is None:
            self._ends = self._cluster.ends(self._at_end)
        durations = {
            each: self._waits.duration_s(each, position=end, end=end, stop=self._ends[each])
            for each, end in self._at_end.items()
        }
        waiting = {each: found for each, found in durations.items() if found is not None}
        if not waiting:
            raise StreamEndedError(address=self.address)
        limit_ms = self._cluster.options.transaction_wait_ms
        for each, waited_s in waiting.items():
            if waited_s >= limit_ms / 1_000:
                raise TRANSACTION_LEFT_UNREAD(
                    address=self.address, partition=f"{each[0]}/{each[1]}",
                    offset=self._at_end[each], limit_ms=limit_ms,
                )  # fmt: skip

    def _unreadable(self, found: Any) -> StreamError:
        message = f"message {found.offset()} of {found.topic()}/{found.partition()}"
        return READ_FAILED(
            address=self.address, reason=f"{message}: the name of a header is not UTF-8"
        )

    def _renew(self) -> None:
        old, self._client = self._client, self._make_client()
        held = old.assignment()
        if self._shares:
            self._note_revoked(held)
            self._subscribe()
        else:
            partitions = {
                _stream(each): each.offset for each in old.position(held) if each.offset >= 0
            }
            self._assign(_partitions(self._begins | partitions))
        close_behind(old.close)

    def _move_client(self, target: SeqPos | int) -> bool:
        found = self._offsets_at(target) if isinstance(target, int) else self._offsets_of(target)
        if not found:
            return False
        known = {_stream(each) for each in found}
        for partition in self._wanted_partitions():
            if _stream(partition) not in known:  # Only new messages are read there.
                _, high = self._cluster.watermarks(self._client, partition)
                found.append(TopicPartition(partition.topic, partition.partition, high))
        if self._shares:
            self._close_client()
            self._shares = self._keeps = False
            self._client = self._make_client()
        self._assign(found)
        return True

    def _offsets_at(self, timestamp_ms: int) -> list[Any]:
        wanted = [
            TopicPartition(p.topic, p.partition, timestamp_ms) for p in self._wanted_partitions()
        ]
        return self._ask_patiently(partial(ask_offsets, self._client), wanted)

    def _ask_patiently(self, ask: Callable[..., list[Any]], partitions: list[Any]) -> list[Any]:
        """Return partitions that have an offset; ask again during an outage."""
        found = self._patiently(lambda: check_each(ask(partitions, self._timeout_s)))
        return [partition for partition in found if partition.offset >= 0]

    def _offsets_of(self, position: SeqPos) -> list[Any]:
        found = []
        for partition in self._wanted_partitions():
            low, high = self._cluster.watermarks(self._client, partition)
            offset = high
            if position is BEGINNING:
                offset = OFFSET_BEGINNING
            elif isinstance(position, At):
                offset = max(low, position.sequence)
            if not isinstance(position, At) or offset < high:
                found.append(TopicPartition(partition.topic, partition.partition, offset))
        return found

    def _wanted_partitions(self) -> list[Any]:
        return [
            partition
            for partition in self._partitions()
            if not self._assigned or _stream(partition) in self._assigned
        ]

    def _forget(self) -> None:
        super()._forget()
        for each in (self._given, self._next, self._committed, self._revoked):
            each.clear()
        self._is_torn = False

    def _take_partitions(self, client: Any, partitions: list[Any]) -> None:
        """Commit the begins that only members of the group may commit; on the thread."""
        begins = self._uncommitted_begins
        taken = {each: begins[each] for each in map(_stream, partitions) if each in begins}
        if taken:
            kept = self._ask_patiently(client.committed, [*taken.values()])
            if new := taken.keys() - map(_stream, kept):
                self._commit_begins(client, [taken[each] for each in new])

    def _leave_partitions(self, client: Any, partitions: list[Any]) -> None:
        """Commit acknowledged messages before others read these partitions; on the thread.

        What a client loses that was left was noted when it was left. Where the group has gone on
        without this member, acknowledged messages come again.
        """
        if client is not self._client:
            return
        revoked = {_stream(each) for each in partitions}
        found = self._find_uncommitted()
        positions = {stream: found[stream] for stream in revoked & found.keys()}
        if positions and not self._is_transactional:
            with contextlib.suppress(KafkaException):
                client.commit(offsets=_partitions(positions), asynchronous=False)
                self._committed |= positions
        self._note_revoked(partitions)

    def _note_revoked(self, partitions: list[Any]) -> None:
        """Note that others may read these partitions now; on the thread."""
        self._revoked.append({_stream(each) for each in partitions})
        self._revoked_count += 1

    def _drop_revoked(self) -> None:
        """Drop undone messages of revoked partitions, which are delivered again elsewhere."""
        while self._revoked:
            for stream in self._revoked.popleft():
                given, position = self._given.pop(stream, None), self._next.pop(stream, None)
                is_all_done = not given and position == self._committed.pop(stream, None)
                self._is_torn = self._is_torn or not is_all_done

    def _ack(self, message: Message) -> None:
        self._require_group()
        stream = (message.stream_key, message.shard_id)
        if not self._shares:
            self._next[stream] = max(self._next.get(stream, 0), message.sequence + 1)
            return
        self._drop_revoked()
        given = self._given.get(stream, {})
        if message.sequence not in given:  # It was taken away meanwhile, or is done.
            self._is_torn = self._is_torn or message.sequence >= self._next.get(stream, 0)
            return
        given[message.sequence] = True
        for sequence in list(given):
            if not given[sequence]:
                break
            self._next[stream] = sequence + 1
            del given[sequence]

    async def _commit(self) -> None:
        self._drop_revoked()
        if positions := self._find_uncommitted():
            offsets = _partitions(positions)
            await self._in_thread(
                self._patiently, lambda: self._client.commit(offsets=offsets, asynchronous=False)
            )
            self._committed |= positions

    def _find_uncommitted(self) -> dict[Stream, int]:
        return {
            stream: position
            for stream, position in self._next.items()
            if self._committed.get(stream) != position
        }

    def leave_commits_to_transactions(self) -> None:
        """Commit acknowledged positions only in transactions; raise in real-time mode."""
        self._refuse_real_time("commit")
        self._is_transactional = True

    @asynccontextmanager
    async def positions_to_commit(self) -> AsyncIterator[tuple[list[TopicPartition], Any] | None]:
        """Yield the acknowledged positions and the consumer's group membership, or None.

        They count as committed when it is left; None: others may have been given the same messages.
        """
        member = await asyncio.to_thread(self._client.consumer_group_metadata)
        # After that: a member that rejoins has another number in the report above.
        is_member = not self._shares or await asyncio.to_thread(self._client.memberid)
        self._drop_revoked()
        positions = self._find_uncommitted()
        if self._is_torn or not is_member:
            yield None
        else:
            yield _partitions(positions), member
            self._committed |= positions

    async def go_back(self) -> None:
        """Move back to committed positions: later messages are read again."""
        async with self._reading:
            await self._finish_read()
            await self._in_thread(self._go_back)
            self._ready.clear()
            self._forget()

    def _go_back(self) -> None:
        held = self._client.assignment()
        if not held:  # It is about to be given some.
            return
        found = self._ask_patiently(self._client.committed, held)
        # Partitions without a position are read from where they were begun.
        begins = {_stream(each): OFFSET_BEGINNING for each in held} | self._begins
        partitions = _partitions(begins | {_stream(each): each.offset for each in found})
        if not self._shares:
            self._assign(partitions)
            return
        self._at_end.clear()
        for partition in partitions:
            self._patiently(partial(self._client.seek, partition))

    def _unacknowledged_count(self) -> int:
        return sum(map(len, self._given.values())) if self._shares else 0

    def _close_client(self) -> None:
        # Without a broker, a client waits longer than anyone who ends a consumer.
        close_behind(self._client.close).join(self._timeout_s)


def _partitions(positions: Mapping[Stream, int]) -> list[TopicPartition]:
    return [TopicPartition(*stream, position) for stream, position in positions.items()]


def _stream(partition: Any) -> Stream:
    return StreamKey(partition.topic), partition.partition
