"""Functions in Python in queries: types, NULL, errors of rows, aggregates, rejections."""

import inspect
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from bicycle_runtime.jobs.inspection.reports import inspect_job
from bicycle_runtime.tables.building import build_tables
from bicycle_runtime.tables.errors import SQL_INVALID
from bicycle_runtime.tables.job import check_sql
from bicycle_sdk.errors import BicycleError
from tests.plugin_zoo.zoo import install, whole
from tests.unit.jobs.job_samples import bundle_of
from tests.unit.tables import user_functions
from tests.unit.tables.sql_runs import problems, ran, run

START = datetime(2026, 11, 28, tzinfo=UTC)
TABLE = """
    CREATE TABLE t (id BIGINT, k VARCHAR, n BIGINT, d DECIMAL(10,2), doc JSON, moment TIMESTAMP(3),
      WATERMARK FOR moment AS moment) WITH (kind = 'file', path = 'in');
"""

OWN = whole(
    "own",
    """
    import os
    from os import getcwd
    from bicycle_sdk import StreamEnvironment, bicycle_plugin

    def negative(value: int) -> int:
        return -value

    @bicycle_plugin(name="own", version="1.0")
    def job(env: StreamEnvironment) -> None:
        env.from_collection(["a"]).print()
    """,
)


def function(name, python):
    return f"CREATE FUNCTION {name} AS 'tests.unit.tables.user_functions:{python}';\n"


def results(functions, columns, query, rows, **settings):
    """Return the rows of a query that calls functions, as tuples."""
    names = [each.split()[0] for each in columns.split(", ")]
    created = "".join(function(name, name) for name in functions)
    text = f"""{created}{TABLE}
        CREATE TABLE out ({columns}) WITH (kind = 'file', path = 'out');
        INSERT INTO out {query};
    """
    found = run(text, {"t": rows}, "out", **settings)
    return [tuple(row[name] for name in names) for row in found]


def rows_of(*values, **others):
    return [
        {"id": at, "n": value, "moment": START + timedelta(seconds=at), **others}
        for at, value in enumerate(values)
    ]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_function_is_called_in_select_and_where(parallelism):
    found = results(
        ["half"], "id BIGINT, x DOUBLE", "SELECT id, half(n + 1) FROM t WHERE Half(n) > 1",
        rows_of(1, 3, None, 8), parallelism=parallelism, epochs=2,
    )  # fmt: skip

    assert sorted(found) == [(1, 2.0), (3, 4.5)]


def test_null_leads_to_null_unless_the_annotation_has_none():
    query = "SELECT id, half(n), described(k), described(k, n) FROM t"
    columns = "id BIGINT, a DOUBLE, b VARCHAR, c VARCHAR"

    assert results(["half", "described"], columns, query, rows_of(4, None, 0)) == [
        (0, 2.0, "None 7", "None 4"), (1, None, "None 7", None), (2, 0.0, "None 7", None),
    ]  # fmt: skip


def test_values_have_the_types_of_the_annotations():
    query = "SELECT later(moment, n), joined(k, 'x', k), sized(doc), doubled(d) FROM t"
    columns = "a TIMESTAMP(3), b VARCHAR, c VARCHAR[], d DECIMAL(12,2)"
    rows = rows_of(5, k="a", doc={"b": 1, "a": 2}, d=Decimal("1.25"))

    [found] = results(["later", "joined", "sized", "doubled"], columns, query, rows)

    assert found == (START + timedelta(seconds=5), "a-x-a", ["a", "b"], Decimal("2.50"))


def test_a_function_on_columns_gets_arrow_arrays():
    rows = rows_of(2, None, 3)

    found = results(["squared"], "x BIGINT", "SELECT squared(n) FROM t", rows)

    assert found == [(4,), (None,), (9,)]


def letters(function, expression, rows):
    """Return the results and the texts of the dead letters of an expression."""
    text = f"""SET on_error = 'dead_letter';
        CREATE FUNCTION f AS 'tests.unit.tables.user_functions:{function}';
        {TABLE}
        CREATE TABLE out (id BIGINT, x {"BIGINT" if function != "reciprocal" else "DOUBLE"})
          WITH (kind = 'file', path = 'out');
        INSERT INTO out SELECT id, {expression} FROM t;
    """
    with ran(text, {"t": rows}) as harness:
        return [row["id"] for row in harness.results("out")], [
            str(letter) for letter in harness.dead_letters
        ]


