"""Routes of a chain's output: in the task, to the exchange, to the next epoch.

A router takes batches and keeps records per target until a blob is worth sending. It decides the
subtask of each record; it never changes a record.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, Protocol, assert_never
from zlib import crc32

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.contract import StagedFile
from bicycle_runtime.operators.batch import Batch, Origin, Streak
from bicycle_runtime.operators.spec import RouteSpec
from bicycle_runtime.operators.tasks.record_copies import Copy
from bicycle_runtime.operators.tasks.shared_blobs import SentBlobs, gives_frozen
from bicycle_runtime.records.blobs import (
    BYTE_GROUPS_MAX,
    BlockKind,
    Envelope,
    Holder,
    encode_records,
    seal_block,
)
from bicycle_runtime.records.codecs import RecordCodec
from bicycle_runtime.records.keys import task_of
from bicycle_sdk.graph import Partitioning

_MASKED_TARGETS_MAX = 4
BLOB_RECORDS = 65_536  # records per blob; larger blobs cost memory, smaller ones calls
SHARD_RECORDS = 1_024  # from so many records on, a shard gets blobs of its own
ShuffleBlock = tuple[int, bytes]
Column = bytearray | list[int]


class Router(Protocol):
    """One outgoing edge of a chain instance."""

    def send(self, batch: Batch) -> None:
        """Take a batch."""

    def begin_epoch(self, epoch: int, turn: int) -> None:
        """Start an epoch: nothing is held back from the last one.

        Args:
            epoch: Its number.
            turn: The subtask whose turn it is, on edges that take turns.
        """

    @property
    def turn(self) -> int:
        """The subtask whose turn is next, on edges that take turns."""


class DirectRouter:
    """Hands batches to another chain of the same task.

    Args:
        feed: Takes them.
        ordinal: Which input of the chain this is.
        copy: Copies them, for a chain that is not the only one to have them.
    """

    def __init__(
        self, feed: Callable[[Batch], None], *, ordinal: int = 0, copy: Copy | None = None
    ) -> None:
        self._feed = feed
        self._ordinal = ordinal
        self._copy = copy

    turn = 0  # Records stay in their subtask.

    def begin_epoch(self, epoch: int, turn: int) -> None:
        """Do nothing: no record is buffered."""

    def send(self, batch: Batch) -> None:
        if self._copy is not None:
            batch = self._copy(batch)
        self._feed(
            batch
            if batch.ordinal == self._ordinal
            else Batch(batch.values, batch.lineage, batch.groups, self._ordinal, shape=batch.shape)
        )


class _Spreader:
    """The division of batches among the target's subtasks, by an edge's partitioning."""

    def __init__(self, route: RouteSpec, subtask: int) -> None:
        self._route = route
        self._subtask = subtask
        self._count = route.target_parallelism
        self.turn = 0
        self._random = random.Random(0)
        self._task_of_group = [
            task_of(group, group_count=route.group_count, parallelism=self._count)
            for group in range(route.group_count)
        ]
        self._has_byte_groups = route.group_count <= BYTE_GROUPS_MAX
        self._masks = _masks(self._task_of_group, self._count) if self._has_byte_groups else []
        self.values: list[list[Any]] = [[] for _ in range(self._count)]
        self.groups: list[Column] = [self._empty_column() for _ in range(self._count)]
        self.times: list[array[int]] = [array("q") for _ in range(self._count)]
        self.has_times = False

    def begin_epoch(self, epoch: int, turn: int) -> None:
        self.turn = turn % self._count  # There may have been more of them.
        self._random.seed(f"{epoch}/{self._route.edge}/{self._subtask}")
        for target in range(self._count):
            self.clear(target)

    def clear(self, target: int) -> None:
        """Clear the buffer of a target."""
        self.values[target] = []
        self.groups[target] = self._empty_column()
        self.times[target] = array("q")

    def groups_of(self, target: int) -> bytes | list[int]:
        """Return the key groups of a target's buffered records."""
        column = self.groups[target]
        return bytes(column) if isinstance(column, bytearray) else column

    def times_of(self, target: int) -> array[int] | None:
        """Return the event times of a target's buffered records, or None without any."""
        return self.times[target] if self.has_times else None

    def _empty_column(self) -> Column:
        return bytearray() if self._has_byte_groups else []

    def add(self, batch: Batch, times: Sequence[int] | None) -> None:
        """Take a batch; with event times all that is held must have them."""
        self.has_times = times is not None
        match self._route.partitioning:
            case Partitioning.FORWARD:
                self._add_to(self._subtask, batch.values, times)
            case Partitioning.GLOBAL:
                self._add_to(0, batch.values, times)
            case Partitioning.BROADCAST:
                for target in range(self._count):
                    self._add_to(target, batch.values, times)
            case Partitioning.REBALANCE:
                for target in range(self._count):
                    part = slice((target - self.turn) % self._count, None, self._count)
                    self._add_to(target, batch.values[part], times and times[part])
                self.turn = (self.turn + len(batch.values)) % self._count
            case Partitioning.SHUFFLE:
                targets = [self._random.randrange(self._count) for _ in batch.values]
                self._add_each(batch.values, targets, times)
            case Partitioning.HASH:
                self._add_keyed(batch, times)
            case Partitioning.CUSTOM:
                assert batch.groups is not None  # The subtasks that ``partition_custom`` chose.
                self._add_each(batch.values, batch.groups, times)
            case _ as other:
                assert_never(other)

    def _add_to(self, target: int, values: Sequence[Any], times: Sequence[int] | None) -> None:
        self.values[target] += values
        if times is not None:
            self.times[target].extend(times)

    def _add_each(
        self, values: Sequence[Any], targets: Iterable[int], times: Sequence[int] | None
    ) -> None:
        for index, target in enumerate(targets):
            self.values[target].append(values[index])
            if times is not None:
                self.times[target].append(times[index])

    def _add_keyed(self, batch: Batch, times: Sequence[int] | None) -> None:
        groups = batch.groups
        assert groups is not None
        if isinstance(groups, bytes) and self._count <= _MASKED_TARGETS_MAX:
            # hot path: 15 ns a record and target; beyond a few targets one pass is faster.
            for target, (mask, others) in enumerate(self._masks):
                chosen = groups.translate(mask)
                self.values[target] += compress(batch.values, chosen)
                self.groups[target].extend(groups.translate(None, others))
                if times is not None:
                    self.times[target].extend(compress(times, chosen))
            return
        put_value = [values.append for values in self.values]
        put_group = [column.append for column in self.groups]
        targets = list(map(self._task_of_group.__getitem__, groups))
        # hot path: 85 ns a record for two columns.
        for value, group, target in zip(batch.values, groups, targets, strict=False):
            put_value[target](value)
            put_group[target](group)
        if times is not None:
            put_time = [column.append for column in self.times]
            for time, target in zip(times, targets, strict=True):
                put_time[target](time)


