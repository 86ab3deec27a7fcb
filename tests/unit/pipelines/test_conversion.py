"""Pipelines written in the other notation or form: the graph stays, and so does the state."""

import re

import jsonschema_rs
import pytest

from bicycle_runtime.pipelines.building import build_pipeline
from bicycle_runtime.pipelines.conversion import form_of, pipeline_data, write_document
from bicycle_runtime.pipelines.errors import (
    PIPELINE_NOT_SHORT,
    PIPELINE_TEST_UNUSABLE,
    PIPELINE_UNREADABLE,
)
from bicycle_runtime.pipelines.json_schema import pipeline_schema
from bicycle_runtime.pipelines.template import pipeline_template
from bicycle_runtime.testing.pipeline_tests import run_pipeline_tests
from bicycle_sdk import StreamEnvironment
from tests.raising import raises
from tests.unit.pipelines.pipeline_runs import checked
from tests.unit.pipelines.test_problems import GOOD, KAFKA, KAFKA_SINK, VERTICES
from tests.unit.pipelines.test_shapes import JOB, KAFKA_SHORT, SHORT

TEXTS = [(SHORT, "toml"), (KAFKA_SHORT, "toml"), (GOOD, "toml"), (JOB, "yaml"), (VERTICES, "yaml")]
SESSION = GOOD.replace('type = "tumbling"\nsize = "60s"', 'type = "session"\ngap = "30s"')
RUNNING = GOOD.replace('[window]\ntype = "tumbling"\nsize = "60s"\n', "")
SHORTS = [SHORT, KAFKA_SHORT, GOOD, KAFKA, KAFKA_SINK, SESSION, RUNNING]


def json_of(pipeline):
    env = StreamEnvironment()
    build_pipeline(env, pipeline)
    return env.execute("p").to_json()


@pytest.mark.parametrize("notation", ["toml", "yaml"])
@pytest.mark.parametrize(("text", "of"), TEXTS)
def test_the_graph_stays_in_either_notation(text, of, notation):
    before = checked(text, of)
    again = checked(write_document(pipeline_data(before, form_of(before)), notation), notation)

    assert json_of(again) == json_of(before)
    assert (again.name, again.description) == (before.name, before.description)


@pytest.mark.parametrize("text", SHORTS)
def test_the_graph_stays_in_the_form_with_vertices_and_back(text):
    before = checked(text)
    vertices = checked(write_document(pipeline_data(before, "vertices"), "yaml"), "yaml")
    short = checked(write_document(pipeline_data(vertices, "short"), "toml"))

    assert form_of(vertices) == "vertices"
    assert form_of(short) == "short"
    assert json_of(vertices) == json_of(before)
    assert json_of(short) == json_of(before)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("id: z\n", "id: out\n", "its sink has the id 'out'"),
        ("to: m}", "to: m, partition: rebalance}", "names a partition"),
    ],
)
def test_what_the_short_form_cannot_say_is_refused(before, after, reason):
    text = VERTICES.replace("id: a", "id: source").replace("from: a", "from: source")
    text = text.replace(before, after).replace("to: z", "to: out" if "out" in after else "to: z")

    with raises(PIPELINE_NOT_SHORT, match=reason):
        pipeline_data(checked(text, "yaml"), "short")


LINE = """
    vertices:
      - id: source
        operator: source
        connector: {type: collection, properties: {items: [], time_field: at}}
      - {id: time, operator: time}
      - {id: key, operator: key_by, config: {field: k}}
      - {id: window, operator: window, config: {agg: sum, agg_field: n}}
      - {id: sink, operator: sink, connector: {type: console}}
    edges:
      - {from: source, to: time}
      - {from: time, to: key}
      - {from: key, to: window, partition: hash}
      - {from: window, to: sink}
"""


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("operator: time}", "operator: time, on_error: skip}", "on_error of 'time'"),
        ("operator: time}", "operator: time, name: t}", "name of 'time'"),
        ("id: source", "id: in", "its source has the id 'in'"),
        ("window, to: sink}", "window, to: sink, output: late}", "the edge to 'sink' names an out"),
        ("      - {id: time, operator: time}\n", "", "'time' would be before 'key'"),
        ("operator: time}", "operator: union}", "union is not a step"),
    ],
)
def test_a_short_form_with_another_graph_is_refused(before, after, reason):
    text = LINE.replace(before, after)
    if "id: in" in after:
        text = text.replace("from: source", "from: in")
    if not after:
        text = text.replace("source, to: time}", "source, to: key}").replace(
            "      - {from: time, to: key}\n", ""
        )
    pipeline = checked(text, "yaml")

    with raises(PIPELINE_NOT_SHORT, match=f"short form: {reason}"):
        pipeline_data(pipeline, "short")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("agg: sum, agg_field: n", "window_ms: 7000"),
        ("agg: sum, agg_field: n", "aggregates: [{name: n, agg: count}]"),
        ("id: window, operator: window,", "id: window, on_error: skip, operator: window,"),
        ("id: key, operator: key_by,", "id: key, operator: key_by, parallelism: 2,"),
        ("{field: k}", "{fields: [k, n]}"),
        ("window, config: {agg: sum", "reduce, config: {agg: sum"),
    ],
)
def test_a_line_of_vertices_keeps_its_graph_in_the_short_form(before, after):
    vertices = checked(LINE.replace(before, after, 1), "yaml")
    short = checked(write_document(pipeline_data(vertices, "short"), "yaml"), "yaml")

    assert form_of(short) == "short"
    assert json_of(short) == json_of(vertices)


