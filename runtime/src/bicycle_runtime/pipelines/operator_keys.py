"""The keys of operators; ``OPERATORS`` maps a word to its struct."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from bicycle_runtime.pipelines.values import (
    AggregateWord,
    Distance,
    Duration,
    FunctionName,
    Positive,
    Scalar,
    Text,
    describe,
)

__all__ = [
    "ALIASES",
    "OPERATORS",
    "Aggregate",
    "Count",
    "Dedup",
    "Enrich",
    "Filter",
    "FlatMap",
    "HttpCall",
    "Join",
    "KeyBy",
    "Lookup",
    "Map",
    "Process",
    "RateLimit",
    "Reduce",
    "Split",
    "Time",
    "Union",
    "Window",
    "WindowSize",
    "disorder_of",
]


class Map(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Replaces each record, by a function or by SQL expressions over its fields."""

    function: FunctionName = None
    set: Annotated[
        dict[str, str] | None, describe("Fields that are added or replaced, by expressions.")
    ] = None
    select: Annotated[
        dict[str, str] | None, describe("All fields of the new record, by expressions.")
    ] = None
    drop: Annotated[list[str] | None, describe("Fields that are left out.")] = None


class FlatMap(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that replaces each record by any number of records."""

    function: FunctionName = None


class Filter(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Keeps some of the records."""

    predicate: Annotated[
        Literal[
            "non_empty", "contains", "starts_with", "ends_with", "min_length", "equals", "exists"
        ]
        | None,
        describe(
            "What must hold of the text of the record, or of a field; non_empty if nothing else."
        ),
    ] = None
    value: Annotated[Scalar | None, describe("What the predicate compares with.")] = None
    field: Annotated[str | None, describe("The field that it looks at; else the whole record.")] = (
        None
    )
    function: FunctionName = None
    where: Annotated[str | None, describe("An SQL expression that is true of what is kept.")] = None


class KeyBy(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that assigns keys to records, by default the record itself."""

    field: Annotated[str | None, describe("The field; null where a record has none.")] = None
    fields: Annotated[list[str] | None, describe("Several fields.")] = None
    function: FunctionName = None


class Time(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The event time of records, and their maximum lateness."""

    max_out_of_orderness: Annotated[
        Duration, describe("A record is at most so much older than the newest one.")
    ] = "5s"
    allowed_lateness: Annotated[
        Duration | None,
        describe("Pulse's name of max_out_of_orderness, for files that come from there."),
    ] = None
    field: Annotated[
        str | None, describe("Field with the event time; else that of the source counts.")
    ] = None
    idle_timeout: Annotated[
        Duration, describe("A shard that is silent for so long holds nobody back; 0: forever.")
    ] = "10s"


def disorder_of(time: Time) -> Duration:
    """Return how much older than the newest record one may be, under whichever name."""
    older = time.allowed_lateness
    return time.max_out_of_orderness if older is None else older


class Aggregate(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One of several aggregates of a window."""

    name: Annotated[Text, describe("Field of the result.")]
    agg: Annotated[AggregateWord, describe("What is computed.")]
    field: Annotated[str | None, describe("Of which field; count needs none.")] = None


class WindowSize(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The size and type of a window."""

    type: Annotated[
        Literal["tumbling", "sliding", "session", "count"], describe("The kind of windows.")
    ] = "tumbling"
    size: Annotated[
        Duration | None, describe("How long a window is; sessions need none, and use none.")
    ] = None
    slide: Annotated[Duration | None, describe("How often a sliding window begins.")] = None
    gap: Annotated[Duration | None, describe("How long a key is quiet when its session ends.")] = (
        None
    )
    offset: Annotated[Distance | None, describe("Where a window begins, from 1970 on.")] = None
    records: Annotated[Positive | None, describe("Records of a window of the type count.")] = None
    every: Annotated[Positive | None, describe("Records from one such window to the next.")] = None
    keep: Annotated[
        Duration | None, describe("Late records update a result for so long after it came.")
    ] = None


class Window(WindowSize, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Computes over windows of the records of each key.

    Records that come too late go to the output ``late``.
    """

    window_ms: Annotated[
        Positive | None, describe("Length of a window in ms; 5000 where nothing else is said.")
    ] = None
    agg: Annotated[AggregateWord, describe("What is computed.")] = "count"
    agg_field: Annotated[str | None, describe("Of which field; count needs none.")] = None
    aggregates: Annotated[list[Aggregate] | None, describe("Several, in place of agg.")] = None
    key_name: Annotated[Text, describe("Field of the result with the key.")] = "key"


class Reduce(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Joins the records of a key; the result so far follows each record."""

    function: FunctionName = None
    agg: Annotated[AggregateWord | None, describe("What is computed.")] = None
    agg_field: Annotated[str | None, describe("Of which field; count needs none.")] = None
    aggregates: Annotated[list[Aggregate] | None, describe("Several, in place of agg.")] = None
    key_name: Annotated[Text, describe("Field of the result with the key.")] = "key"


class Count(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Counts: per key behind key_by, else per text in lower case as ``text:count``."""


class Join(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Joins the records of two inputs with equal keys."""

    on: Annotated[list[Text], Meta(min_length=1, description="Fields that are equal.")]
    type: Annotated[
        Literal["interval", "window", "as_of", "table"],
        describe("By distance in time, by window, with the last row before, with the newest row."),
    ] = "interval"
    how: Annotated[
        Literal["inner", "left", "right", "full"], describe("Whose rows come out without a match.")
    ] = "inner"
    lower: Annotated[
        Distance,
        describe("interval: the first matching row is so far from the left one; may be -5s."),
    ] = "0s"
    upper: Annotated[Distance | None, describe("interval: the last one is so far.")] = None
    size: Annotated[Duration | None, describe("window: the length.")] = None
    tolerance: Annotated[Duration | None, describe("as_of: the row may be so much older.")] = None
    prefix: Annotated[
        str, describe("Fields of the right row that the left one has, too, begin so.")
    ] = "right_"


class Union(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that merges several inputs."""


class Split(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that sends each record to the outputs that a field names."""

    field: Annotated[Text, describe("The field.")]
    outputs: Annotated[
        dict[str, list[Scalar]] | None,
        describe("Output by values of the field; without it the value is the output."),
    ] = None
    default: Annotated[
        str | None, describe("Output for all other values; else they are left out.")
    ] = None


class Dedup(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Keeps the first of records that are alike."""

    fields: Annotated[list[Text], Meta(min_length=1, description="Fields that tell them apart.")]
    within: Annotated[Duration | None, describe("So long is it known; else forever.")] = None


class Enrich(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Completes records from a file that each process holds in memory."""

    path: Annotated[Text, describe("The file: CSV with a header line, JSON lines or Parquet.")]
    key: Annotated[Text, describe("Field of the record.")]
    lookup_key: Annotated[
        str | None, describe("Field of the file; else it is called the same.")
    ] = None
    format: Annotated[
        Literal["csv", "jsonl", "parquet"] | None, describe("How it is written; else by its name.")
    ] = None
    fields: Annotated[list[str] | None, describe("Fields that are taken; else all.")] = None
    how: Annotated[
        Literal["inner", "left"],
        describe("left lets records come out that the file does not know."),
    ] = "left"


class Lookup(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that completes records from a PostgreSQL table, in batches."""

    url: Annotated[Text, describe("postgresql://user@host:port/database, without a password.")]
    table: Annotated[Text, describe("The table, or schema.table.")]
    key: Annotated[Text, describe("Field of the record.")]
    column: Annotated[
        str | None, describe("Column that has each key once; else it is called the same.")
    ] = None
    fields: Annotated[list[Text] | None, describe("Columns that are taken; else all.")] = None
    password: Annotated[
        str | None, describe("Where it is: env:NAME or file:PATH; else where libpq finds it.")
    ] = None
    how: Annotated[
        Literal["inner", "left"],
        describe("left lets records come out that the table does not know."),
    ] = "left"
    cache_rows: Annotated[Positive, describe("So many keys are kept by each subtask.")] = 10_000
    cache_for: Annotated[
        Duration, describe("For so long; a change of the table may show that much later.")
    ] = "1m"
    timeout: Annotated[Duration, describe("How long an answer may take, tries included.")] = "30s"


class HttpCall(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that completes records from a server, with many requests in flight.

    A response that is not 2xx, not JSON, or not in time is a failure of the record.
    """

    url: Annotated[
        Text, describe("Address; {field} behind the host stands for the value of a field.")
    ]
    method: Annotated[Literal["GET", "POST"], describe("POST sends the record as JSON.")] = "GET"
    headers: Annotated[dict[str, str], describe("More headers.")] = field(default_factory=dict)
    secret_headers: Annotated[
        dict[str, str], describe("Headers with secrets: env:NAME or file:PATH.")
    ] = field(default_factory=dict)
    result: Annotated[
        str | None, describe("Field that gets the answer; else its fields are added.")
    ] = None
    timeout: Annotated[Duration, describe("How long an answer may take, tries included.")] = "10s"
    capacity: Annotated[
        int, Meta(ge=1, le=10_000, description="Requests in flight of each subtask.")
    ] = 100
    ordered: Annotated[bool, describe("Whether records keep their order.")] = True


class Process(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that calls a plugin's function class, by default of its own name."""

    function: FunctionName = None


class RateLimit(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An operator that limits the rate of records; others wait."""

    per_second: Annotated[float, describe("Records of all subtasks together.")]
    burst: Annotated[Positive, describe("So many may pass at once after a pause.")] = 100


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
}
ALIASES: Mapping[str, str] = {"flatmap": "flat_map", "keyby": "key_by"}
