"""Expressions in pipelines: checked over the fields of each operator, computed, bad records."""

import pickle
import subprocess
import sys

import pytest

from bicycle_runtime.expressions.sql.compiling import compile_expressions
from bicycle_runtime.expressions.sql.steps import ComputedFields, Where
from bicycle_runtime.operators.errors import FunctionFailedError
from bicycle_runtime.pipelines.errors import SQL_EXTRA_MISSING
from tests.raising import raises
from tests.unit.pipelines.pipeline_runs import checked, lines, ran, run
from tests.unit.pipelines.test_problems import problems

FIELDS = {"n": "int", "t": "string"}
ROWS = [
    {"at": 0, "celsius": 20, "town": "Ulm", "more": {"id": 7}},
    {"at": 61_000, "celsius": -5, "town": "Bonn", "more": {"id": 8}},
]


def text(path, steps, rest='[sink]\nkind = "console"', on_error=""):
    return f"""
{on_error}
[source]
kind = "file"
path = "{path}"
time_field = "at"
fields = {{ at = "timestamp", celsius = "int", town = "string", more = "json" }}
{steps}
{rest}
"""


MAP = """
[[steps]]
operator = "map"
set = { f = "celsius * 1.8 + 32", town = "lower(town)", id = "more->>'$.id'" }
drop = ["more", "at"]
"""
SELECT = '[[steps]]\noperator = "map"\nselect = { name = "town" }\n'
WHERE = '[[steps]]\noperator = "filter"\nwhere = "celsius > 0"\n'


def test_fields_are_computed_added_dropped_and_chosen(tmp_path):
    path = lines(tmp_path, *ROWS)

    assert run(text(path, MAP)) == [
        {"celsius": 20, "town": "ulm", "f": 68.0, "id": "7"},
        {"celsius": -5, "town": "bonn", "f": 23.0, "id": "8"},
    ]
    assert run(text(path, SELECT)) == [{"name": "Ulm"}, {"name": "Bonn"}]
    assert [row["town"] for row in run(text(path, WHERE))] == ["Ulm"]
    drop = '[[steps]]\noperator = "map"\ndrop = ["more", "at", "celsius"]\n'
    assert run(text(path, drop)) == [{"town": "Ulm"}, {"town": "Bonn"}]


def test_a_field_that_may_be_missing_is_null(tmp_path):
    rows = [{"at": 0}, {"at": 1, "n": None, "word": None}, {"at": 2, "n": 3, "word": "a"}]
    given = f"""
        [source]
        kind = "file"
        path = "{lines(tmp_path, *rows)}"
        fields = {{ at = "timestamp", n = "int?", word = "string?", when = "timestamp?" }}
        [[steps]]
        operator = "map"
        set = {{ n = "coalesce(n, 0) + 1", is_named = "word is not null" }}
        drop = ["at", "when"]
        [sink]
        kind = "console"
    """

    assert run(given) == [
        {"n": 1, "word": None, "is_named": False},
        {"n": 1, "word": None, "is_named": False},
        {"n": 4, "word": "a", "is_named": True},
    ]
    assert problems(given.replace('"int?"', '"int??"')) != []
    strict = given.replace('"int?"', '"int"').replace("[source]", 'on_error = "skip"\n[source]')
    assert [row["n"] for row in run(strict)] == [4]


def test_a_bad_record_meets_the_rule_and_its_neighbours_stay(tmp_path):
    rows = [{"at": n, "celsius": n % 3, "town": "", "more": 0} for n in range(9)]
    step = '[[steps]]\noperator = "map"\nid = "m"\nselect = { n = "6 / celsius" }\n'

    given = text(lines(tmp_path, *rows), step, on_error='on_error = "dead_letter"')
    with ran(given) as harness:
        assert [row["n"] for row in harness.results("sink")] == [6, 3] * 3
        assert len(harness.dead_letters) == 3
        assert "divide by zero" in str(harness.dead_letters[0])


def test_a_record_that_ends_the_job_is_told_with_the_line_of_the_step(tmp_path):
    rows = [{"at": 0, "celsius": 0, "town": "", "more": 0}]
    step = '[[steps]]\noperator = "map"\nselect = { n = "6 / celsius" }\n'

    with raises(FunctionFailedError, match=r"divide by zero error\n  at Map, p.toml:\d+\n"):
        run(text(lines(tmp_path, *rows), step))


def test_of_several_expressions_the_one_that_fails_is_named(tmp_path):
    rows = [{"at": 0, "celsius": n, "town": "x", "more": 0} for n in (1, 0)]
    step = '[[steps]]\noperator = "map"\nset = { a = "celsius + 1", share = "6 / celsius" }\n'

    with ran(text(lines(tmp_path, *rows), step, on_error='on_error = "dead_letter"')) as harness:
        [letter] = harness.dead_letters

    assert letter["message"] == "share: divide by zero error"


