"""Values that nobody expects in a pipeline are problems with a place, and never crashes."""

import copy
import textwrap

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.pipelines.building import build_pipeline
from bicycle_runtime.pipelines.documents import Document, read_document
from bicycle_runtime.pipelines.errors import PIPELINE_UNREADABLE
from bicycle_runtime.pipelines.nodes import check_pipeline
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import BicycleError
from tests.examples import examples
from tests.raising import raises
from tests.unit.pipelines.test_problems import (
    DELTA,
    GOOD,
    HTTP,
    ICEBERG,
    KAFKA,
    KAFKA_SINK,
    PARQUET,
    POSTGRES,
    VERTICES,
    changed,
    problems,
    step,
)
from tests.unit.pipelines.test_shapes import JOB, KAFKA_SHORT, SHORT

RULE = "operator: map\n    on_error: {action: skip, retries: 1, backoff: 1s, max_error_rate: 0.5}"
OPERATORS = {
    "join": "{on: [k], upper: 1s}",
    "split": "{field: a, outputs: {x: [1]}, default: y}",
    "dedup": "{fields: [a], within: 1h}",
    "enrich": "{path: /x.csv, key: a, fields: [b]}",
    "lookup": "{url: 'postgresql://h/d', table: t, key: k, timeout: 1s}",
    "http_call": "{url: 'http://h/{a}', timeout: 1s, capacity: 3}",
    "rate_limit": "{per_second: 5, burst: 3}",
    "window": "{type: sliding, size: 1s, slide: 1s, aggregates: [{name: a, agg: count}]}",
    "key_by": "{fields: [a]}",
    "map": "{set: {a: n + 1}, drop: [x]}",
    "filter": "{where: n > 1}",
}
TOML = [SHORT, KAFKA_SHORT, GOOD, PARQUET, DELTA, ICEBERG, HTTP, POSTGRES, KAFKA_SINK]
YAML = [JOB] + [
    VERTICES.replace("operator: map", RULE.replace("map", word)).replace("{function: reverse}", own)
    for word, own in OPERATORS.items()
]
DOCUMENTS = [
    read_document(textwrap.dedent(text), file="p", notation=notation).data
    for notation, texts in (("toml", TOML), ("yaml", YAML))
    for text in texts
]
ODD = [
    None, True, 0, -1, 1.5, float("inf"), float("nan"), 10**25, 10**400, "", "x", "9_999", " 5",
    "٣", "1e400", "nan", "-5s", "99999999999999d", "1.5ms", "a/b", "{", "{}", "http://[",
    "postgresql://[x", "env:", "env:X", "\x00", "é" * 300, "%Q", "n +", "(" * 500, "1" + "+1" * 500,
    "n; n", "'", "count(*)", ":", "json:loads", [], [[]], [1], ["a"], [None], [{}], {}, {"a": {}},
    {"": ""}, {"x": []},
]  # fmt: skip
KEYS = ["window", "edges", "vertices", "time", "config", "id", "operator", "set", "aggregates"]


def paths(value, path=()):
    items = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield (*path, key)
        yield from paths(item, (*path, key))


