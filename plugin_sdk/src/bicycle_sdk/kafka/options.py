"""The options of the Kafka source and sink, for builders, connectors and docs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import unquote

from bicycle_sdk.client_options import (
    BoundedInput,
    ConnectTimeout,
    Publication,
    Rewinding,
    TransactionTimeout,
    TransactionWait,
    ValueFormat,
)
from bicycle_sdk.connector_options import Conflict, SinkOptions, SourceOptions
from bicycle_sdk.formats import Format, split_formats, type_given_by
from bicycle_sdk.kafka.security import KafkaSecurity
from bicycle_sdk.kafka.values import KafkaProperties, StartingOffsets, TopicPlan
from bicycle_sdk.options import adapt_option, option, shared_options
from bicycle_sdk.passwords import PasswordReference
from bicycle_sdk.secrets import Secret

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = ["KafkaCluster", "KafkaSinkOptions", "KafkaSourceOptions", "LossPolicy"]

LossPolicy = Literal["fail", "earliest", "latest"]
_FORMAT_NAME = "It is the name of a format, or schema for an object of the job."
_RESERVED: Mapping[str, str] = {
    "bootstrap.servers": "use the option brokers",
    "metadata.broker.list": "use the option brokers",
}


@shared_options
class KafkaCluster(ValueFormat, ConnectTimeout, PasswordReference, KafkaSecurity):
    """The brokers and the client of a Kafka source or sink.

    Attributes:
        reserved: Names that ``properties`` must not contain, each with an alternative.
    """

    reserved: ClassVar[Mapping[str, str]] = {}

    brokers: str = option(
        kw_only=False,
        doc="Bootstrap addresses of the brokers: host:port, separated by commas.",
        words=("bootstrap_servers", "bootstrap.servers"),
    )
    properties: KafkaProperties | None = option(
        default=None,
        doc="Properties of the Kafka client (librdkafka) by name; secrets only as references.",
    )
    key_format: str | Format | None = option(
        default=None,
        doc="Format of message keys.",
    )
    key_format_options: object = option(default=None, doc="Options of the key format.")

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with formats as names and options."""
        return split_formats(given, "value_format", "key_format")

    def client_properties(self) -> dict[str, str | Secret]:
        """Return the properties of the client, including the security options."""
        return {**self.security_properties(), **(self.properties or {})}

    def conflicts(self) -> Iterator[Conflict]:
        """Yield options that are also set as properties."""
        for name, other in self.set_twice(self.properties):
            yield Conflict(name, f"the property {other} is also set", "set only one of them")


class KafkaSourceOptions(
    BoundedInput, TransactionWait, KafkaCluster, SourceOptions[Any], connector="kafka"
):
    """The options of a Kafka source: topics, start offsets, and formats."""

    reserved: ClassVar[Mapping[str, str]] = {
        **_RESERVED,
        "group.id": "use the option group_id",
        "enable.auto.commit": "remove it: published offsets are always reported to the group",
        "enable.auto.offset.store": "remove it: the position is in the checkpoints of the job",
        "auto.offset.reset": "use the options starting_offsets and on_data_loss",
        "enable.partition.eof": "remove it: the source requires the value true",
        "group.instance.id": "remove it: the source does not join the group",
    }

    topics: tuple[str, ...] = option(
        default=(), doc="Names of the topics; alternatively set topic_pattern.", words=("topic",)
    )
    topic_pattern: str | None = option(
        default=None,
        doc="Regular expression that matches the whole name of a topic; alternatively set topics.",
    )
    group_id: str = option(
        default="bicycle-default-group",
        doc=(
            "Consumer group to which published offsets are reported, for tools that show lag; the "
            "job itself continues from its checkpoints."
        ),
        words=("group", "group.id"),
    )
    starting_offsets: StartingOffsets = option(
        default=StartingOffsets(),
        doc=(
            "Start position of a job without a checkpoint: earliest, latest, {timestamp_ms: "
            "number} or {offsets: {topic: {partition: offset}}}."
        ),
        words=("start", "auto_offset_reset", "auto.offset.reset"),
    )
    value_format: str | Format | None = adapt_option(
        ValueFormat,
        "value_format",
        default=None,
        note=f"{_FORMAT_NAME} Default: string for str, bytes for bytes, else json.",
        words=("value.deserializer",),
    )
    key_format: str | Format = adapt_option(KafkaCluster, "key_format", default="bytes")
    discovery_interval_ms: int = option(
        default=10_000,
        low=100,
        high=86_400_000,
        doc="Interval of the search for new partitions and topics.",
        aliases=("discovery_ms",),
    )
    on_data_loss: LossPolicy = adapt_option(BoundedInput, "on_data_loss", default="fail")

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return brokers and topics: ``kafka://host:9092/topic,topic``."""
        topics = tuple(unquote(topic) for topic in parts.path.strip("/").split(",") if topic)
        if not parts.netloc or not topics:
            raise ValueError("brokers or topic are missing; write kafka://host:9092/topic")
        return {"brokers": parts.netloc, "topics": topics}

    def conflicts(self) -> Iterator[Conflict]:
        """Yield wrong topics, start offsets of other topics, and double settings."""
        yield from super().conflicts()
        pattern = self.topic_pattern
        if bool(self.topics) == (pattern is not None):
            problem = "both are set" if self.topics else "neither it nor topic_pattern is set"
            yield Conflict("topics", problem, "set either topics or topic_pattern")
            return
        try:
            re.compile(pattern or "")
        except re.error as error:
            problem = f"topic_pattern {pattern!r} is not a regular expression: {error}"
            hint = "correct the expression; it must match the whole name of a topic"
            yield Conflict("topics", problem, hint)
            return
        for topic in self.starting_offsets.topics:
            if not self.reads(topic):
                problem = f"it names topic {topic!r}, which is not a topic of the source"
                yield Conflict("starting_offsets", problem, "correct or remove the name")

    def reads(self, topic: str) -> bool:
        """Return whether a source with these options reads a topic."""
        if self.topic_pattern is not None:
            return re.fullmatch(self.topic_pattern, topic) is not None
        return topic in self.topics

    def output_type(self) -> Any:
        """Return the type of the records, if the format has one."""
        return type_given_by(str(self.value_format))


