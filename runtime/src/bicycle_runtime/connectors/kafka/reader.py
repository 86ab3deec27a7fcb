"""Reading slices of partitions on a worker: fetch, decode, report lost offsets."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from bicycle_runtime.connectors.kafka.consuming import PartitionGoneError, RangeConsumer
from bicycle_runtime.connectors.kafka.errors import KafkaOffsetsLostError
from bicycle_runtime.connectors.kafka.formats import Format, MessageDecoder
from bicycle_runtime.connectors.kafka.settings import ClientProperties
from bicycle_runtime.contract import ReadOn, Slice, SourceBatch
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.kafka.options import LossPolicy
from bicycle_sdk.logging import log_event

_logger = logging.getLogger(__name__)


class KafkaReader:
    """A reader of slices; ``Slice.details`` contains ``bytes``, the size limit.

    Args:
        properties: With brokers and group; bound, since a worker has neither the driver's
            environment nor its files.
        values: Format of values.
        keys: Format of keys.
        on_data_loss: The policy when offsets of a slice are removed.
    """

    def __init__(
        self,
        properties: ClientProperties,
        *,
        values: Format,
        keys: Format,
        on_data_loss: LossPolicy,
    ) -> None:
        self._copy = partial(
            KafkaReader, properties, values=values, keys=keys, on_data_loss=on_data_loss
        )
        self._properties = properties
        self._on_data_loss = on_data_loss
        self._consumer = RangeConsumer(properties, SystemClock())
        self._decoder = MessageDecoder(values, keys)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the pickled form, without a connection."""
        return self._copy, ()

    def read(self, part: Slice) -> Iterator[SourceBatch]:
        """Yield the records of the slice, up to its end or size limit.

        Raises:
            KafkaOffsetsLostError: messages of the slice are removed, and the policy is to fail.
        """
        position = part.start
        topic, partition = partition_of(part.shard)
        while position < part.end:
            pieces = self._consumer.read(
                topic, partition, start=position, end=part.end, byte_count=part.details["bytes"]
            )
            try:
                for messages, next_offset in pieces:
                    position = next_offset
                    yield self._decoder.batch(messages, next_offset)
                return
            except PartitionGoneError as error:
                left = self._settle_loss(part, position, error)
                if left is None:  # The driver compares the ids of topics before the next epoch.
                    yield SourceBatch(values=[], offsets=(), next_offset=position)
                    return
                position = left
        yield SourceBatch(values=[], offsets=(), next_offset=part.end)

    def read_on(
        self, parts: Sequence[Slice], limits: ReadOn
    ) -> Iterator[Iterable[tuple[str, SourceBatch]]]:
        """Yield messages that arrive in some partitions after their slices."""
        shards = {partition_of(part.shard): part.shard for part in parts}
        starts = {partition_of(part.shard): part.end for part in parts}
        for pieces in self._consumer.read_on(starts, limits):
            yield (
                (shards[topic_partition], self._decoder.batch(messages, next_offset))
                for topic_partition, messages, next_offset in pieces
            )

    def give_fields(self) -> bool:
        """Switch JSON records to frames; return whether their type allows it."""
        return self._decoder.give_fields()

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _settle_loss(self, part: Slice, start: int, error: PartitionGoneError) -> int | None:
        """Return where to continue after messages that retention removed, or raise.

        None: the partition is gone, or ends before its slice. Then its topic may have been created
        again, which only the driver can decide.
        """
        found = self._consumer.watermarks(*partition_of(part.shard))
        low, high = found if found is not None else (-1, -1)
        policy, go_on = self._on_data_loss, min(low, part.end)
        if low <= start and policy != "fail":
            return None
        accept_loss(
            part.shard, policy, vertex=self._properties.vertex, next=start, low=low, high=high,
            problem=str(error), record_count=go_on - start,
        )  # fmt: skip
        return go_on


def accept_loss(
    shard: str, policy: LossPolicy, *, vertex: str, next: int, low: int, high: int, problem: str,
    record_count: int | None,
) -> None:  # fmt: skip
    """Log a loss of messages, unless the policy is to fail.

    Raises:
        KafkaOffsetsLostError: the policy is to fail.
    """
    if policy == "fail":
        raise KafkaOffsetsLostError.of(
            shard, vertex=vertex, next=next, low=low, high=high, problem=problem
        ) from None
    log_event(
        _logger, "kafka_offsets_lost", level=logging.WARNING, vertex=vertex, partition=shard,
        next=next, low=low, high=high, policy=policy, problem=problem, record_count=record_count,
    )  # fmt: skip


def partition_of(shard: str) -> tuple[str, int]:
    """Return topic and partition of a shard; topics have no slash.

    Example:
        >>> partition_of("orders/3")
        ('orders', 3)
    """
    topic, _, partition = shard.rpartition("/")
    return topic, int(partition)
