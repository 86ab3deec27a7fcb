"""The keys of a pipeline, declared once, for checks, JSON Schema and reference.

A struct is a table of the file. Sources, sinks and operators are distinguished by one word, and are
in modules of their own. Values stay as they are written; ``duration_ms`` reads times.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Struct, field

from bicycle_runtime.endpoints.job_settings import Settings
from bicycle_runtime.endpoints.values import Text, describe
from bicycle_runtime.pipelines.operator_keys import Aggregates, Time, WindowSize
from bicycle_runtime.pipelines.values import AggregateWord, OnError, Partition


class Ops(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The computations of the short form."""

    count_by: Annotated[str | None, describe("Field with the key.")] = None
    agg: Annotated[AggregateWord, describe("The aggregate.")] = "count"
    agg_field: Annotated[str | None, describe("Field to aggregate; none for count.")] = None
    aggregates: Annotated[Aggregates | None, describe("Several aggregates, instead of agg.")] = None
    key_name: Annotated[
        Text | None,
        describe(
            "Field of the result for the key. Default: the name in count_by; key in files of Pulse."
        ),
    ] = None


class Edge(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A connection from one vertex to another."""

    from_: Annotated[Text, describe("Id of the upstream vertex.")]
    to: Annotated[Text, describe("Id of the downstream vertex.")]
    partition: Annotated[Partition, describe("Distribution of records among subtasks.")] = "forward"
    output: Annotated[
        str | None, describe("A side output: late of windows and joins, or an output of split.")
    ] = None


class Test(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Input records and expected output records, for `bicycle pipeline test`."""

    name: Annotated[str, describe("Name of the test.")] = ""
    input: Annotated[
        list[Any] | dict[str, list[Any]],
        describe("Records of the source, or a table of records by source id."),
    ]
    output: Annotated[
        list[Any] | dict[str, list[Any]],
        describe("Expected records of the sink, or a table of records by sink id."),
    ]
    ordered: Annotated[bool, describe("Compare the order of the output.")] = False


class Pipeline(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A pipeline: a source, computations and a sink, or vertices and edges."""

    name: Annotated[str | None, describe("Name of the job. Default: the name of the file.")] = None
    description: Annotated[str, describe("A description of the job in one line.")] = ""
    config: Annotated[Settings, describe("Settings of the job.")] = Settings()
    on_error: OnError = None
    source: Annotated[Any, describe("The source; the key kind or uri selects it.")] = None
    time: Annotated[Time | None, describe("Event time.")] = None
    steps: Annotated[
        list[Any], describe("Operators between the source and the window, in order.")
    ] = field(default_factory=list)
    window: Annotated[WindowSize | None, describe("The windows.")] = None
    ops: Annotated[Ops | None, describe("The key and the aggregates of the windows.")] = None
    sink: Annotated[Any, describe("The sink; the key kind or uri selects it.")] = None
    vertices: Annotated[list[Any], describe("All operators, sources and sinks.")] = field(
        default_factory=list
    )
    edges: Annotated[list[Edge], describe("Connections between vertices.")] = field(
        default_factory=list
    )
    test: Annotated[list[Test], describe("Tests of the pipeline.")] = field(default_factory=list)
