"""Values that several tables of a pipeline have: times, words, rules for errors."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from bicycle_runtime.endpoints.values import Duration, describe

# A time before or after another: it may be negative.
Distance = Annotated[
    str | int | float,
    Meta(description="a time such as 10s or -10s", extra={"kind": "duration", "is_signed": True}),
]
Partition = Literal["forward", "rebalance", "hash", "broadcast", "shuffle", "global"]
AggregateWord = Literal["count", "sum", "avg", "min", "max", "distinct"]


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
