"""Names of fields that no record has: told before the start, wherever it is known what there is."""

import re

import pytest

from bicycle_runtime.pipelines.errors import PIPELINE_UNREADABLE
from tests.raising import raises
from tests.unit.pipelines.pipeline_runs import checked
from tests.unit.pipelines.test_problems import problems

SOURCE = """
    [source]
    kind = "file"
    path = "in.jsonl"
    time_field = "at"
    fields = { at = "int", page = "string", n = "int" }
"""
WINDOW = '[window]\nsize = "1m"\n[ops]\ncount_by = "page"\n'
CONSOLE = '[sink]\nkind = "console"\n'
TABLE = '[sink]\nkind = "parquet"\nout_dir = "o"\ncolumns = { page = "string", count = "int" }\n'
KAFKA = '[sink]\nkind = "kafka"\nbootstrap_servers = "b:1"\ntopic = "t"\nkey_field = "page"\n'


def step(operator, keys):
    return f'[[steps]]\noperator = "{operator}"\n{keys}\n'


def text(*parts):
    return SOURCE.replace("\n    ", "\n") + "".join(parts)


WRONG = [
    (text(WINDOW.replace("page", "pge"), CONSOLE), "ops.count_by: there is no field 'pge'; did"),
    (text(WINDOW, 'agg = "sum"\nagg_field = "m"\n', CONSOLE), "ops.agg_field: there is no field"),
    (
        text(WINDOW, 'aggregates = [{ name = "x", agg = "sum", field = "m" }]\n', CONSOLE),
        "ops.aggregates[0].field: there is no field 'm'; the record has at, n, page",
    ),
    (text('[time]\nfield = "when"\n', CONSOLE), "time.field: there is no field 'when'"),
    (
        text(step("filter", 'field = "pag"\npredicate = "exists"'), CONSOLE),
        "steps[0].field: there is no field 'pag'; did you mean 'page'? the record has at, n, page",
    ),
    (text(step("dedup", 'fields = ["page", "x"]'), CONSOLE), "steps[0].fields[1]: there is no"),
    (text(step("map", 'drop = ["x"]'), CONSOLE), "steps[0].drop[0]: there is no field 'x'"),
    (
        text(step("map", 'drop = ["n"]'), step("filter", 'field = "n"'), CONSOLE),
        "steps[1].field: there is no field 'n'; the record has at, page",
    ),
    (
        text(step("key_by", 'fields = ["pg"]'), CONSOLE),
        "steps[0].fields[0]: there is no field 'pg'",
    ),
    (text(WINDOW, TABLE.replace("count =", "cuont =")), "sink.columns.cuont: there is no field"),
    (text(KAFKA.replace('"page"', '"pages"')), "sink.key_field: there is no field 'pages'; did"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_a_field_that_no_record_has_is_told_where_it_is_named(given, message):
    [found] = problems(given)

    assert message in found
    assert not found.startswith("1:1")


@pytest.mark.parametrize(
    "given",
    [
        text(WINDOW, TABLE),
        text(KAFKA),
        text(step("filter", 'field = "n"'), step("map", 'drop = ["n"]'), CONSOLE),
        text(WINDOW.replace("page", "pge"), CONSOLE).replace("fields", "# fields"),  # any field
    ],
)
def test_fields_that_are_there_or_not_known_are_no_problem(given):
    assert checked(given).nodes


VERTICES = """
vertices:
  - id: left
    operator: source
    connector: {type: file, properties: {path: a, fields: {id: int, at: int}}}
  - id: right
    operator: source
    connector: {type: file, properties: {path: b, fields: {key: int, at: int}}}
  - {id: both, operator: join, config: {on: [id], size: 1m}}
  - {id: chosen, operator: filter, config: {field: ids}}
  - id: out
    operator: sink
    connector: {type: delta, properties: {out_dir: o, columns: {idd: int}}}
edges:
  - {from: left, to: both}
  - {from: right, to: both}
  - {from: left, to: chosen}
  - {from: chosen, to: out}
"""


def test_vertices_tell_it_in_their_own_tables():
    found = problems(VERTICES, "yaml")

    assert any("vertices[2].config.on[0]: there is no field 'id'" in each for each in found), found
    assert any("vertices[3].config.field: there is no field 'ids'" in each for each in found)
    assert any("properties.columns.idd: there is no field 'idd'" in each for each in found)


def test_problems_of_keys_and_of_expressions_are_told_at_once():
    maps = step("map", 'set = { x = "n + page", y = "foo(n)", z = "n +" }')
    window = WINDOW.replace('"1m"', '"soon"')

    found = problems(text(maps, step("filter", 'where = "pag > 1"'), window, CONSOLE))

    for message in (
        "steps[0].set.x: n + page (line 1, column 1) computes with BIGINT and VARCHAR; "
        "cast to a number",
        "steps[0].set.y: FOO(n) is not allowed",
        "steps[0].set.z: invalid SQL: an operand is missing after 'n +'",
        "window.size is soon",
    ):
        assert any(message in each for each in found), found


def test_names_behind_expressions_that_are_wrong_are_told_with_them():
    steps = step("filter", 'where = "n > "') + step("map", 'set = { x = "n + page", y = "ageq" }')
    steps += step("filter", "where = \"x > 'a'\"")  # Of what type x is, nobody knows.

    found = problems(text(steps, WINDOW.replace('count_by = "page"', 'count_by = "z"'), CONSOLE))

    assert len(found) == 4, found
    for message in ("steps[0].where", "steps[1].set.x", "steps[1].set.y", "ops.count_by: there is"):
        assert any(message in each for each in found), found


def test_where_fields_are_not_known_for_another_problem_they_are_not_asked_for():
    given = text(step("filter", 'where = "n > 1"'), CONSOLE).replace('"string"', '"sting"')

    [found] = problems(given)

    assert "source.fields.page: sting; did you mean 'string'?" in found


@pytest.mark.parametrize(
    ("given", "notation", "message"),
    [
        ("a = 1\na = 2\n", "toml", "p.toml:2: invalid TOML: duplicate key"),
        ("[a]\n[a]\n", "toml", "p.toml:2: invalid TOML: duplicate table [a]"),
        (
            "a: 1\n---\nb: 2\n",
            "yaml",
            "p.yaml:2: invalid YAML: a file must contain a single document",
        ),
        ("a:\n\t- b\n", "yaml", "p.yaml:2: invalid YAML: indentation must use spaces, not tabs"),
        ("a:\n  - b: 1\n   c: 2\n", "yaml", "p.yaml:3: invalid YAML: "),
        (
            "a:\n  b: 1\n c: 2\n",
            "yaml",
            "the indentation of the line differs from the lines above it",
        ),
    ],
)
def test_what_many_write_by_mistake_is_told_in_plain_words(given, notation, message):
    with raises(PIPELINE_UNREADABLE, re.escape(message)):
        checked(given, notation)