def test_texts_that_look_like_something_else_stay_texts():
    data = {"a": ["1", "true", "1e3", "null", "", "0.5", "~", "12:30", "no", "a: b", "# x"]}

    from bicycle_runtime.pipelines.documents import read_document

    for notation in ("toml", "yaml"):
        text = write_document(data, notation)
        assert read_document(text, file="f", notation=notation).data == data


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"a": None}, "a"),
        ({"a": 1, "test": [{"input": [1, {"b": [None]}]}]}, "test[0].input[1].b[0]"),
    ],
)
def test_a_null_is_refused_with_its_path_where_toml_has_none(data, path):
    with raises(PIPELINE_UNREADABLE, match=re.escape(f"p.yaml: {path} is null")):
        write_document(data, "toml", file="p.yaml")

    assert "null" in write_document(data, "yaml")


@pytest.mark.parametrize("notation", ["toml", "yaml"])
@pytest.mark.parametrize("name", ["2026", "true", "a: b", 'a"b', "a\\b", "~", "größe 😀"])
def test_a_new_pipeline_may_have_any_name(name, notation):
    assert checked(pipeline_template(name, notation), notation).name == name


def test_the_schema_takes_what_the_check_takes():
    schema = jsonschema_rs.validator_for(pipeline_schema())

    for text, notation in [*TEXTS, (SESSION, "toml"), (pipeline_template("x", "yaml"), "yaml")]:
        assert [
            error.message for error in schema.iter_errors(checked(text, notation).document.data)
        ] == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('path = "in.jsonl"', 'pth = "in.jsonl"'),
        ('kind = "file"\npath', 'kind = "ftp"\npath'),
        ('type = "tumbling"', 'type = "hopping"'),
        ("[ops]", "[opps]"),
    ],
)
def test_the_schema_refuses_unknown_words(before, after):
    import tomllib

    schema = jsonschema_rs.validator_for(pipeline_schema())

    assert not schema.is_valid(tomllib.loads(GOOD.replace(before, after)))


@pytest.mark.parametrize("notation", ["toml", "yaml"])
def test_the_pipeline_to_begin_with_passes_its_test(notation):
    (outcome,) = run_pipeline_tests(checked(pipeline_template("clicks", notation), notation))

    assert outcome.is_good
    assert outcome.name == "two pages in one minute"


def test_a_test_tells_rows_that_are_missing_and_rows_too_many():
    text = pipeline_template("clicks", "toml").replace("count = 2", "count = 3")

    (outcome,) = run_pipeline_tests(checked(text))

    assert [row["count"] for row in outcome.missing["sink"]] == [3]
    assert [row["count"] for row in outcome.unexpected["sink"]] == [2]


TWO = """
    vertices:
      - {id: a, operator: source, connector: {type: generator}}
      - {id: b, operator: source, connector: {type: generator}}
      - {id: u, operator: union}
      - {id: z, operator: sink, connector: {type: console}}
    edges: [{from: a, to: u}, {from: b, to: u}, {from: u, to: z}]
    test:
      - input: {a: [x], b: [y]}
        output: [x, y]
      - name: order counts
        ordered: true
        input: {a: [x, y]}
        output: {z: [y, x]}
"""


def test_tests_name_their_sources_and_may_ask_for_an_order():
    first, second = run_pipeline_tests(checked(TWO, "yaml"))

    assert (first.is_good, first.name) == (True, "test 1")
    assert second.missing == {"z": ["y", "x"]}


def test_a_record_of_a_test_without_a_time_is_told():
    text = pipeline_template("clicks", "toml").replace('at = "2026-01-01T00:00:05Z", ', "")

    with raises(PIPELINE_TEST_UNUSABLE, match="without a time in 'at': the time is missing"):
        run_pipeline_tests(checked(text))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("input: {a: [x], b: [y]}", "input: [x]", "must map its records to one of a, b"),
        ("{a: [x], b: [y]}", "{c: [x]}", "lists 'c', but the names are a, b"),
        ("    test:", "    description: x\n    test: []\n    on_error: fail\n    #", "has no"),
    ],
)
def test_a_test_that_fits_nothing_is_refused(before, after, reason):
    text = TWO.replace(before, after)
    if "test: []" in after:
        text = TWO[: TWO.index("    test:")]

    with raises(PIPELINE_TEST_UNUSABLE, match=reason):
        run_pipeline_tests(checked(text, "yaml"))
