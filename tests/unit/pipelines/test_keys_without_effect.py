"""Keys that would have no effect beside others are problems with a place."""

import pytest

from tests.unit.pipelines.test_join_rows import RIGHT, joined
from tests.unit.pipelines.test_operators import SINK, collection, graph_of
from tests.unit.pipelines.test_problems import KAFKA, VERTICES, changed, problems

SCHEMA = 'format = "protobuf"\nvalue_format_options = { message = "a:B" }\nschema = "a:C"\n'


@pytest.mark.parametrize(
    ("operator", "config", "message"),
    [
        ("map", "{select: {a: '1'}, drop: [b]}", "select and drop are set"),
        ("map", "{function: reverse, drop: [b]}", "function and drop are set"),
        ("filter", "{where: n > 1, value: 3}", "where and value are set"),
        ("filter", "{where: n > 1, field: n}", "where and field are set"),
        ("filter", "{function: 'a:b', value: 3}", "function and value are set"),
        ("filter", "{field: a, predicate: exists, value: 3}", "no effect on the predicate exists"),
        ("filter", "{predicate: non_empty, value: ''}", "no effect on the predicate non_empty"),
        ("reduce", "{agg: count, agg_field: a}", "config.agg_field has no effect on count"),
        ("window", "{size: 1s, agg_field: a}", "config.agg_field has no effect on count"),
        (
            "window",
            "{size: 1s, aggregates: [{name: a, agg: count, field: b}]}",
            "config.aggregates[0].field has no effect on count",
        ),
        ("window", "{type: count, records: 3, offset: 1s}", "type tumbling or sliding, not count"),
        ("window", "{type: session, gap: 3s, offset: 1s}", "type tumbling or sliding, not session"),
        ("window", "{type: count, records: 3, keep: 1s}", "or sliding or session, not count"),
    ],
)
def test_a_key_without_an_effect_is_refused(operator, config, message):
    text = VERTICES.replace("operator: map", f"operator: {operator}")
    found = problems(text.replace("{function: reverse}", config), "yaml")

    assert any(message in each for each in found), found


def test_a_schema_beside_the_options_of_the_format_is_refused():
    text = changed("format = 'x'", SCHEMA, KAFKA.replace('time_field = "at"', "format = 'x'"))

    assert [each for each in problems(text) if "schema" in each] == [
        "8:10: source.schema and value_format_options are set; use only one"
    ]


@pytest.mark.parametrize("source", ['kind = "file"\nformat = "text"\npath = "in"', 'kind = "text"'])
@pytest.mark.parametrize("key", ["timestamp_field", "time_field", "fields"])
def test_lines_of_text_have_no_fields(source, key):
    path = "" if "path" in source else '\npath = "in"'
    value = '{ at = "int" }' if key == "fields" else '"at"'
    text = f'[source]\n{source}{path}\n{key} = {value}\n[sink]\nkind = "console"\n'

    [found] = problems(text)
    assert f": source.{key} is set, but lines of text have no fields" in found
    assert problems(text.replace("text", "jsonl")) == []


@pytest.mark.parametrize("of_right", ["int", "string", "json", "timestamp"])
def test_keys_of_a_join_that_are_never_equal_are_refused(of_right):
    right_fields = f"fields: {{id: {of_right}, at: int, v: int, w: int}}, "
    found = problems(joined("{on: [id], upper: 1s}", right_fields=right_fields), "yaml")

    reason = "'id' is int on the left and string on the right, which are never equal"
    expected = [f"6:43: vertices[4].config.on[0]: {reason}: convert one of them in a map"]
    assert found == (expected if of_right == "string" else [])


def test_a_table_join_has_no_late_records():
    text = graph_of(
        collection("l", RIGHT),
        collection("r", RIGHT),
        "{id: j, operator: join, config: {on: [id], type: table}}",
        SINK,
        "{id: late, operator: sink, connector: {type: console}}",
        edges=[("l", "j"), ("r", "j"), ("j", "sink"), ("j", "late, output: late")],
    )

    [found] = problems(text, "yaml")
    assert "'j' has no output 'late': windows have the output late, and joins of other" in found
    assert problems(text.replace("type: table", "type: window, size: 1s"), "yaml") == []
