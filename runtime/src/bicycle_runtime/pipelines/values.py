"""Values that several tables of a pipeline have: times, words, rules for errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from bicycle_sdk.kafka.base import is_secret_property
from bicycle_sdk.quantities import parse_duration_ms
from bicycle_sdk.secrets import Secret

__all__ = [
    "NOTHING_NAMED",
    "AggregateWord",
    "Brokers",
    "ColumnWord",
    "Distance",
    "Duration",
    "ErrorRule",
    "FieldType",
    "FunctionName",
    "KafkaProperties",
    "OnError",
    "Parallelism",
    "Partition",
    "Port",
    "Positive",
    "Scalar",
    "Text",
    "describe",
    "duration_ms",
    "with_secrets",
]

Duration = Annotated[
    str | int | float,
    Meta(
        description="a time such as 250ms, 10s, 5m, 1h, 2d; a bare number is seconds",
        extra={"kind": "duration"},
    ),
]
# A time before or after another: it may be negative.
Distance = Annotated[
    str | int | float,
    Meta(description="a time such as 10s or -10s", extra={"kind": "duration", "is_signed": True}),
]
Text = Annotated[str, Meta(min_length=1)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Parallelism = Annotated[int, Meta(ge=1, le=32_768)]
Positive = Annotated[int, Meta(ge=1)]
# A type with a question mark: the field may be null, or not there.
FieldType = Literal[
    "string", "int", "float", "bool", "timestamp", "json",
    "string?", "int?", "float?", "bool?", "timestamp?", "json?",
]  # fmt: skip
ColumnWord = Literal[
    "string", "int", "float", "bool", "bytes", "datetime", "date", "time", "decimal", "json"
]
Partition = Literal["forward", "rebalance", "hash", "broadcast", "shuffle", "global"]
AggregateWord = Literal["count", "sum", "avg", "min", "max", "distinct"]
# Keys that other systems require although nothing is named by them.
NOTHING_NAMED = "Ignored, for compatibility"


def describe(text: str) -> Meta:
    """Return the description of a key, for the reference and editors."""
    return Meta(description=text)


Scalar = str | int | float | bool
KafkaProperties = Annotated[
    dict[str, Scalar],
    describe("Properties of the Kafka client; a secret is env:NAME or file:PATH."),
]
Brokers = Annotated[Text, describe("Brokers as host:port, separated by commas.")]
FunctionName = Annotated[
    str | None,
    describe("A built-in function, a function class of an installed plugin, or module:function."),
]


class ErrorRule(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The policy for a record that cannot be decoded, processed or written."""

    action: Annotated[
        Literal["fail", "skip", "dead_letter"],
        describe(
            "fail ends the job, skip drops the record, dead_letter stores it as a dead letter."
        ),
    ] = "fail"
    retries: Annotated[int, Meta(ge=0, le=1_000, description="Retries before the action.")] = 0
    backoff: Annotated[Duration, describe("Delay before the first retry.")] = "100ms"
    max_error_rate: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        describe("Maximum share of failed records in an epoch; above it, the job fails."),
    ] = None


OnError = Annotated[
    Literal["fail", "skip", "dead_letter"] | ErrorRule | None,
    describe("Policy for failed records: fail, skip, dead_letter, or a table."),
]


def duration_ms(value: str | float) -> int:
    """Return a time in whole ms; a bare number is seconds.

    Raises:
        ValueError: it is no time, or no whole number of ms.

    Example:
        >>> [duration_ms(text) for text in ("250ms", "10s", "5m", "1h", "42", 7, "-5s")]
        [250, 10000, 300000, 3600000, 42000, 7000, -5000]
    """
    text = str(value).strip()
    is_negative = text.startswith("-")
    text = text.removeprefix("-").strip()
    unit = "s" if text[-1:].isdigit() else ""
    ms = parse_duration_ms(text + unit)
    return -ms if is_negative else ms


def with_secrets(properties: Mapping[str, Scalar]) -> dict[str, Scalar | Secret]:
    """Return properties of a Kafka client, with secrets as references."""
    return {
        name: Secret.parse(str(value)) if is_secret_property(name) else value
        for name, value in properties.items()
    }
