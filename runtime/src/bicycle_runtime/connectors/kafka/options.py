"""Options of the Kafka source, declared once, and where reading starts."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bicycle_runtime.base.options import option
from bicycle_runtime.connectors.contract import ConnectorSpec
from bicycle_runtime.connectors.errors import ConnectorOptionError

__all__ = [
    "FormatName",
    "KafkaSourceOptions",
    "LossPolicy",
    "StartingOffsets",
    "check_topics",
    "is_read",
    "made_topic",
    "made_topics",
    "starting_offsets",
    "unknown_start",
]

FormatName = Literal["json", "string", "bytes", "msgpack", "schema"]
LossPolicy = Literal["fail", "earliest", "latest"]
_MADE = "kafka:"  # What begins so among the names of ``Sink.makes`` is a topic.


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSourceOptions:
    """Which topics to read, from where on, and how bytes become records."""

    brokers: str = option(doc="Addresses to begin with: host:port, several with commas.")
    topics: tuple[str, ...] = option((), doc="Names of the topics; or give topic_pattern.")
    topic_pattern: str | None = option(
        None, doc="Regular expression that the whole name of a topic must match; or give topics."
    )
    group_id: str = option(
        "bicycle-default-group",
        doc="Consumer group that published offsets are reported to, for tools that show lag; "
        "progress itself is in the job's checkpoints.",
    )
    starting_offsets: object = option(
        "earliest",
        doc="Where a job that never ran starts: earliest, latest, {timestamp_ms: number} or "
        "{offsets: {topic: {partition: offset}}}.",
    )
    value_format: FormatName | None = option(
        None, doc="How values are decoded. Default: string for str, bytes for bytes, else json."
    )
    key_format: FormatName = option("bytes", doc="How keys are decoded.")
    bounded: bool = option(
        default=False, doc="Read up to the offsets seen at the first start, then end."
    )
    discovery_ms: int = option(
        10_000, low=100, high=86_400_000, doc="How often new partitions and topics are looked for."
    )
    on_data_loss: LossPolicy = option(
        "fail",
        doc="What to do when the next offset is not in the topic any more: fail, or go on with the "
        "earliest or the latest message.",
    )
    connect_timeout_ms: int = option(
        30_000,
        low=1_000,
        high=3_600_000,
        doc="A job that never ran fails when no broker answers in this time; one that ran waits.",
    )
    properties: object = option(
        None, doc="Properties of the client (librdkafka) by name; secrets as references only."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingOffsets:
    """Where a job that never ran starts reading a partition."""

    mode: Literal["earliest", "latest", "timestamp", "offsets"]
    timestamp_ms: int = 0
    offsets: Mapping[str, int]  # By partition, as topic/number; others begin at the earliest.


def starting_offsets(
    options: KafkaSourceOptions, pattern: re.Pattern[str] | None, spec: ConnectorSpec
) -> StartingOffsets:
    """Return what the option ``starting_offsets`` says.

    Raises:
        ConnectorOptionError: it is none of the four forms, or names a topic that is not read.
    """
    value = options.starting_offsets
    if value == "earliest":
        return StartingOffsets(mode="earliest", offsets={})
    if value == "latest":
        return StartingOffsets(mode="latest", offsets={})
    if isinstance(value, Mapping) and len(value) == 1:
        [(word, detail)] = value.items()
        if word == "timestamp_ms" and _is_count(detail):
            return StartingOffsets(mode="timestamp", timestamp_ms=detail, offsets={})
        if word == "offsets" and _is_table(detail):
            for topic in detail:
                if not is_read(options, pattern, topic):
                    raise unknown_start(
                        f"topic {topic!r}, which the source does not read", spec.vertex_id
                    )
            found = {
                f"{topic}/{int(number)}": offset
                for topic, numbers in detail.items()
                for number, offset in numbers.items()
            }
            return StartingOffsets(mode="offsets", offsets=found)
    raise ConnectorOptionError(
        vertex=spec.vertex_id,
        connector=spec.connector_type,
        name="starting_offsets",
        problem=f"{value!r} is not accepted",
        hint="give 'earliest', 'latest', {'timestamp_ms': number} or "
        "{'offsets': {topic: {partition: offset}}}",
    )


def unknown_start(place: str, vertex: str) -> ConnectorOptionError:
    """Return the error of a starting offset that leads nowhere."""
    return ConnectorOptionError(
        vertex=vertex,
        connector="kafka",
        name="starting_offsets",
        problem=f"it names {place}",
        hint="mend the name or the number, or leave it out; nothing was read",
    )


def check_topics(options: KafkaSourceOptions, spec: ConnectorSpec) -> re.Pattern[str] | None:
    """Return the pattern of topics, or None when they are named.

    Raises:
        ConnectorOptionError: neither or both are given, or the pattern is no regular expression.
    """
    problem = None
    if bool(options.topics) == (options.topic_pattern is not None):
        problem = "both are given" if options.topics else "neither it nor topic_pattern is given"
        hint = "give topics, or topic_pattern"
    elif options.topic_pattern is None:
        return None
    else:
        try:
            return re.compile(options.topic_pattern)
        except re.error as error:
            problem = f"topic_pattern {options.topic_pattern!r} is no regular expression: {error}"
            hint = "mend the expression; it must match a topic's whole name"
    raise ConnectorOptionError(
        vertex=spec.vertex_id,
        connector=spec.connector_type,
        name="topics",
        problem=problem,
        hint=hint,
    )


def is_read(options: KafkaSourceOptions, pattern: re.Pattern[str] | None, topic: str) -> bool:
    """Tell whether a source with these options reads a topic."""
    if pattern is not None:
        return pattern.fullmatch(topic) is not None
    return topic in options.topics


def made_topic(topic: str) -> str:
    """Return the name under which a sink tells that it makes a topic."""
    return _MADE + topic


def made_topics(made: Collection[str]) -> list[str]:
    """Return the topics among what sinks make.

    Example:
        >>> made_topics([made_topic("orders"), "file:out"])
        ['orders']
    """
    return [name.removeprefix(_MADE) for name in made if name.startswith(_MADE)]


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(numbers, Mapping)
        and all(str(number).isdecimal() and _is_count(offset) for number, offset in numbers.items())
        for numbers in value.values()
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0
