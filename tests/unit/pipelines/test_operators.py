"""What each operator of a pipeline does with records, on the harness."""

import pytest

from bicycle_runtime.pipelines.errors import LOOKUP_FILE_UNUSABLE
from bicycle_runtime.pipelines.lookup_files import CompletedFromFile
from bicycle_runtime.pipelines.operator_keys import Enrich
from bicycle_runtime.testing import Harness
from tests.raising import raises
from tests.unit.pipelines.pipeline_runs import built, graph, lines, ran, run

ROWS = [
    {"at": 0, "word": "a", "n": 1, "user": "u"},
    {"at": 20_000, "word": "a", "n": "2.5", "user": "u"},
    {"at": 40_000, "word": "b", "n": "many", "user": "v"},
]


def windowed(path, window, ops='count_by = "word"', more=""):
    return f"""
        [source]
        kind = "file"
        path = "{path}"
        time_field = "at"
        [time]
        allowed_lateness = "10s"
        {more}
        [window]
        {window}
        [ops]
        {ops}
        [sink]
        kind = "console"
    """


def graph_of(*parts, edges):
    vertices = "\n".join(f"  - {part}" for part in parts)
    arrows = "\n".join(f"  - {{from: {a}, to: {b}}}" for a, b in edges)
    return f"vertices:\n{vertices}\nedges:\n{arrows}\n"


def collection(name, items, time_field=None):
    import json

    time = f", time_field: {time_field}" if time_field else ""
    return (
        f"{{id: {name}, operator: source, connector: {{type: collection, properties: "
        f"{{items: {json.dumps(items)}{time}}}}}}}"
    )


SINK = "{id: sink, operator: sink, connector: {type: console}}"


@pytest.mark.parametrize(
    ("ops", "name", "expected"),
    [
        ('agg = "count"', "count", [2, 1]),
        ('agg = "sum"\nagg_field = "n"', "sum", [3.5, 0]),
        ('agg = "avg"\nagg_field = "n"', "avg", [1.75, 0]),
        ('agg = "distinct"\nagg_field = "user"', "distinct_count", [1, 1]),
        ('agg = "min"\nagg_field = "user"', "min", ["u", "v"]),
        ('agg = "max"\nagg_field = "at"', "max", [20_000, 40_000]),
    ],
)
def test_each_aggregate_counts_as_its_word_says(tmp_path, ops, name, expected):
    path = lines(tmp_path, *ROWS)

    rows = run(windowed(path, 'size = "60s"', f'count_by = "word"\n{ops}'))

    assert [row[name] for row in sorted(rows, key=lambda row: row["key"])] == expected
    assert rows[0].keys() == {"window_start_ms", "window_end_ms", "key", name}


def test_several_aggregates_are_fields_of_one_row(tmp_path):
    ops = (
        'count_by = "word"\n'
        'aggregates = [{name = "n", agg = "count"}, {name = "most", agg = "max", field = "at"}]'
    )

    rows = run(windowed(lines(tmp_path, *ROWS), 'size = "60s"', ops))

    assert [(row["key"], row["n"], row["most"]) for row in rows] == [
        ("a", 2, 20_000), ("b", 1, 40_000),
    ]  # fmt: skip


def test_without_a_window_results_run_along(tmp_path):
    text = f"""
        [source]
        kind = "file"
        path = "{lines(tmp_path, *ROWS)}"
        [ops]
        count_by = "word"
        agg = "sum"
        agg_field = "n"
        [sink]
        kind = "console"
    """

    assert run(text) == [
        {"word": "a", "sum": 1}, {"word": "a", "sum": 3.5}, {"word": "b", "sum": 0},
    ]  # fmt: skip


def test_several_results_run_along_in_one_row(tmp_path):
    text = f"""
        [source]
        kind = "file"
        path = "{lines(tmp_path, *ROWS)}"
        [ops]
        count_by = "word"
        aggregates = [
            {{ name = "n", agg = "count" }},
            {{ name = "most", agg = "max", field = "at" }},
            {{ name = "users", agg = "distinct", field = "user" }},
        ]
        [sink]
        kind = "console"
    """

    assert run(text) == [
        {"word": "a", "n": 1, "most": 0, "users": 1},
        {"word": "a", "n": 2, "most": 20_000, "users": 1},
        {"word": "b", "n": 1, "most": 40_000, "users": 1},
    ]


def test_a_count_window_has_so_many_records(tmp_path):
    rows = run(windowed(lines(tmp_path, *ROWS), 'type = "count"\nrecords = 2'))

    assert [row["count"] for row in rows] == [2]


