"""Derived options of the Kafka sink: its topic, its messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG, CONNECTOR_PAYLOAD_WRONG
from bicycle_runtime.connectors.kafka.encoding import (
    ENCODED_HERE,
    EncodingSchema,
    MessagePlan,
    TopicLimits,
)
from bicycle_runtime.connectors.kafka.topics import TopicPlan
from bicycle_runtime.connectors.settings import codec_for
from bicycle_runtime.contract import ConnectorSpec
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.functions import as_callable
from bicycle_sdk.kafka.options import KafkaSinkOptions

_FUNCTION_ROLES = ("value", "key", "headers", "timestamp", "partition")


def topic_plan(value: object, spec: ConnectorSpec) -> TopicPlan | None:
    """Return the plan in the option ``create_topic``.

    Raises:
        CONNECTOR_OPTION_WRONG: it has another form.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        plan: dict[str, Any] = {name: item for name, item in value.items() if item is not None}
        if all(_is_accepted(name, item) for name, item in plan.items()):
            config = {name: _text(item) for name, item in plan.pop("config", {}).items()}
            return TopicPlan(**plan, config=config)
    raise CONNECTOR_OPTION_WRONG(
        vertex=spec.vertex_id,
        connector=spec.connector_type,
        name="create_topic",
        problem=f"{value!r} is not valid",
        hint="use {'partitions': number, 'replication_factor': number, 'config': {name: text}}",
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
        limits: The limits of the topic.

    Raises:
        CONNECTOR_OPTION_WRONG: there is no such format, or it cannot be used.
        CONNECTOR_PAYLOAD_WRONG: a payload is missing or of the wrong kind.
    """
    schemas: dict[str, EncodingSchema] = {
        role: _schema(spec, f"{role}_schema")
        for role in ("key", "value")
        if f"{role}_schema" in spec.payloads
    }
    formats: dict[str, str] = {
        "key": options.key_format or "auto",
        "value": options.value_format or _default_format(spec),
    }
    given = {"key": options.key_format_options, "value": options.value_format_options}
    for role, found in formats.items():
        if role in schemas:
            formats[role] = "schema"  # It has more than a word.
        elif found == "schema":
            raise _payload_error(spec, f"{role}_schema", None, "an object with encode(value)")
        elif found not in ENCODED_HERE or given[role]:
            schemas[role] = codec_for(
                spec, role, found, record_type=_written_type(spec, role), options=given[role]
            )
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
    """Return whether messages have the event times of their records."""
    return options.message_time == "event" and "timestamp" not in spec.payloads


def _written_type(spec: ConnectorSpec, role: str) -> Any:
    """Return the known type of encoded values, which is that of unchanged records."""
    return spec.record_type if role == "value" and "value" not in spec.payloads else None


def _default_format(spec: ConnectorSpec) -> str:
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


def _payload_error(spec: ConnectorSpec, role: str, found: object, expected: str) -> BicycleError:
    return CONNECTOR_PAYLOAD_WRONG(
        vertex=spec.vertex_id,
        connector=spec.connector_type,
        role=role,
        found="missing" if found is None else f"a {type(found).__qualname__}",
        expected=expected,
    )
