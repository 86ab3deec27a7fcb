"""The options of the Kafka source and sink, for builders, connectors and docs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_sdk.options import option

__all__ = ["KafkaSinkOptions", "KafkaSourceOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSourceOptions:
    """The options of a Kafka source: topics, start offsets, and formats."""

    brokers: str = option(doc="Addresses to begin with: host:port, several with commas.")
    topics: tuple[str, ...] = option((), doc="Names of the topics; or give topic_pattern.")
    topic_pattern: str | None = option(
        None, doc="Regular expression that the whole name of a topic must match; or give topics."
    )
    group_id: str = option(
        "bicycle-default-group",
        doc="Consumer group that published offsets are reported to, for tools that show lag; "
        "progress itself is in the job's checkpoints.",
        call="group_id",
    )
    starting_offsets: object = option(
        "earliest",
        doc="Where a job that never ran starts: earliest, latest, {timestamp_ms: number} or "
        "{offsets: {topic: {partition: offset}}}.",
        call="starting_offsets",
    )
    value_format: str | None = option(
        None,
        doc="How values are decoded: the name of a format, or schema for an object of the job. "
        "Default: string for str, bytes for bytes, else json.",
        call="deserializer",
    )
    value_format_options: object = option(None, doc="Options of that format, such as its schema.")
    key_format: str = option("bytes", doc="How keys are decoded.", call="key_deserializer")
    key_format_options: object = option(None, doc="Options of that format.")
    bounded: bool = option(
        default=False,
        doc="Read up to the offsets seen at the first start, then end.",
        call="bounded",
    )
    discovery_ms: int = option(
        10_000,
        low=100,
        high=86_400_000,
        doc="How often new partitions and topics are looked for.",
        call="discovery_interval",
    )
    on_data_loss: Literal["fail", "earliest", "latest"] = option(
        "fail",
        doc="What to do when the next offset is not in the topic any more: fail, or go on with the "
        "earliest or the latest message.",
        call="on_data_loss",
    )
    connect_timeout_ms: int = option(
        30_000,
        low=1_000,
        high=3_600_000,
        doc="A job that never ran fails when no broker answers in this time; one that ran waits.",
        call="connect_timeout",
    )
    transaction_wait_ms: int = option(
        900_000,
        low=0,
        high=86_400_000,
        doc="How long bounded reading waits for a transaction that was open at the first start. "
        "After that the log reports what is left unread.",
        call="transaction_wait",
    )
    properties: object = option(
        None,
        doc="Properties of the client (librdkafka) by name; secrets as references only.",
        call="properties",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSinkOptions:
    """The options of a Kafka sink: target, format, and guarantee."""

    brokers: str = option(doc="Addresses to begin with: host:port, several with commas.")
    topic: str = option(doc="Name of the topic.")
    value_format: str | None = option(
        None,
        doc="How values are encoded: the name of a format, or schema for an object of the job. "
        "Default: string for str, bytes for bytes, json for other "
        "declared types; each value by its own type when none is declared.",
        call="serializer",
    )
    value_format_options: object = option(None, doc="Options of that format, such as its schema.")
    key_format: str | None = option(
        None,
        doc="How keys are encoded. Default: text as UTF-8, bytes as they are, others as JSON.",
        call="key_serializer",
    )
    key_format_options: object = option(None, doc="Options of that format.")
    guarantee: Literal["at-least-once", "exactly-once"] = option(
        "at-least-once",
        doc="at-least-once: tasks write at once, and an epoch that runs again writes again. "
        "exactly-once: sealed epochs are published in transactions.",
        call="delivery_guarantee",
    )
    transactional_id_prefix: str | None = option(
        None,
        doc="Begin of the transactional ids. Default: bicycle-<job>-<sink>.",
        call="transactional_id_prefix",
    )
    marker_topic: str | None = option(
        None, doc="Topic of the epoch markers. Default: <prefix>-marker.", call="marker_topic"
    )
    transaction_timeout_ms: int = option(
        60_000,
        low=1_000,
        high=86_400_000,
        doc="The brokers abort a transaction that is open for longer.",
        call="transaction_timeout",
    )
    recovery_budget_ms: int = option(
        30_000,
        low=0,
        high=86_400_000,
        doc="Time for an interruption while an epoch is published, which the transaction must "
        "outlast.",
        call="recovery_budget",
    )
    publish_timeout_ms: int = option(
        900_000,
        low=1_000,
        high=86_400_000,
        doc="Brokers that are away for longer end the job; its output is kept for the next start.",
        call="publish_timeout",
    )
    connect_timeout_ms: int = option(
        30_000,
        low=1_000,
        high=3_600_000,
        doc="A job that never ran fails when no broker answers in this time.",
        call="connect_timeout",
    )
    publish_threads_max: int = option(
        4, low=1, high=64, doc="So many writers publish at the same time."
    )
    on_rewind: Literal["fail", "publish_again"] = option(
        "fail",
        doc="What to do when an older epoch or a savepoint was restored, so that output which is "
        "in the topic already would appear again.",
        call="on_rewind",
    )
    message_time: Literal["event", "written"] = option(
        "event",
        doc="The time of a message: event: that of its record, as far as records have one; "
        "written: when it is written. A function for timestamps overrules it.",
        call="message_time",
    )
    create_topic: object = option(
        None,
        doc="{partitions, replication_factor, config}: make the topic when it is missing.",
        call="create_topic",
    )
    properties: object = option(
        None,
        doc="Properties of the client (librdkafka) by name; secrets as references only.",
        call="properties",
    )