class KafkaSinkOptions(
    TransactionTimeout,
    Publication,
    Rewinding,
    KafkaCluster,
    SinkOptions,
    connector="kafka",
):
    """The options of a Kafka sink: target, format, and guarantee."""

    reserved: ClassVar[Mapping[str, str]] = {
        **_RESERVED,
        "transactional.id": "use the option transactional_id_prefix",
        "transaction.timeout.ms": "use the option transaction_timeout_ms",
        "message.timeout.ms": "use the option publish_timeout_ms",
        "delivery.timeout.ms": "use the option publish_timeout_ms",
        "enable.idempotence": "remove it: producers are always idempotent",
        "acks": "remove it: acks=all is always used",
        "request.required.acks": "remove it: acks=all is always used",
        "delivery.report.only.error": "remove it",
    }

    topic: str = option(kw_only=False, doc="Name of the topic.")
    value_format: str | Format | None = adapt_option(
        ValueFormat,
        "value_format",
        default=None,
        note=(
            f"{_FORMAT_NAME} Default: string for str, bytes for bytes, json for other declared "
            "types; without a declared type, by the type of each value."
        ),
        words=("value.serializer",),
    )
    key_format: str | Format | None = adapt_option(
        KafkaCluster,
        "key_format",
        default=None,
        note="Default: text as UTF-8, bytes unchanged, other types as JSON.",
    )
    guarantee: Literal["at-least-once", "exactly-once"] = option(
        default="at-least-once",
        doc=(
            "at-least-once: tasks write immediately, and a repeated epoch writes again. "
            "exactly-once: sealed epochs are published in transactions."
        ),
        words=("delivery.guarantee",),
    )
    transactional_id_prefix: str | None = option(
        default=None,
        doc="Prefix of the transactional ids. Default: bicycle-<job>-<sink>.",
        words=("transactional.id.prefix",),
    )
    marker_topic: str | None = option(
        default=None, doc="Topic for the epoch markers. Default: <prefix>-marker."
    )
    recovery_budget_ms: int = option(
        default=30_000,
        low=0,
        high=86_400_000,
        doc=("Longest interruption during a publication that a transaction must survive."),
    )
    publish_threads_max: int = option(
        default=4, low=1, high=64, doc="Number of writers that publish concurrently."
    )
    message_time: Literal["event", "written"] = option(
        default="event",
        doc=(
            "Timestamp of messages: event: event time of the record, if it has one; written: time "
            "of writing. A timestamp function takes precedence."
        ),
    )
    create_topic: TopicPlan | None = option(
        default=None,
        doc="{partitions, replication_factor, config}: create the topic if it is missing.",
    )

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return brokers and topic: ``kafka://host:9092/topic``."""
        topic = unquote(parts.path.strip("/"))
        if not parts.netloc or not topic or "," in topic:
            problem = f"the address contains {parts.netloc!r} and {topic!r}"
            raise ValueError(f"{problem}; write kafka://host:9092/topic")
        return {"brokers": parts.netloc, "topic": topic}
