"""The keys of operators; ``OPERATORS`` maps a word to its struct."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from bicycle_runtime.endpoints.values import (
    Duration,
    Positive,
    Scalar,
    Text,
    describe,
    duration_ms,
)
from bicycle_runtime.pipelines.values import AggregateWord, Distance, FunctionName

_WINDOW_MS = 5_000


class Map(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that replaces each record, by a function or SQL expressions."""

    function: FunctionName = None
    set: Annotated[dict[str, str] | None, describe("Expressions of fields to add or replace.")] = (
        None
    )
    select: Annotated[
        dict[str, str] | None, describe("Expressions of all fields of the new record.")
    ] = None
    drop: Annotated[list[str] | None, describe("Fields to remove.")] = None


class FlatMap(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that replaces each record by any number of records."""

    function: FunctionName = None


class Filter(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that keeps the records that satisfy a condition."""

    predicate: Annotated[
        Literal[
            "non_empty", "contains", "starts_with", "ends_with", "min_length", "equals", "exists"
        ]
        | None,
        describe("Condition on the text of the record or of a field. Default: non_empty."),
    ] = None
    value: Annotated[Scalar | None, describe("Operand of the predicate.")] = None
    field: Annotated[str | None, describe("Field to test. Default: the whole record.")] = None
    function: FunctionName = None
    where: Annotated[
        str | None, describe("SQL expression; records for which it is true are kept.")
    ] = None


class KeyBy(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that assigns keys to records, by default the record itself."""

    field: Annotated[str | None, describe("The key field; null if a record lacks the field.")] = (
        None
    )
    fields: Annotated[list[str] | None, describe("Several key fields.")] = None
    function: FunctionName = None


class Time(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The event time of records, and their maximum lateness."""

    max_out_of_orderness: Annotated[
        Duration, describe("Maximum age of a record relative to the newest record.")
    ] = "5s"
    allowed_lateness: Annotated[
        Duration | None,
        describe("Alias of max_out_of_orderness, for files of Pulse."),
    ] = None
    field: Annotated[
        str | None, describe("Field with the event time. Default: the event time of the source.")
    ] = None
    idle_timeout: Annotated[
        Duration,
        describe("An idle shard stops holding the watermark back after this time; 0 means never."),
    ] = "10s"


def disorder_of(time: Time) -> Duration:
    """Return how much older than the newest record one may be, under either name."""
    older = time.allowed_lateness
    return time.max_out_of_orderness if older is None else older


class Aggregate(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One of several aggregates of a window."""

    name: Annotated[Text, describe("Field of the result.")]
    agg: Annotated[AggregateWord, describe("The aggregate.")]
    field: Annotated[str | None, describe("Field to aggregate; none for count.")] = None


Aggregates = Annotated[list[Aggregate], Meta(min_length=1)]


class WindowSize(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The size and type of a window."""

    type: Annotated[
        Literal["tumbling", "sliding", "session", "count"], describe("Type of windows.")
    ] = "tumbling"
    size: Annotated[Duration | None, describe("Length of a window. Sessions ignore it.")] = None
    slide: Annotated[
        Duration | None, describe("Time between the starts of two sliding windows.")
    ] = None
    gap: Annotated[
        Duration | None, describe("A session ends after this time without a record of its key.")
    ] = None
    offset: Annotated[
        Distance | None, describe("Offset of the window starts from 1970-01-01 UTC.")
    ] = None
    records: Annotated[Positive | None, describe("Number of records in a count window.")] = None
    every: Annotated[
        Positive | None, describe("Number of records between the starts of two count windows.")
    ] = None
    keep: Annotated[
        Duration | None, describe("Late records update an emitted result for this time.")
    ] = None


class Window(WindowSize, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that aggregates the records of each key in windows.

    Late records are sent to the output ``late``.
    """

    window_ms: Annotated[
        Positive | None,
        describe("Length of a window in ms. Default: 5000, unless another key sets the window."),
    ] = None
    agg: Annotated[AggregateWord, describe("The aggregate.")] = "count"
    agg_field: Annotated[str | None, describe("Field to aggregate; none for count.")] = None
    aggregates: Annotated[Aggregates | None, describe("Several aggregates, instead of agg.")] = None
    key_name: Annotated[Text, describe("Field of the result for the key.")] = "key"


def size_ms(window: Window) -> int:
    """Return the length of a window in ms, under either name."""
    return (window.window_ms or _WINDOW_MS) if window.size is None else duration_ms(window.size)


class Reduce(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that aggregates the records of a key, and emits each new result."""

    function: FunctionName = None
    agg: Annotated[AggregateWord | None, describe("The aggregate.")] = None
    agg_field: Annotated[str | None, describe("Field to aggregate; none for count.")] = None
    aggregates: Annotated[Aggregates | None, describe("Several aggregates, instead of agg.")] = None
    key_name: Annotated[Text, describe("Field of the result for the key.")] = "key"


class Count(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that counts records per key, or texts as ``text:count``."""


class Join(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that joins the records of two inputs with equal keys."""

    on: Annotated[list[Text], Meta(min_length=1, description="Fields that must be equal.")]
    type: Annotated[
        Literal["interval", "window", "as_of", "table"],
        describe(
            "interval: by distance in time; window: in the same window; "
            "as_of: the last earlier row; table: the newest row."
        ),
    ] = "interval"
    how: Annotated[
        Literal["inner", "left", "right", "full"],
        describe(
            "Sides whose rows are emitted without a match. right and full need left rows of known "
            "`fields`."
        ),
    ] = "inner"
    lower: Annotated[
        Distance,
        describe(
            "interval: least distance of a match from the left row; may be negative, such as -5s."
        ),
    ] = "0s"
    upper: Annotated[
        Distance | None, describe("interval: greatest distance of a match from the left row.")
    ] = None
    size: Annotated[Duration | None, describe("window: length of the windows.")] = None
    tolerance: Annotated[Duration | None, describe("as_of: maximum age of the right row.")] = None
    prefix: Annotated[
        str, describe("Prefix of fields of the right row that the left row also has.")
    ] = "right_"


class Union(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that merges several inputs."""


class Split(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that sends each record to the outputs that a field names."""

    field: Annotated[Text, describe("The field.")]
    outputs: Annotated[
        dict[str, list[Scalar]] | None,
        describe("Values of the field by output. Default: the value is the name of the output."),
    ] = None
    default: Annotated[
        str | None, describe("Output of all other values. Default: these records are dropped.")
    ] = None


class Dedup(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that keeps the first of several records with equal fields."""

    fields: Annotated[list[Text], Meta(min_length=1, description="Fields that identify a record.")]
    within: Annotated[
        Duration | None, describe("Time for which a record is remembered. Default: forever.")
    ] = None


class Enrich(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that adds fields from a file, which each process holds in memory."""

    path: Annotated[Text, describe("Lookup file: CSV with a header line, JSON lines or Parquet.")]
    key: Annotated[Text, describe("Field of the record.")]
    lookup_key: Annotated[
        str | None, describe("Key field of the file. Default: the name in key.")
    ] = None
    format: Annotated[
        Literal["csv", "jsonl", "parquet"] | None,
        describe("Format of the file. Default: by the file name."),
    ] = None
    fields: Annotated[list[str] | None, describe("Fields to add. Default: all.")] = None
    how: Annotated[
        Literal["inner", "left"],
        describe("left also emits records without a match in the file."),
    ] = "left"


class Lookup(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that completes records from a PostgreSQL table, in batches."""

    url: Annotated[Text, describe("postgresql://user@host:port/database, without a password.")]
    table: Annotated[Text, describe("Name of the table, or schema.table.")]
    key: Annotated[Text, describe("Field of the record.")]
    column: Annotated[
        str | None, describe("Column with unique keys. Default: the name in key.")
    ] = None
    fields: Annotated[list[Text] | None, describe("Columns to add. Default: all.")] = None
    password: Annotated[
        str | None,
        describe(
            "Reference to the password: env:NAME or file:PATH. Default: "
            "the password that libpq finds."
        ),
    ] = None
    how: Annotated[
        Literal["inner", "left"],
        describe("left also emits records without a match in the table."),
    ] = "left"
    cache_rows: Annotated[Positive, describe("Number of cached keys per subtask.")] = 10_000
    cache_for: Annotated[
        Duration,
        describe(
            "Lifetime of a cached row; a change of the table may be visible only after this time."
        ),
    ] = "1m"
    timeout: Annotated[Duration, describe("Time limit of a response, including retries.")] = "30s"


class HttpCall(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that completes records from a server, with many requests in flight.

    A response that is not 2xx, not JSON, or not in time is a failure of the record.
    """

    url: Annotated[
        Text, describe("Address. After the host, {field} is replaced by the value of a field.")
    ]
    method: Annotated[
        Literal["GET", "POST"], describe("HTTP method. POST sends the record as JSON.")
    ] = "GET"
    headers: Annotated[dict[str, str], describe("Additional headers.")] = field(
        default_factory=dict
    )
    secret_headers: Annotated[
        dict[str, str], describe("Headers with secrets; each value is env:NAME or file:PATH.")
    ] = field(default_factory=dict)
    result: Annotated[
        str | None,
        describe(
            "Field for the response. Default: the fields of the response are added to the record."
        ),
    ] = None
    timeout: Annotated[Duration, describe("Time limit of a response, including retries.")] = "10s"
    capacity: Annotated[
        int, Meta(ge=1, le=10_000, description="Maximum number of requests in flight per subtask.")
    ] = 100
    ordered: Annotated[bool, describe("Keep the order of the records.")] = True


class Process(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that calls a function class of an installed plugin.

    Without ``function``, the name or id of the vertex is the name of the plugin.
    """

    function: FunctionName = None


class Sql(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that computes a query over its records: the table ``input``.

    If it has several inputs, each is a table with the id of its vertex, or the name of its output.
    """

    query: Annotated[
        Text, describe("SELECT … FROM input; CREATE VIEW and CREATE FUNCTION may precede it.")
    ]


class RateLimit(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that limits the rate of records; others wait."""

    per_second: Annotated[
        float, describe("Maximum number of records per second over all subtasks.")
    ]
    burst: Annotated[
        Positive, describe("Number of records that may pass at once after a pause.")
    ] = 100


OPERATORS: Mapping[str, type[Struct]] = {
    "map": Map,
    "flat_map": FlatMap,
    "filter": Filter,
    "key_by": KeyBy,
    "time": Time,
    "window": Window,
    "reduce": Reduce,
    "count": Count,
    "join": Join,
    "union": Union,
    "split": Split,
    "dedup": Dedup,
    "enrich": Enrich,
    "lookup": Lookup,
    "http_call": HttpCall,
    "process": Process,
    "rate_limit": RateLimit,
    "sql": Sql,
}
ALIASES: Mapping[str, str] = {"flatmap": "flat_map", "keyby": "key_by"}
