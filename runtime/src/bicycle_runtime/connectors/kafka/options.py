"""Derived options of the Kafka source: topics, and start offsets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.contract import ConnectorSpec
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.kafka.options import KafkaSourceOptions

LossPolicy = Literal["fail", "earliest", "latest"]
_MADE = "kafka:"  # Among the names of ``Sink.makes``, this prefix marks a topic.


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingOffsets:
    """The start offsets of a job that never ran."""

    mode: Literal["earliest", "latest", "timestamp", "offsets"]
    timestamp_ms: int = 0
    offsets: Mapping[str, int]  # By partition, as topic/number; others begin at the earliest.


def starting_offsets(
    options: KafkaSourceOptions, pattern: re.Pattern[str] | None, spec: ConnectorSpec
) -> StartingOffsets:
    """Return the start offsets of the option ``starting_offsets``.

    Raises:
        CONNECTOR_OPTION_WRONG: it has a form other than the four, or names a topic that is not
            read.
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
                        f"topic {topic!r}, which is not a topic of the source", spec.vertex_id
                    )
            found = {
                f"{topic}/{int(number)}": offset
                for topic, numbers in detail.items()
                for number, offset in numbers.items()
            }
            return StartingOffsets(mode="offsets", offsets=found)
    raise CONNECTOR_OPTION_WRONG(
        vertex=spec.vertex_id,
        connector=spec.connector_type,
        name="starting_offsets",
        problem=f"{value!r} is not valid",
        hint=(
            "use 'earliest', 'latest', {'timestamp_ms': number} or {'offsets': {topic: "
            "{partition: offset}}}"
        ),
    )


def unknown_start(unknown_text: str, vertex: str) -> BicycleError:
    """Return the error of a starting offset that leads nowhere."""
    return CONNECTOR_OPTION_WRONG(
        vertex=vertex,
        connector="kafka",
        name="starting_offsets",
        problem=f"it names {unknown_text}",
        hint="correct or remove the name or the number; nothing was read",
    )


def check_topics(options: KafkaSourceOptions, spec: ConnectorSpec) -> re.Pattern[str] | None:
    """Return the pattern of topics, or None when they are named.

    Raises:
        CONNECTOR_OPTION_WRONG: neither or both are given, or the pattern is no regular expression.
    """
    problem = None
    if bool(options.topics) == (options.topic_pattern is not None):
        problem = "both are set" if options.topics else "neither it nor topic_pattern is set"
        hint = "set either topics or topic_pattern"
    elif options.topic_pattern is None:
        return None
    else:
        try:
            return re.compile(options.topic_pattern)
        except re.error as error:
            problem = (
                f"topic_pattern {options.topic_pattern!r} is not a regular expression: {error}"
            )
            hint = "correct the expression; it must match the whole name of a topic"
    raise CONNECTOR_OPTION_WRONG(
        vertex=spec.vertex_id,
        connector=spec.connector_type,
        name="topics",
        problem=problem,
        hint=hint,
    )


def is_read(options: KafkaSourceOptions, pattern: re.Pattern[str] | None, topic: str) -> bool:
    """Return whether a source with these options reads a topic."""
    if pattern is not None:
        return pattern.fullmatch(topic) is not None
    return topic in options.topics


def made_topic(topic: str) -> str:
    """Return the name of a topic as a sink's target."""
    return _MADE + topic


def made_topics(made: Collection[str]) -> list[str]:
    """Return the topics among the targets of sinks.

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
