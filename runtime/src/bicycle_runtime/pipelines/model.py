"""The keys of a pipeline, declared once, for checks, JSON Schema and reference.

A struct is a table of the file. Sources, sinks and operators are told apart by one word, and stand
in modules of their own. Values stay as they are written; ``duration_ms`` reads those of time.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from bicycle_runtime.pipelines.operator_keys import Aggregate, Time, WindowSize
from bicycle_runtime.pipelines.values import (
    AggregateWord,
    OnError,
    Parallelism,
    Partition,
    Text,
    describe,
)

__all__ = [
    "Edge",
    "Ops",
    "Pipeline",
    "Settings",
    "Test",
]


class Settings(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Settings of the job."""

    parallelism: Annotated[Parallelism, describe("Subtasks of operators that name none.")] = 1
    max_parallelism: Annotated[
        Parallelism | None, describe("Number of key groups, fixed with the first state; else 128.")
    ] = None
    checkpoint_interval_ms: Annotated[
        int, Meta(ge=1, le=86_400_000, description="How often state is folded into a base, in ms.")
    ] = 60_000
    max_restarts: Annotated[
        int, Meta(ge=0, description="How often a job that failed is started again; 0: never.")
    ] = 3
    restart_delay_ms: Annotated[int, Meta(ge=0, description="Pause before a restart, in ms.")] = (
        5_000
    )
    mode: Annotated[
        Literal["streaming", "batch"],
        describe("Follow the input, or read it in one pass with event time at its end."),
    ] = "streaming"
    properties: Annotated[
        dict[str, str], describe("Properties of the job, which functions find in their context.")
    ] = field(default_factory=dict)


class Ops(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The computations of the short form."""

    count_by: Annotated[str | None, describe("Field with the key.")] = None
    agg: Annotated[AggregateWord, describe("What is computed.")] = "count"
    agg_field: Annotated[str | None, describe("Of which field; count needs none.")] = None
    aggregates: Annotated[list[Aggregate] | None, describe("Several, in place of agg.")] = None
    key_name: Annotated[
        Text | None,
        describe("Field of the result with the key; else that of count_by (in Pulse's files key)."),
    ] = None


class Edge(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A path for records from one vertex to another."""

    from_: Annotated[Text, describe("Id of the vertex that gives them.")]
    to: Annotated[Text, describe("Id of the vertex that takes them.")]
    partition: Annotated[Partition, describe("Which subtask gets a record.")] = "forward"
    output: Annotated[
        str | None, describe("A side output: late of windows and joins, those of split.")
    ] = None


class Test(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Records in, records out: `bicycle pipeline test` runs it."""

    name: Annotated[str, describe("What it shows.")] = ""
    input: Annotated[
        list[Any] | dict[str, list[Any]], describe("Records of the source, or of each by its id.")
    ]
    output: Annotated[
        list[Any] | dict[str, list[Any]], describe("Records of the sink, or of each by its id.")
    ]
    ordered: Annotated[bool, describe("Whether the order of output counts.")] = False


class Pipeline(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A pipeline: a source, computations and a sink, or vertices and edges."""

    name: Annotated[str | None, describe("Name of the job; else that of the file.")] = None
    description: Annotated[str, describe("One line for people.")] = ""
    config: Annotated[Settings, describe("Settings of the job.")] = Settings()
    on_error: OnError = None
    source: Annotated[Any, describe("Where records come from; its kind says which.")] = None
    time: Annotated[Time | None, describe("Event time.")] = None
    steps: Annotated[list[Any], describe("Operators between source and window, in order.")] = field(
        default_factory=list
    )
    window: Annotated[WindowSize | None, describe("Which records are computed together.")] = None
    ops: Annotated[Ops | None, describe("What is computed.")] = None
    sink: Annotated[Any, describe("Where results go; its kind says which.")] = None
    vertices: Annotated[list[Any], describe("All operators, sources and sinks.")] = field(
        default_factory=list
    )
    edges: Annotated[list[Edge], describe("Which vertex takes records of which.")] = field(
        default_factory=list
    )
    test: Annotated[list[Test], describe("Tests of the pipeline.")] = field(default_factory=list)
