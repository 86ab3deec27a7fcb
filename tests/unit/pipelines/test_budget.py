"""A check has a budget: a small file that is costly to check is refused soon."""

import random

import pytest

from bicycle_runtime.endpoints import checking
from bicycle_runtime.endpoints.checking import likely
from bicycle_runtime.expressions.sql.compiling import compile_expressions
from bicycle_runtime.expressions.sql.steps import ExpressionInvalidError
from bicycle_runtime.jobs.plugins import pipeline_checks
from bicycle_runtime.jobs.plugins.pipeline_checks import check_in_child
from bicycle_runtime.pipelines import documents
from bicycle_runtime.pipelines.documents import read_document
from bicycle_runtime.pipelines.errors import (
    PIPELINE_INVALID,
    PIPELINE_TOO_COSTLY,
    PIPELINE_UNREADABLE,
)
from bicycle_runtime.pipelines.nodes import check_pipeline
from bicycle_runtime.tables.errors import SQL_INVALID
from bicycle_sdk.errors import BicycleError
from tests.raising import raises
from tests.unit.pipelines.test_problems import GOOD


def check(text, notation="yaml"):
    check_pipeline(read_document(text, file=f"p.{notation}", notation=notation))


def edges(count):
    lines = "".join(f"- {{from: a{number}, to: b{number}}}\n" for number in range(count))
    return "vertices:\n- {id: x, operator: union}\nedges:\n" + lines


def chain(count):
    vertices = "".join(f"- {{id: v{number}, operator: union}}\n" for number in range(count))
    lines = "".join(f"- {{from: v{n}, to: v{n - 1}}}\n" for n in range(1, count))
    return f"vertices:\n{vertices}edges:\n{lines}"


@pytest.fixture
def comparisons(monkeypatch):
    """How many pairs of words were compared."""
    found = []
    compare = checking.difflib.get_close_matches

    def counted(word, words, n):
        found.extend(words)
        return compare(word, words, n=n)

    monkeypatch.setattr(checking.difflib, "get_close_matches", counted)
    return found


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"k{number}: 1\n" for number in range(8_000)),
        edges(2_000),
        "sink: {kind: " + "a" * 100_000 + "}\n",
        "steps:\n" + "- {operator: x}\n" * 3_000,
    ],
    ids=["keys", "edges", "long", "steps"],
)
def test_a_check_ends_with_a_hundred_problems(text, comparisons):
    with raises(PIPELINE_INVALID) as caught:
        check(text)

    count = len(caught.value.facts["problems"])
    assert count <= 100
    assert caught.value.facts["count_text"].endswith("or more") == (count == 100)
    assert len(caught.value.summary) < 1_000_000
    assert len(comparisons) <= 100 * 1_000


def test_words_are_compared_only_where_that_is_quick():
    assert likely("tumblng", ["tumbling"]) == "tumbling"
    assert likely("x" * 300, ["x" * 301]) is None
    assert likely("tumblng", ["tumbling", *map(str, range(2_000))]) is None


def test_a_long_chain_of_vertices_is_sorted_in_one_pass():
    with raises(PIPELINE_INVALID) as caught:
        check(chain(1_500))

    assert [problem["text"] for problem in caught.value.facts["problems"]] == [
        "the output of 'v0' is not connected: add an edge from it",
        "'v1499' needs an input: an edge to it",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "case " + " ".join(f"when a = {n} then {n}" for n in range(5_000)) + " end",
        " + ".join(["a"] * 5_000),
        "=".join(["("] * 30) + "a" + " = a)" * 30,
        "(" * 4_000 + "a" + ")" * 4_000,
        "(" * 12 + "a = a" + ") = (a = a)" * 12,
    ],
    ids=["case", "sum", "broken", "deep", "compared"],
)
def test_an_expression_has_a_budget_of_terms_and_depth(text):
    try:
        compile_expressions({"x": text}, {"a": "int"})
    except ExpressionInvalidError as error:
        assert any(word in str(error) for word in ("terms", "steps", "deep", "SQL"))


def test_a_yaml_file_is_read_up_to_its_bound_only(monkeypatch):
    monkeypatch.setattr(documents, "_NODE_COUNT_MAX", 1_000)  # A mapping, and two nodes per key.
    with raises(PIPELINE_UNREADABLE) as caught:
        check("".join(f"k{number}: 1\n" for number in range(800)) + "[")  # The end is no YAML.

    assert "p.yaml:500" in caught.value.summary
    assert "more than 1,000 values" in caught.value.summary


def test_a_child_process_reports_what_is_wrong_and_what_is_good():
    check_in_child(GOOD, file="p.toml")
    with raises(PIPELINE_INVALID, match=r"p\.toml:1:1"):
        check_in_child("x = 1", file="p.toml")
    with raises(PIPELINE_UNREADABLE):
        check_in_child("[", file="p.toml")


def test_a_child_process_checks_the_functions_of_an_sql_file():
    created = "CREATE FUNCTION f AS 'os:getcwd';"

    with raises(SQL_INVALID, match="'os:getcwd' is not in an installed plugin"):
        check_in_child(created, file="v.sql")


def test_a_check_that_takes_too_much_is_ended(monkeypatch):
    monkeypatch.setattr(pipeline_checks, "_WALL_S", 0.05)

    with raises(PIPELINE_TOO_COSTLY) as caught:
        check_in_child(GOOD, file="p.toml")

    assert caught.value.facts["file"] == "p.toml"


SEEDS = range(60)
PIECES = [
    "source", "sink", "window", "ops", "time", "steps", "vertices", "edges", "kind", "file", "id",
    "operator", "map", "filter", "config", "select", "a", "1", "-1", "1e400", "null", "true", "{",
    "}", "[", "]", ":", ",", "\n", "\n  ", "\n- ", "&a", "*a", "<<", "'", '"', "#", "=", "\t", "..",
    "[[steps]]", "[a.b]", "case when a then b end", "((((", "😀", "\x00",
]  # fmt: skip


@pytest.mark.parametrize("notation", ["toml", "yaml"])
@pytest.mark.parametrize("seed", SEEDS)
def test_any_text_is_checked_or_refused_with_an_error_of_pipelines(seed, notation):
    chance = random.Random(seed)
    words = chance.choices(PIECES, k=chance.choice([5, 50, 500]))
    text = chance.choice(["", GOOD]) + chance.choice(["", " "]).join(words)

    try:
        check(text, notation)
    except BicycleError as error:
        assert error.code in ("BIC-2700", "BIC-2701", "BIC-2706")