class ShuffleRouter:
    """Sends records to a deeper level, as blobs in shuffle blocks.

    Args:
        route: The edge.
        subtask: Which subtask sends.
        codec: Codec of the edge.
        next_parallelism: How many tasks the next level has.
        emit: Takes the blocks.
        sent: The records that the task has sent along any edge.
    """

    def __init__(
        self, route: RouteSpec, subtask: int, codec: RecordCodec, *,
        next_parallelism: int, emit: Callable[[ShuffleBlock], None], sent: SentBlobs,
    ) -> None:  # fmt: skip
        self._route = route
        self._subtask = subtask
        self._codec = codec
        self._next_parallelism = next_parallelism
        self._emit = emit
        self._sent = sent
        self._kind = route.target_level, route.partitioning, codec.identity
        sent.join(self._kind)
        self._spreader = _Spreader(route, subtask)
        self._sequence = 0
        self._is_keyed = route.partitioning is Partitioning.HASH
        self._span: Origin | None = None
        self._streaks: list[list[Streak]] = [[] for _ in self._spreader.values]

    @property
    def turn(self) -> int:
        return self._spreader.turn

    def begin_epoch(self, epoch: int, turn: int) -> None:
        self._spreader.begin_epoch(epoch, turn)
        self._sequence = 0
        self._forget_spans()

    def send(self, batch: Batch) -> None:
        span = batch.lineage.span()
        times = batch.times() if self._route.carries_time else None
        held = max(map(len, self._spreader.values))
        is_other_shard = held >= SHARD_RECORDS and not _is_same_shard(self._span, span)
        if is_other_shard or (held and self._spreader.has_times != (times is not None)):
            self.flush()
            held = 0
        self._spreader.add(batch, times)
        self._span = span
        for streaks, values in zip(self._streaks, self._spreader.values, strict=True):
            _add_streak(streaks, len(values), span)
        if any(len(values) >= BLOB_RECORDS for values in self._spreader.values):
            self.flush()

    def flush(self, *, is_end: bool = False) -> None:
        """Send everything that is held.

        Args:
            is_end: All edges are flushed one after the other, with no function between.
        """
        body: bytes | None = None
        for target, values in enumerate(self._spreader.values):
            if not values:
                continue
            if body is None or self._route.partitioning is not Partitioning.BROADCAST:
                body = self._body(values, target, is_end=is_end)
            envelope = Envelope(BlockKind.RECORDS, self._route.target_level, target)
            self._emit((target % self._next_parallelism, seal_block(envelope, body)))
            self._spreader.clear(target)
        self._sequence += 1
        self._forget_spans()

    def _forget_spans(self) -> None:
        self._span = None
        for streaks in self._streaks:
            streaks.clear()

    def _body(self, values: list[Any], target: int, *, is_end: bool) -> bytes:
        groups = self._spreader.groups_of(target) if self._is_keyed else None
        edge, sequence = self._route.edge, self._sequence
        holder = self._sent.find(self._kind, target, values)
        body, name = encode_records(
            values, groups, self._spreader.times_of(target), codec=self._codec,
            blob=(edge, self._subtask, sequence), origin=streaks_text(self._streaks[target]),
            holder=holder,
        )  # fmt: skip
        # A function that runs before the next flush may change other records.
        if holder is None and (is_end or gives_frozen(self._codec, name)):
            self._sent.note(self._kind, target, values, Holder(edge, sequence, name))
        return body


