"""Options of the Kafka backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from bicycle_sdk.client_options import TransactionTimeout, TransactionWait
from bicycle_sdk.kafka.security import KafkaSecurity
from bicycle_sdk.kafka.values import KafkaProperties
from bicycle_sdk.options import option
from bicycle_streams.options import StreamerOptions


class ProgramProperties(KafkaProperties):
    """Properties of the Kafka client of a program, which may contain secrets."""

    has_plain_secrets: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions(TransactionTimeout, TransactionWait, KafkaSecurity, StreamerOptions):
    """The options of a Kafka cluster's streamer."""

    create: Literal["never", "if-missing"] = option(
        "never", doc="Whether to create a missing topic, and to add missing partitions."
    )
    partitions: int = option(1, low=1, high=10_000, doc="Number of partitions of a new topic.")
    replication_factor: int = option(
        1, low=1, high=100, doc="Number of replicas of a new topic.", aliases=("replication",)
    )
    password: str | None = option(None, doc="Password of the user.")
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = option(
        "none", doc="Compression of messages."
    )
    linger_ms: int = option(
        5, low=0, high=60_000, doc="Maximum time that a message waits for a batch."
    )
    delivery_timeout_ms: int = option(
        120_000, low=1, high=3_600_000, doc="Time after which sending a message fails."
    )
    transactional_id: str | None = option(
        None,
        doc="Name for transactions of a producer; it must be unique among concurrent producers.",
    )
    session_timeout_ms: int = option(
        45_000,
        low=6_000,
        high=1_800_000,
        doc="Time after which a silent member of a group is removed.",
    )
    properties: ProgramProperties | None = option(
        None,
        doc="Properties of the Kafka client (librdkafka) by name, or name=value,name=value.",
        aliases=("client_settings",),
    )
