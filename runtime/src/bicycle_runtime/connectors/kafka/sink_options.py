"""Options of the Kafka sink, declared once, and what follows from them and the payloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bicycle_runtime.base.options import option
from bicycle_runtime.connectors.contract import ConnectorSpec
from bicycle_runtime.connectors.errors import ConnectorOptionError, ConnectorPayloadError
from bicycle_runtime.connectors.kafka.encoding import (
    EncodingSchema,
    MessageFormat,
    MessagePlan,
    TopicLimits,
)
from bicycle_runtime.connectors.kafka.topics import TopicPlan
from bicycle_runtime.operators.calling.user_functions import is_async
from bicycle_sdk.functions import as_callable

__all__ = ["KafkaSinkOptions", "message_plan", "takes_times", "topic_plan"]

_FUNCTION_ROLES = ("value", "key", "headers", "timestamp", "partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSinkOptions:
    """Where to write, in which form, and with which guarantee."""

    brokers: str = option(doc="Addresses to begin with: host:port, several with commas.")
    topic: str = option(doc="Name of the topic.")
    value_format: Literal["json", "string", "bytes", "msgpack", "schema"] | None = option(
        None,
        doc="How values are encoded. Default: string for str, bytes for bytes, json for other "
        "declared types; each value by its own type when none is declared.",
    )
    key_format: Literal["json", "string", "bytes", "msgpack", "schema"] | None = option(
        None, doc="How keys are encoded. Default: text as UTF-8, bytes as they are, others as JSON."
    )
    guarantee: Literal["at-least-once", "exactly-once"] = option(
        "at-least-once",
        doc="at-least-once: tasks write at once, and an epoch that runs again writes again. "
        "exactly-once: sealed epochs are published in transactions.",
    )
    transactional_id_prefix: str | None = option(
        None, doc="Begin of the transactional ids. Default: bicycle-<job>-<sink>."
    )
    marker_topic: str | None = option(
        None, doc="Topic of the epoch markers. Default: <prefix>-marker."
    )
    transaction_timeout_ms: int = option(
        60_000,
        low=1_000,
        high=86_400_000,
        doc="The brokers abort a transaction that is open for longer.",
    )
    recovery_budget_ms: int = option(
        30_000,
        low=0,
        high=86_400_000,
        doc="Time for an interruption while an epoch is published, which the transaction must "
        "outlast.",
    )
    publish_timeout_ms: int = option(
        900_000,
        low=1_000,
        high=86_400_000,
        doc="Brokers that are away for longer end the job; its output is kept for the next start.",
    )
    connect_timeout_ms: int = option(
        30_000,
        low=1_000,
        high=3_600_000,
        doc="A job that never ran fails when no broker answers in this time.",
    )
    publish_threads_max: int = option(
        4, low=1, high=64, doc="So many writers publish at the same time."
    )
    on_rewind: Literal["fail", "publish_again"] = option(
        "fail",
        doc="What to do when an older epoch or a savepoint was restored, so that output which is "
        "in the topic already would appear again.",
    )
    message_time: Literal["event", "written"] = option(
        "event",
        doc="The time of a message: event: that of its record, as far as records have one; "
        "written: when it is written. A function for timestamps overrules it.",
    )
    create_topic: object = option(
        None,
        doc="{partitions, replication_factor, config}: make the topic when it is missing.",
    )
    properties: object = option(
        None, doc="Properties of the client (librdkafka) by name; secrets as references only."
    )


def topic_plan(value: object, spec: ConnectorSpec) -> TopicPlan | None:
    """Return what the option ``create_topic`` says.

    Raises:
        ConnectorOptionError: it has another form.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        plan: dict[str, Any] = {name: item for name, item in value.items() if item is not None}
        if all(_is_accepted(name, item) for name, item in plan.items()):
            config = {name: _text(item) for name, item in plan.pop("config", {}).items()}
            return TopicPlan(**plan, config=config)
    raise ConnectorOptionError(
        vertex=spec.vertex_id,
        connector=spec.connector_type,
        name="create_topic",
        problem=f"{value!r} is not accepted",
        hint="give {'partitions': number, 'replication_factor': number, 'config': {name: text}}",
    )


def _is_accepted(name: str, item: Any) -> bool:
    if name == "config":
        return isinstance(item, Mapping)
    is_count = isinstance(item, int) and not isinstance(item, bool) and item >= 1
    return name in ("partitions", "replication_factor") and is_count


def _text(item: Any) -> str:
    return str(item).lower() if isinstance(item, bool) else str(item)


def message_plan(
    options: KafkaSinkOptions, spec: ConnectorSpec, limits: TopicLimits | None = None
) -> MessagePlan:
    """Return how records become messages.

    Args:
        options: Of the sink.
        spec: Its payloads are the user's functions and schemas.
        limits: What the topic takes.

    Raises:
        ConnectorPayloadError: a payload is missing or of the wrong kind.
    """
    schemas = {
        role: _schema(spec, f"{role}_schema")
        for role in ("key", "value")
        if f"{role}_schema" in spec.payloads
    }
    formats: dict[str, MessageFormat] = {
        "key": options.key_format or "auto",
        "value": options.value_format or _default_format(spec),
    }
    for role, found in formats.items():
        if role in schemas:
            formats[role] = "schema"  # It says more than a word.
        elif found == "schema":
            raise _payload_error(spec, f"{role}_schema", None, "an object with encode(value)")
    return MessagePlan(
        value_format=formats["value"],
        key_format=formats["key"],
        functions={
            role: _function(spec, role) for role in _FUNCTION_ROLES if role in spec.payloads
        },
        schemas=schemas,
        limits=limits or TopicLimits(),
        has_event_times=takes_times(options, spec),
    )


def takes_times(options: KafkaSinkOptions, spec: ConnectorSpec) -> bool:
    """Tell whether messages have the event times of their records."""
    return options.message_time == "event" and "timestamp" not in spec.payloads


def _default_format(spec: ConnectorSpec) -> MessageFormat:
    if "value" in spec.payloads or spec.record_type in (None, Any):
        return "auto"
    if spec.record_type is str:
        return "string"
    return "bytes" if spec.record_type is bytes else "json"


def _function(spec: ConnectorSpec, role: str) -> Callable[[Any], Any]:
    given = spec.payloads[role]
    is_usable = callable(given) or hasattr(given, "get_key")
    function = as_callable(given, "get_key") if is_usable else None
    if function is None or is_async(function):
        raise _payload_error(spec, role, given, "a plain function of one record")
    return function


def _schema(spec: ConnectorSpec, role: str) -> EncodingSchema:
    found: EncodingSchema = spec.payloads[role]
    if not callable(getattr(found, "encode", None)):
        raise _payload_error(spec, role, found, "an object with encode(value)")
    return found


def _payload_error(
    spec: ConnectorSpec, role: str, found: object, expected: str
) -> ConnectorPayloadError:
    return ConnectorPayloadError(
        vertex=spec.vertex_id,
        connector=spec.connector_type,
        role=role,
        found="missing" if found is None else f"a {type(found).__qualname__}",
        expected=expected,
    )
