"""Names and order of the columns of results, the bound on disorder, and nodes of several inputs."""

import pytest
import yaml

from bicycle_runtime.connectors.tables.columns import columns_of
from bicycle_runtime.contract.vertex import ConnectorSpec
from bicycle_runtime.pipelines.conversion import pipeline_data, write_document
from bicycle_runtime.pipelines.errors import PIPELINE_INVALID
from bicycle_runtime.pipelines.record_functions import WindowRow
from bicycle_sdk.graph import OperatorKind
from bicycle_sdk.options import from_mapping
from bicycle_sdk.sinks import ParquetSinkOptions
from bicycle_sdk.windows import WindowResult
from tests.raising import raises
from tests.unit.pipelines.pipeline_runs import checked, graph, lines, run
from tests.unit.pipelines.test_operators import SINK, collection, graph_of
from tests.unit.pipelines.test_problems import problems

ROWS = [{"sensor": "b", "at": 0, "n": 1}, {"sensor": "a", "at": 5_000, "n": 2}]


def short(path, *, time="", ops="", window='[window]\nsize = "10s"', sink='kind = "console"'):
    return f"""
[source]
kind = "file"
path = "{path}"
time_field = "at"
{time}
{window}
[ops]
count_by = "sensor"
{ops}
[sink]
{sink}
"""


@pytest.mark.parametrize(
    ("time", "ops", "name"),
    [
        ("", "", "sensor"),
        ('[time]\nmax_out_of_orderness = "1s"', "", "sensor"),
        ('[time]\nallowed_lateness = "1s"', "", "key"),  # As Pulse writes it.
        ('[time]\nallowed_lateness = "1s"', 'key_name = "sensor"', "sensor"),
        ("", 'key_name = "who"', "who"),
    ],
)
@pytest.mark.parametrize("window", ['[window]\nsize = "10s"', ""])
def test_the_key_of_a_result_is_called_as_its_field(tmp_path, time, ops, name, window):
    text = short(lines(tmp_path, *ROWS), time=time, ops=ops, window=window)

    bounds = ["window_start_ms", "window_end_ms"] if window else []
    assert [list(row) for row in run(text)] == [[*bounds, name, "count"]] * 2
    for form in ("vertices", "short"):
        pipeline = checked(text)
        other = write_document(pipeline_data(pipeline, form), "yaml")
        assert run(other, "yaml") == run(text)


def test_windows_use_event_time_for_both_names_of_the_field(tmp_path):
    text = short(lines(tmp_path, *ROWS))
    other = text.replace("time_field", "timestamp_field")

    assert [row["window_start_ms"] for row in run(other)] == [0, 0]
    assert graph(other) == graph(text)


def test_a_row_that_was_stored_before_keys_had_names_calls_its_key_key():
    row = WindowRow(["count"], "sensor")
    row.__setstate__((None, {"names": ("count",)}))

    assert row(WindowResult("a", 0, 10, 2)) == {
        "window_start_ms": 0, "window_end_ms": 10, "key": "a", "count": 2,
    }  # fmt: skip


def test_a_key_that_is_called_as_another_field_is_refused(tmp_path):
    text = short(lines(tmp_path, *ROWS), ops='agg = "sum"\nagg_field = "n"\nkey_name = "sum"')

    [problem] = problems(text)
    assert "the name of the key is 'sum', which is already another field of the result" in problem


@pytest.mark.parametrize("name", ["max_out_of_orderness", "allowed_lateness"])
def test_either_name_of_the_bound_on_disorder_makes_the_same_watermarks(tmp_path, name):
    def watermarks(time):
        found = graph(short(lines(tmp_path, *ROWS), time=time))
        [vertex] = [v for v in found.vertices if v.kind is OperatorKind.ASSIGN_TIMESTAMPS]
        return vertex.details

    assert watermarks(f'[time]\n{name} = "7s"') == watermarks("[time]\nmax_out_of_orderness = 7")
    assert watermarks(f'[time]\n{name} = "7s"') != watermarks("")


def test_the_older_name_gets_a_remark_with_its_line_and_both_are_refused(tmp_path):
    path = lines(tmp_path, *ROWS)

    [remark] = checked(short(path, time='[time]\nallowed_lateness = "1s"')).remarks
    assert remark.startswith("p.toml:7:1: allowed_lateness is an alias of max_out_of_orderness")
    assert checked(short(path)).remarks == []
    both = '[time]\nallowed_lateness = "1s"\nmax_out_of_orderness = "2s"'
    assert (
        "is an alias of max_out_of_orderness; use only one" in problems(short(path, time=both))[0]
    )


COLUMNS = [["window_start_ms", "int"], ["sensor", "str"], ["count", "int"]]


def test_declared_columns_keep_their_order_through_the_graph(tmp_path):
    columns = '{ window_start_ms = "int", sensor = "string", count = "int" }'
    sink = f'kind = "parquet"\nout_dir = "out"\ncolumns = {columns}'
    text = short(lines(tmp_path, *ROWS), sink=sink)
    found = type(graph(text)).from_json(graph(text).to_json())
    [vertex] = [vertex for vertex in found.vertices if vertex.id == "sink"]
    spec = ConnectorSpec(
        vertex_id="sink",
        connector_type="parquet_file",
        properties=vertex.details["connector"]["properties"],
    )

    for columns in (spec.properties["columns"], dict(COLUMNS)):
        options = from_mapping(ParquetSinkOptions, {**spec.properties, "columns": columns})
        assert columns_of(spec, options.columns, "").schema.names == [name for name, _ in COLUMNS]