def test_a_rule_with_retries_asks_again_and_gives_the_same(tmp_path):
    rows = [{"at": 0, "celsius": n, "town": "", "more": 0} for n in (1, 0, 2)]
    step = (
        '[[steps]]\noperator = "filter"\nwhere = "6 / celsius > 3"\n'
        'on_error = { action = "skip", retries = 2, backoff = "1ms" }\n'
    )

    assert [row["celsius"] for row in run(text(lines(tmp_path, *rows), step))] == [1]


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        (MAP.replace("celsius *", "celsus *"), "steps[0].set.f: there is no field 'celsus'"),
        (MAP + WHERE.replace("celsius", "more"), "steps[1].where: there is no field 'more'"),
        (SELECT + WHERE, "steps[1].where: there is no field 'celsius'; the record has name"),
        (
            WHERE.replace("celsius > 0", "celsius + 1"),
            "where has the type int; expected true or false",
        ),
        (WHERE.replace("where", 'predicate = "exists"\nfield = "town"\nwhere'), "use only one"),
        (MAP.replace("set", "function = 'identity'\nset"), "use only one"),
        (
            '[[steps]]\noperator = "map"\nfunction = "identity"\n' + WHERE,
            "the fields of its records are unknown",
        ),
    ],
)
def test_each_problem_is_told_where_the_expression_stands(steps, problem):
    found = problems(text("in.jsonl", steps))

    assert any(problem in each for each in found), found
    assert not found[0].startswith("1:1")


def test_what_operators_give_is_known_behind_them(tmp_path):
    steps = """
vertices:
  - id: a
    operator: source
    connector:
      type: file
      properties: {path: in.jsonl, time_field: at, fields: {at: int, k: string, n: int}}
  - {id: t, operator: time}
  - {id: by, operator: key_by, config: {field: k}}
  - {id: w, operator: window, config: {size: 1m, agg: sum, agg_field: n}}
  - {id: big, operator: filter, config: {where: "sum > 3 and key <> 'x' and window_end_ms > 0"}}
  - {id: d, operator: dedup, config: {fields: [key]}}
  - {id: out, operator: map, config: {select: {mean: "sum / 2.0"}}}
  - {id: z, operator: sink, connector: {type: console}}
edges:
  - {from: a, to: t}
  - {from: t, to: by}
  - {from: by, to: w}
  - {from: w, to: big}
  - {from: big, to: d}
  - {from: d, to: out}
  - {from: out, to: z}
"""
    path = lines(tmp_path, {"at": 1, "k": "a", "n": 5}, {"at": 1, "k": "b", "n": 1})

    assert run(steps.replace("in.jsonl", str(path)), "yaml", sink="z") == [{"mean": 2.5}]
    pipeline = checked(steps, "yaml")
    assert pipeline.expressions["big"].compiled.types == ("bool",)
    assert pipeline.expressions["out"].compiled.types == ("float",)


def test_an_operator_with_expressions_travels_before_and_after_its_use():
    where = Where(compile_expressions({"w": "n > 1"}, {"n": "int"}))

    assert where({"n": 2})
    assert pickle.loads(pickle.dumps(where)).answer_all([{"n": 1}, {"n": 2}]) == [False, True]


def test_a_pipeline_without_expressions_imports_no_library_for_them(tmp_path):
    program = """
import sys
sys.path.insert(0, "")
from tests.unit.pipelines.pipeline_runs import run
run('''[source]
kind = "collection"
items = [1]
[sink]
kind = "console"
''')
print("sqlglot" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.stdout == "False\n", done.stderr


def test_a_worker_computes_expressions_without_a_parser():
    fields = ComputedFields(compile_expressions({"m": "n + 1", "w": "upper(t)"}, FIELDS))
    program = f"""
import pickle, sys
step = pickle.loads({pickle.dumps(fields)!r})
print(step.answer_all([{{"n": 1, "t": "a"}}]))
print("sqlglot" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.stdout == "[{'m': 2, 'w': 'A'}]\nFalse\n", done.stderr


def test_equal_parts_of_expressions_are_computed_once():
    compiled = compile_expressions({"a": "n * 2 + 1", "b": "n * 2 - 1"}, FIELDS)
    first, second = compiled.trees

    assert first.arguments[1] is second.arguments[1]


def test_a_missing_library_is_told_with_the_line_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("bicycle_runtime.expressions.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlglot", None)

    with raises(SQL_EXTRA_MISSING, match=r"bicycle-runtime\[sql\]"):
        checked(text("in.jsonl", WHERE))