def test_late_records_go_where_an_edge_leads_them():
    late = [{"at": 0, "k": "a"}, {"at": 200_000, "k": "a"}]
    text = graph_of(
        collection("in", late, "at"),
        "{id: time, operator: time, config: {allowed_lateness: 0s}}",
        "{id: by, operator: key_by, config: {field: k}}",
        "{id: w, operator: window, config: {size: 60s}}",
        SINK,
        "{id: late, operator: sink, connector: {type: console}}",
        edges=[("in", "time"), ("time", "by"), ("by", "w"), ("w", "sink")],
    )
    text += "  - {from: w, to: late, output: late}\n"

    with Harness(built(text, "yaml"), scripted=["in"]) as harness:
        harness.push(late)
        harness.run()
        harness.push([{"at": 1_000, "k": "a"}])
        harness.end()
        harness.run()
        found = harness.results("late")

    assert [(row["record"]["at"], row["window_end_ms"]) for row in found] == [(1_000, 60_000)]


def test_keys_are_fields_several_fields_or_the_record():
    items = [{"a": 1, "b": [1]}, {"a": 1, "b": [1]}, {"b": 2}]

    def counted(config):
        text = graph_of(
            collection("in", items),
            f"{{id: k, operator: key_by, config: {config}}}",
            "{id: c, operator: count}",
            SINK,
            edges=[("in", "k"), ("k", "c"), ("c", "sink")],
        )
        return sorted((str(row["key"]), row["count"]) for row in run(text, "yaml"))

    assert counted("{field: a}") == [("1", 1), ("1", 2), ("None", 1)]
    assert counted("{fields: [a, b]}") == [
        ("(1, '[1]')", 1), ("(1, '[1]')", 2), ("(None, 2)", 1),
    ]  # fmt: skip
    assert counted("{}")[-1] == ('{"b":2}', 1)


def test_a_record_that_was_there_is_left_out():
    items = [{"id": 1, "v": "a"}, {"id": 1, "v": "b"}, {"id": 2, "v": "c"}]
    text = graph_of(
        collection("in", items),
        "{id: d, operator: dedup, config: {fields: [id], within: 1h}}",
        SINK,
        edges=[("in", "d"), ("d", "sink")],
    )

    assert [row["v"] for row in run(text, "yaml")] == ["a", "c"]


def test_a_split_sends_records_by_a_field():
    items = [{"s": 200}, {"s": 404}, {"s": 500}]
    text = graph_of(
        collection("in", items),
        "{id: by, operator: split, config: {field: s, outputs: {ok: [200]}, default: other}}",
        SINK,
        "{id: rest, operator: sink, connector: {type: console}}",
        edges=[("in", "by")],
    )
    text += "  - {from: by, to: sink, output: ok}\n  - {from: by, to: rest, output: other}\n"

    assert run(text, "yaml") == [{"s": 200}]
    assert run(text, "yaml", sink="rest") == [{"s": 404}, {"s": 500}]


def test_a_split_by_names_sends_all_other_values_to_the_default():
    items = [{"k": "a"}, {"k": "b"}, {"k": None}, {}, {"k": 1}, {"k": "other"}]
    text = graph_of(
        collection("in", items),
        "{id: by, operator: split, config: {field: k, default: other}}",
        SINK,
        "{id: one, operator: sink, connector: {type: console}}",
        "{id: rest, operator: sink, connector: {type: console}}",
        edges=[("in", "by")],
    )
    text += "  - {from: by, to: sink, output: a}\n  - {from: by, to: rest, output: other}\n"
    text += "  - {from: by, to: one, output: '1'}\n"

    with ran(text, "yaml") as harness:
        found = [harness.results(name) for name in ("sink", "one", "rest")]
    assert found == [[{"k": "a"}], [{"k": 1}], [items[1], items[2], items[3], items[5]]]


def test_all_that_a_split_is_made_of_has_its_name_and_place():
    text = graph_of(
        collection("in", [{"s": "ok"}]),
        "{id: by, operator: split, config: {field: s}}",
        SINK,
        "{id: rest, operator: sink, connector: {type: console}}",
        edges=[("in", "by")],
    )
    text += "  - {from: by, to: sink, output: ok}\n  - {from: by, to: rest, output: other}\n"
    line = 1 + next(n for n, each in enumerate(text.splitlines()) if "operator: split" in each)

    split = [vertex for vertex in graph(text, "yaml").vertices if vertex.id.startswith("by")]
    assert [(vertex.id, vertex.label, vertex.location) for vertex in split] == [
        (uid, "by", f"p.yaml:{line}") for uid in ("by", "by-ok", "by-other")
    ]