def test_a_row_that_fails_is_one_dead_letter_with_the_line_of_the_function():
    ids, found = letters("reciprocal", "f(n)", rows_of(1, 0, 4))

    line = inspect.getsourcelines(user_functions.reciprocal)[1] + 1
    assert ids == [0, 2]
    assert len(found) == 1
    assert "user_functions:reciprocal raised ZeroDivisionError: division by zero" in found[0]
    assert f"user_functions.py:{line}" in found[0]


def test_case_calls_a_function_only_for_its_rows():
    ids, found = letters("reciprocal", "CASE WHEN n <> 0 THEN f(n) END", rows_of(1, 0, 4))

    assert (ids, found) == ([0, 1, 2], [])


def test_a_row_on_columns_that_fails_is_one_dead_letter():
    ids, found = letters("squared", "f(n)", rows_of(1, 1 << 40, 4))

    assert ids == [0, 2]
    assert "user_functions:squared raised ArrowInvalid: overflow" in found[0]


@pytest.mark.parametrize(
    ("function", "problem"),
    [("lying", "user_functions:lying returned no BIGINT"),
     ("shortened", "user_functions:shortened returned 0 values for 1 rows")],
)  # fmt: skip
def test_a_result_that_does_not_fit_is_an_error_of_its_row(function, problem):
    ids, found = letters(function, "f(n)", rows_of(1))

    assert ids == []
    assert problem in found[0]


def test_a_function_that_is_not_deterministic_is_computed_once_for_several_readers():
    text = f"""{function("numbered", "numbered")}{TABLE}
        CREATE VIEW v AS SELECT id, numbered() AS x FROM t;
        CREATE TABLE a (id BIGINT, x BIGINT) WITH (kind = 'file', path = 'a');
        CREATE TABLE b (id BIGINT, x BIGINT) WITH (kind = 'file', path = 'b');
        INSERT INTO a SELECT id, x + 0 FROM v;
        INSERT INTO b SELECT id, x FROM v;
    """
    with ran(text, {"t": rows_of(1, 2, 3)}) as harness:
        assert harness.results("a") == harness.results("b")
        assert len({row["x"] for row in harness.results("a")}) == 3


def test_a_result_that_the_annotation_excludes_is_an_error_of_its_row():
    ids, found = letters("positive", "f(n)", rows_of(1, 0, 4))

    assert ids == [0, 2]
    assert "user_functions:positive returned None, which its annotation excludes" in found[0]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_aggregates_in_windows_skip_null_and_merge(parallelism):
    text = f"""{function("product", "Product")}{function("latest", "Latest")}
        {function("described", "described")}{TABLE}
        CREATE TABLE out (x VARCHAR, p DOUBLE, q DOUBLE, c BIGINT)
          WITH (kind = 'file', path = 'out');
        INSERT INTO out SELECT described('g', id / 3 + 1), product(n),
            product(n) FILTER (WHERE n > 2), latest(n)
          FROM TUMBLE(t, moment, INTERVAL '1' HOUR) GROUP BY described('g', id / 3 + 1),
            window_start;
    """
    rows = rows_of(2, None, 5, 3, 4, 1)
    with ran(text, {"t": rows}, parallelism=parallelism, epochs=3) as harness:
        found = sorted(tuple(row.values()) for row in harness.results("out"))

    assert found == [("g 1", 10.0, 5.0, 3), ("g 2", 12.0, 12.0, 3)]


def test_accumulators_have_the_type_of_their_annotation():
    text = f"""{function("product", "Product")}{TABLE}
        CREATE TABLE out (p DOUBLE) WITH (kind = 'file', path = 'out');
        INSERT INTO out SELECT product(n) FROM TUMBLE(t, moment, INTERVAL '1' HOUR)
          GROUP BY window_start;
    """
    report = inspect_job(bundle_of(lambda env: build_tables(env, text, file="v.sql")))

    assert report.warnings == ()


CREATED = function("half", "half") + function("product", "Product")
INSERT = "INSERT INTO out SELECT {} FROM t;"