def vertices(*, partitions=("forward", "forward"), target="out", more=()):
    found = {
        "vertices": [
            {
                "id": name,
                "operator": "source",
                "connector": {"type": "collection", "properties": {"items": [{"k": name}]}},
            }
            for name in ("one", "two")
        ]
        + [*more, {"id": "out", "operator": "sink", "connector": {"type": "console"}}],
        "edges": [
            {"from": name, "to": target, "partition": partition}
            for name, partition in zip(("one", "two"), partitions, strict=True)
        ],
    }
    if more:
        found["edges"].append({"from": target, "to": "out"})
    return yaml.safe_dump(found, sort_keys=False)


MAP = {"id": "same", "operator": "map", "config": {"function": "identity"}}
COUNT = {"id": "same", "operator": "count"}


@pytest.mark.parametrize("more", [(), (MAP,)])
@pytest.mark.parametrize("partition", ["forward", "rebalance", "hash"])
def test_several_edges_to_a_node_of_one_input_make_a_union(more, partition):
    text = vertices(more=more, target="same" if more else "out", partitions=[partition] * 2)

    assert sorted(row["k"] for row in run(text, "yaml", sink="out")) == ["one", "two"]
    kinds = [vertex.kind for vertex in graph(text, "yaml").vertices]
    assert kinds.count(OperatorKind.UNION) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            vertices(partitions=["forward", "hash"]),
            "edges to 'out' have the partitions forward and",
        ),
        (
            vertices(more=(COUNT,), target="same"),
            "'same' has 2 inputs, but supports 1 input; use a union",
        ),
        (
            vertices()
            .replace("id: two", "id: out-inputs")
            .replace("from: two", "from: out-inputs"),
            "several edges lead to 'out', which creates a union with the id 'out-inputs'",
        ),
    ],
)
def test_several_edges_that_make_no_union_are_refused(text, problem):
    [found] = problems(text, "yaml")

    assert problem in found


JOIN = {"id": "same", "operator": "join", "config": {"on": ["k"], "type": "table", "how": "left"}}
UNION = {"id": "same", "operator": "union"}


@pytest.mark.parametrize("partition", ["forward", "hash"])
@pytest.mark.parametrize(("node", "expected"), [(UNION, ["one", "two"]), (JOIN, ["one"])])
def test_several_edges_may_partition_by_the_record(node, expected, partition):
    text = vertices(more=(node,), target="same", partitions=[partition, "hash"])

    assert sorted(row["k"] for row in run(text, "yaml", sink="out")) == expected
    ids = {vertex.id for vertex in graph(text, "yaml").vertices}
    by = {"same-by"} if partition == "forward" else {"same-by", "same-by-2"}
    assert {uid for uid in ids if "-by" in uid} == (by if node is UNION else set())


@pytest.mark.parametrize("result", ["window, config: {size: 1h}", "reduce, config: {agg: count}"])
@pytest.mark.parametrize(
    "between",
    [
        "filter, config: {field: v}", "map, config: {drop: [v]}", "time, config: {field: at}",
        "dedup, config: {fields: [v]}", "rate_limit, config: {per_second: 9}", "union",
    ],
)  # fmt: skip
def test_results_by_key_need_the_key_directly_before(between, result):
    def text(*edges):
        return graph_of(
            collection("in", [{"k": "a", "v": 1, "at": 0}]),
            "{id: key, operator: key_by, config: {field: k}}",
            f"{{id: each, operator: {between}}}",
            f"{{id: result, operator: {result}}}",
            SINK,
            edges=[*edges, ("result", "sink")],
        )

    message = (
        r"p.yaml:5:\d+: 'result' receives records without the key of 'key', because 'each' is "
        "between them: put a key_by directly before 'result'"
    )
    with raises(PIPELINE_INVALID, match=message):
        checked(text(("in", "key"), ("key", "each"), ("each", "result")), "yaml")
    assert checked(text(("in", "each"), ("each", "key"), ("key", "result")), "yaml")


def test_an_edge_with_a_partition_loses_the_key():
    text = graph_of(
        collection("in", [{"k": "a"}]),
        "{id: key, operator: key_by, config: {field: k}}",
        "{id: n, operator: count}",
        SINK,
        edges=[("in", "key"), ("key", "n, partition: rebalance"), ("n", "sink")],
    )

    with raises(PIPELINE_INVALID, match="the edge between them has the partition rebalance"):
        checked(text, "yaml")
    assert checked(text.replace("rebalance", "hash"), "yaml")


def test_results_over_all_records_follow_results_by_key():
    text = graph_of(
        collection("in", [{"k": "a"}, {"k": "b"}]),
        "{id: key, operator: key_by, config: {field: k}}",
        "{id: n, operator: count}",
        "{id: all, operator: reduce, config: {agg: count}}",
        SINK,
        edges=[("in", "key"), ("key", "n"), ("n", "all"), ("all", "sink")],
    )

    assert [row["count"] for row in run(text, "yaml")] == [1, 2]