@pytest.mark.parametrize("kind", ["file", "collection"])
@pytest.mark.parametrize("field", ["{field: at}", "{}"])
def test_event_time_may_be_told_behind_another_operator(tmp_path, kind, field):
    rows = [{"at": 1_000, "k": "a"}, {"at": 2_000, "k": "b"}]
    properties = f'{{path: "{lines(tmp_path, *rows)}", time_field: at}}'
    source = f"{{id: in, operator: source, connector: {{type: file, properties: {properties}}}}}"
    text = graph_of(
        source if kind == "file" else collection("in", rows, "at"),
        "{id: few, operator: filter, config: {field: k, predicate: equals, value: a}}",
        f"{{id: time, operator: time, config: {field}}}",
        "{id: w, operator: window, config: {size: 10s}}",
        SINK,
        edges=[("in", "few"), ("few", "time"), ("time", "w"), ("w", "sink")],
    )

    assert [(row["window_start_ms"], row["count"]) for row in run(text, "yaml")] == [(0, 1)]


def test_a_field_of_sources_before_a_union_tells_the_event_time():
    text = graph_of(
        collection("a", [{"at": 1_000}], "at"),
        collection("b", [{"at": 12_000}], "at"),
        "{id: u, operator: union}",
        "{id: time, operator: time}",
        "{id: w, operator: window, config: {size: 10s}}",
        SINK,
        edges=[("a", "u"), ("b", "u"), ("u", "time"), ("time", "w"), ("w", "sink")],
    )

    assert [row["window_start_ms"] for row in run(text, "yaml")] == [0, 10_000]


def test_a_union_has_the_records_of_all():
    text = graph_of(
        collection("a", [{"n": 1}]),
        collection("b", [{"n": 2}]),
        "{id: u, operator: union}",
        SINK,
        edges=[("a", "u"), ("b", "u"), ("u", "sink")],
    )

    assert sorted(row["n"] for row in run(text, "yaml")) == [1, 2]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("{on: [id], upper: 10s}", [(1, 7)]),
        ("{on: [id], upper: 10s, lower: -1s, how: left}", [(1, 7), (2, None)]),
        ("{on: [id], type: window, size: 1m, how: left}", [(1, 7), (2, None)]),
        ("{on: [id], type: as_of, tolerance: 1m, how: left}", [(1, None), (2, None)]),
    ],
)
def test_joins_make_one_record_of_two(config, expected):
    text = graph_of(
        collection("l", [{"id": 1, "at": 1_000}, {"id": 2, "at": 1_000}], "at"),
        collection("r", [{"id": 1, "at": 2_000, "v": 7}], "at"),
        "{id: lt, operator: time}",
        "{id: rt, operator: time}",
        f"{{id: j, operator: join, config: {config}}}",
        SINK,
        edges=[("l", "lt"), ("r", "rt"), ("lt", "j"), ("rt", "j"), ("j", "sink")],
    )

    rows = run(text, "yaml")

    assert sorted((row["id"], row.get("v")) for row in rows) == expected
    assert all(row.get("right_at") == 2_000 for row in rows if "v" in row)


def test_a_table_join_takes_the_newest_row():
    text = graph_of(
        collection("l", [{"id": 1}]),
        collection("r", [{"id": 1, "v": 7}]),
        "{id: j, operator: join, config: {on: [id], type: table, how: left}}",
        SINK,
        edges=[("l", "j"), ("r", "j"), ("j", "sink")],
    )

    assert [row["id"] for row in run(text, "yaml")] == [1]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_records_are_completed_from_a_file(tmp_path, form):
    path = tmp_path / f"towns.{form}"
    if form == "csv":
        path.write_text("id,town,area\n1,Ulm,118\n")
    elif form == "jsonl":
        path.write_text('{"id": 1, "town": "Ulm", "area": 118}\n')
    else:
        import pyarrow
        import pyarrow.parquet

        rows = pyarrow.Table.from_pylist([{"id": 1, "town": "Ulm", "area": 118}])
        pyarrow.parquet.write_table(rows, path)

    def completed(more):
        text = graph_of(
            collection("in", [{"town_id": 1}, {"town_id": 2}]),
            "{id: e, operator: enrich, config: "
            f"{{path: '{path}', key: town_id, lookup_key: id, fields: [town]{more}}}}}",
            SINK,
            edges=[("in", "e"), ("e", "sink")],
        )
        return run(text, "yaml")

    assert completed("") == [{"town_id": 1, "town": "Ulm"}, {"town_id": 2}]
    assert completed(", how: inner") == [{"town_id": 1, "town": "Ulm"}]