@st.composite
def documents(draw):
    """Return the keys of a pipeline with one to three values that are odd."""
    found = copy.deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for _ in range(draw(st.integers(1, 3))):
        *way, key = draw(st.sampled_from(list(paths(found)) or [("name",)]))
        holder = found
        for part in way:
            holder = holder[part]
        if isinstance(holder, dict) and draw(st.integers(0, 3)) == 0:
            key = draw(st.sampled_from(KEYS))
        holder[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return found


@settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=documents())
def test_whatever_stands_in_a_file_it_is_a_graph_or_a_list_of_problems(data):
    document = Document(file="p", notation="yaml", data=data)
    env = StreamEnvironment()
    try:
        build_pipeline(env, check_pipeline(document))
    except BicycleError as error:
        assert error.code == "BIC-2701", error
        assert error.facts["problems"]
    else:
        env.execute("p")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed('out_dir = "out"', 'out_dir = "out"\nroll_bytes = "9_999"'), "a whole number"),
        (changed('out_dir = "out"', f'out_dir = "out"\nroll_bytes = {10**30}'), "at most"),
        (changed('size = "60s"', 'size = "99999999999d"'), "expected a time"),
        (changed("[source]", '[source]\non_error = { max_error_rate = 2 }'), "expected 0..1"),
        (changed("[source]", "[source]\non_error = { max_error_rate = 0.5 }"), "needs skip or"),
        (step("operator = 'rate_limit'\nper_second = inf"), "steps[0].per_second is inf; expected"),
        (step("operator = 'rate_limit'\nper_second = -1"), "steps[0]: rate_limit:"),
        (step("operator = 'filter'\nfield = 'x'\nid = 'key'"), "has the same id as a vertex of"),
        (KAFKA + "properties = 5", "sink.properties"),
        *((step(f"operator = 'filter'\npredicate = 'min_length'\nvalue = {value}"),
           "steps[0].value is not a whole number") for value in ("2.5", "3.0", "true")),
        (changed('agg = "count"', "aggregates = []"), "ops.aggregates is empty"),
        (step("operator = 'reduce'\naggregates = []"), "steps[0].aggregates is empty"),
        (step("operator = 'filter'\nfield = 's'\nvalue = 200"), "14:1: steps[0].value needs a"),
        (changed('size = "60s"', 'size = "60s"\ngap = "3s"'), "11:1: window.gap applies to wind"),
        (changed('size = "60s"', 'slide = "1s"\nsize = "60s"'), "10:1: window.slide applies to w"),
        (step("operator = 'reduce'\nagg = 'median'"), "unsupported steps[0].agg: median"),
    ],
)  # fmt: skip
def test_what_is_out_of_bounds_is_told_where_it_stands(text, message):
    [found] = problems(text)

    assert message in found
    assert not found.startswith("0:")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("{count: 3}", "5", "vertices[0].connector.properties is 5; expected a table of keys"),
        (
            "{type: generator, properties: {count: 3}}",
            "{uri: 'file:x.jsonl', properties: abc}",
            "vertices[0].connector.properties is abc; expected a table of keys",
        ),
        ("{from: a, to: m}", "{from: [a], to: m}", "edges[0].from is ['a']; expected a text"),
        ("operator: map", "operator: [map]", "unsupported operator: ['map']"),
    ],
)
def test_a_table_or_a_list_is_no_text(before, after, message):
    found = problems(VERTICES.replace(before, after, 1), "yaml")

    assert any(message in each for each in found), found


@pytest.mark.parametrize(
    ("text", "notation", "message"),
    [
        (f"a = {'1' * 5000}", "toml", "f:1: invalid TOML: "),
        (f"a: 1\nb: {'1' * 5000}", "yaml", "f:2: '111"),
        ("a: !!int x", "yaml", "f:1: 'x' is not a valid number"),
        ("a: 1\nb: x\x00", "yaml", "f:2: invalid YAML: the character U\\+0000 is not allowed"),
    ],
)
def test_what_no_reader_takes_is_told_with_its_line(text, notation, message):
    with raises(PIPELINE_UNREADABLE, match=message):
        read_document(text, file="f", notation=notation)


@pytest.mark.parametrize(("text", "notation"), [("a = 1", "toml"), ("a: 1", "yaml")])
def test_a_mark_before_the_text_is_no_part_of_it(text, notation):
    found = read_document(f"\ufeff{text}", file="f", notation=notation)

    assert (found.data, found.key_position(("a",))) == ({"a": 1}, (1, 1))


def test_lines_may_end_as_on_windows():
    assert problems(GOOD.replace("\n", "\r\n")) == []
    [found] = problems(GOOD.replace("tumbling", "tumblng").replace("\n", "\r\n"))
    assert found.startswith("9:8: ")