@pytest.mark.parametrize(
    ("statement", "at", "problem"),
    [
        (INSERT.format("half(k)"), 24, "half expects (DOUBLE), got VARCHAR; cast the arguments"),
        (
            INSERT.format("half(n, n)"), 24,
            "half expects (DOUBLE), got BIGINT, BIGINT; cast the arguments",
        ),
        (
            INSERT.format("n") + function("half", "half"), 49,
            "half is defined twice",
        ),
        (function("lower", "half"), 17, "lower is a function of SQL; choose another name"),
        (
            "CREATE FUNCTION f AS 'no_such_module:f';", 22,
            "module 'no_such_module' not found",
        ),
        (
            "CREATE FUNCTION f AS 'no_such_point';", 22,
            "'no_such_point' is neither 'module:function' nor an entry point of the group "
            "bicycle.sql_functions; known: none",
        ),
        (
            "CREATE FUNCTION f AS 'a:b' LANGUAGE JAVA;", 37,
            "functions are in Python: LANGUAGE PYTHON",
        ),
        (INSERT.format("n") + " INSERT INTO out SELECT n FROM t WHERE product(n) > 1;", 72,
         "an aggregate is not possible in WHERE; use HAVING"),
    ],
)  # fmt: skip
def test_wrong_calls_are_rejected_at_their_position(statement, at, problem):
    text = f"""{CREATED}{TABLE.replace(chr(10), " ")}
CREATE TABLE out (n BIGINT) WITH (kind = 'file', path = 'out');
{statement}"""
    assert (5, at, problem) in problems(text)


@pytest.mark.parametrize(
    ("python", "problem"),
    [
        ("unannotated", "the argument 'value' has no annotation"),
        ("strange", "complex is not the type of a column; expected str, int, float, bool, Decimal, "
         "datetime, date, time, dict, and lists of these"),
        ("with_keyword", "keyword arguments are not supported"),
        ("waiting", "it is async; a function of SQL returns its result"),
        ("decimal_without_digits",
         'a Decimal needs digits: Annotated[Decimal, "DECIMAL(10, 2)"]'),
        ("NUMBER", "it is float, not a function"),
    ],
)  # fmt: skip
def test_functions_without_types_of_sql_are_rejected(python, problem):
    location = f"tests.unit.tables.user_functions:{python}"
    texts = [text for _, _, text in problems(function("f", python))]

    assert f"{location!r} cannot be called by SQL: {problem}" in texts


def installed(tmp_path, monkeypatch):
    """Install a wheel with a function under the entry point ``triple``."""
    (tmp_path / "tripling.py").write_text("def triple(value: int) -> int:\n    return value * 3\n")
    points = tmp_path / "tripling-1.0.dist-info"
    points.mkdir()
    (points / "METADATA").write_text("Metadata-Version: 2.1\nName: tripling\nVersion: 1.0\n")
    (points / "entry_points.txt").write_text("[bicycle.sql_functions]\ntriple = tripling:triple\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tripling", raising=False)  # Of another folder.


def test_an_installed_wheel_offers_functions_by_entry_points(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch)
    text = f"""CREATE FUNCTION triple AS 'triple';{TABLE}
        CREATE TABLE out (x BIGINT) WITH (kind = 'file', path = 'out');
        INSERT INTO out SELECT triple(n) FROM t;
    """
    assert run(text, {"t": rows_of(2, 5)}, "out") == [{"x": 6}, {"x": 15}]


def checked(tmp_path, monkeypatch, created):
    """Return the problems of a file that a client sent, and that has these functions."""
    installed(tmp_path, monkeypatch)
    install(tmp_path, OWN)
    (tmp_path / "harmful.py").write_text("raise SystemExit('it was imported')")
    text = f"""{created}{TABLE}
        CREATE TABLE out (x BIGINT) WITH (kind = 'file', path = 'out');
        INSERT INTO out SELECT n FROM t;
    """
    try:
        check_sql(text, file="v.sql")
    except BicycleError as error:
        assert error.code == SQL_INVALID.code
        return [(each["line"], each["column"], each["text"]) for each in error.facts["problems"]]
    finally:
        sys.modules.pop("own", None)
    return []


def test_a_file_of_a_client_names_functions_of_plugins_and_entry_points(tmp_path, monkeypatch):
    created = "CREATE FUNCTION f AS 'own:negative'; CREATE FUNCTION triple AS 'triple';"

    assert checked(tmp_path, monkeypatch, created) == []


@pytest.mark.parametrize(
    "location", ["os:getcwd", "harmful:f", "own:getcwd", "own:os.system", "tripling:triple"]
)
def test_a_file_of_a_client_names_no_other_function(tmp_path, monkeypatch, location):
    found = checked(tmp_path, monkeypatch, f"CREATE FUNCTION f AS '{location}';")

    problem = "is not in an installed plugin, and this file may use only such functions"
    assert found == [(1, 22, f"'{location}' {problem}")]