class FeedbackRouter:
    """A router that stages records for the next epoch of a loop: files per subtask."""

    def __init__(
        self, route: RouteSpec, subtask: int, codec: RecordCodec, storage: Storage
    ) -> None:
        self._route = route
        self._subtask = subtask
        self._codec = codec
        self._storage = storage
        self._spreader = _Spreader(route, subtask)
        self._parts: list[tuple[int, int, bytes]] = []  # target, records, body

    @property
    def turn(self) -> int:
        return self._spreader.turn

    def begin_epoch(self, epoch: int, turn: int) -> None:
        self._spreader.begin_epoch(epoch, turn)
        self._parts.clear()

    def send(self, batch: Batch) -> None:
        times = batch.times() if self._route.carries_time else None
        if self._spreader.has_times != (times is not None):
            self._close_part()
        self._spreader.add(batch, times)

    def finish(self, epoch: int, attempt: str) -> Iterator[StagedFile]:
        """Write the sent records, and return the files."""
        self._close_part()
        for number, (target, record_count, data) in enumerate(self._parts):
            folder = f"staged/$feedback-{self._route.edge}/{epoch:012}"
            path = f"{folder}/{self._subtask}-{target}-{number}-{attempt}"
            self._storage.write(path, data)
            yield StagedFile(
                path=path, record_count=record_count, byte_count=len(data), crc32=crc32(data),
                subtask=self._subtask, details={"target": target},
            )  # fmt: skip

    def _close_part(self) -> None:
        """Encode the buffered records as files, each with or without event times."""
        for target, values in enumerate(self._spreader.values):
            if not values:
                continue
            blob_id = (self._route.edge, self._subtask, 0)
            times = self._spreader.times_of(target)
            data, _ = encode_records(
                values, None, times, codec=self._codec, blob=blob_id, origin=""
            )
            self._parts.append((target, len(values), data))
            self._spreader.clear(target)


def _masks(task_of_group: list[int], task_count: int) -> list[tuple[bytes, bytes]]:
    """Return for each target a table of its own groups, and a table of the others."""
    owned = [
        [group for group, owner in enumerate(task_of_group) if owner == task]
        for task in range(task_count)
    ]
    every = range(BYTE_GROUPS_MAX)
    return [
        (
            bytes(group in groups for group in every),
            bytes(group for group in every if group not in groups),
        )
        for groups in map(set, owned)
    ]


def origin_text(span: Origin | None) -> str:
    """Return a span as the short text that travels in a blob's header."""
    if span is None:
        return ""
    return "\x1f".join((span.source, span.shard, str(span.offset), str(span.end_offset)))


def _add_streak(streaks: list[Streak], end: int, span: Origin | None) -> None:
    """Note the span of records up to ``end``; batches of one shard have one streak."""
    last_end, last = streaks[-1] if streaks else (0, None)
    if end == last_end:
        return
    if streaks and (joined := _join(last, span)) is not None:
        streaks[-1] = (end, joined)
    else:
        streaks.append((end, span))


def streaks_text(streaks: Sequence[Streak]) -> str:
    """Return the spans of records as the short text that travels in a blob's header."""
    if len(streaks) <= 1:
        return origin_text(streaks[0][1]) if streaks else ""
    return "\x1e".join(f"{end}\x1e{origin_text(span)}" for end, span in streaks)


def parse_streaks(text: str) -> tuple[Origin | None, Sequence[Streak]]:
    """Return the span of all records, or the streaks that ``streaks_text`` wrote."""
    words = text.split("\x1e")
    if len(words) == 1:
        return parse_origin(text), ()
    ends, origins = words[::2], words[1::2]
    return None, [(int(end), parse_origin(each)) for end, each in zip(ends, origins, strict=True)]


def parse_origin(text: str) -> Origin | None:
    """Return the span that ``origin_text`` wrote."""
    if not text:
        return None
    source, shard, offset, end = text.split("\x1f")
    return Origin(
        source=source,
        shard=shard,
        offset=int(offset),
        end_offset=None if end == "None" else int(end),
    )


def _join(first: Origin | None, second: Origin | None) -> Origin | None:
    """Return the common span of two batches of one shard, or None."""
    if first is None or second is None or not _is_same_shard(first, second):
        return None
    return Origin(
        source=first.source, shard=first.shard, offset=first.offset, end_offset=second.end_offset
    )


def _is_same_shard(first: Origin | None, second: Origin | None) -> bool:
    return (first and (first.source, first.shard)) == (second and (second.source, second.shard))