def test_functions_come_from_modules_and_are_called_as_what_they_are():
    text = graph_of(
        collection("in", ["a", "", "b"]),
        "{id: m, operator: map, config: {function: 'tests.unit.pipelines.functions:shout'}}",
        "{id: f, operator: filter, config: {function: 'tests.unit.pipelines.functions:is_loud'}}",
        "{id: p, operator: process, config: {function: 'tests.unit.pipelines.functions:Twice'}}",
        "{id: k, operator: key_by, config: {function: 'tests.unit.pipelines.functions:shout'}}",
        "{id: r, operator: reduce, config: {function: 'tests.unit.pipelines.functions:longer'}}",
        SINK,
        edges=[("in", "m"), ("m", "f"), ("f", "p"), ("p", "k"), ("k", "r"), ("r", "sink")],
    )

    assert run(text, "yaml") == ["A!", "A!A!", "B!", "B!B!"]


def test_a_rate_is_kept():
    text = graph_of(
        collection("in", [1, 2]),
        "{id: p, operator: rate_limit, config: {per_second: 1000, burst: 5}}",
        SINK,
        edges=[("in", "p"), ("p", "sink")],
    )

    details = built(text, "yaml").execute("p").vertex("p").details
    assert (details["per_second"], details["burst"]) == (1000.0, 5)


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("is_typed", [False, True])
def test_a_look_up_file_that_is_not_there_is_an_error_that_names_it(tmp_path, how, is_typed):
    source = collection("in", [{"a": 1}])
    if is_typed:
        path = lines(tmp_path, {"a": 1})
        source = "{id: in, operator: source, connector: {type: file, properties: "
        source += f"{{path: '{path}', fields: {{a: int}}}}}}}}"
    config = f"{{path: /nowhere/x.csv, key: a, fields: [b], how: {how}}}"
    text = graph_of(
        source,
        f"{{id: e, operator: enrich, on_error: skip, config: {config}}}",
        SINK,
        edges=[("in", "e"), ("e", "sink")],
    )

    with raises(LOOKUP_FILE_UNUSABLE, match="/nowhere/x.csv"):
        run(text, "yaml")


def test_a_record_whose_key_has_no_text_fails_alone(tmp_path):
    towns = lines(tmp_path, {"a": "x", "town": "Ulm"}, name="towns.jsonl")
    items = [{"a": "x"}, {"a": object()}, {"a": "y"}]
    complete = CompletedFromFile(Enrich(path=str(towns), key="a"))

    first, failed, last = complete.answer_all(items)

    assert (first, last) == ({"a": "x", "town": "Ulm"}, {"a": "y"})
    assert isinstance(failed, TypeError)


def test_records_that_fail_are_kept_aside_where_the_file_says_so():
    text = graph_of(
        collection("in", ["a", 1]),
        "{id: m, operator: map, on_error: {action: dead_letter, retries: 1, backoff: 1ms, "
        "max_error_rate: 0.9}, config: {function: 'tests.unit.pipelines.functions:shout'}}",
        SINK,
        edges=[("in", "m"), ("m", "sink")],
    )

    with ran(text, "yaml") as harness:
        assert harness.results("sink") == ["A!"]
        assert len(harness.dead_letters) == 1


@pytest.mark.parametrize(
    ("of_source", "of_all", "count"),
    [("dead_letter", "fail", 1), ("dead_letter", "skip", 1), (None, "dead_letter", 1),
     ("skip", "dead_letter", 0)],
)  # fmt: skip
def test_event_times_of_a_source_have_its_policy(tmp_path, of_source, of_all, count):
    path = lines(tmp_path, *ROWS, {"at": "soon", "word": "a"})
    own = f'on_error = "{of_source}"' if of_source else ""
    text = f'on_error = "{of_all}"\n' + windowed(path, 'size = "60s"').replace(
        'time_field = "at"', f'time_field = "at"\n{own}'
    )

    with ran(text) as harness:
        assert sorted(row["count"] for row in harness.results("sink")) == [1, 2]
        assert len(harness.dead_letters) == count


@pytest.mark.parametrize("config", ["on_error: dead_letter", "config: {field: at}"])
def test_a_vertex_with_its_own_event_time_keeps_its_policy(config):
    text = "on_error: dead_letter\n" + graph_of(
        collection("in", [{"at": 1_000}, {"at": "soon"}], "at").replace(
            "operator", "on_error: skip, operator"
        ),
        f"{{id: time, operator: time, {config}}}",
        SINK,
        edges=[("in", "time"), ("time", "sink")],
    )

    with ran(text, "yaml") as harness:
        assert harness.results("sink") == [{"at": 1_000}]
        assert len(harness.dead_letters) == 1
