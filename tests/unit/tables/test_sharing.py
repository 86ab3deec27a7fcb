"""Equal parts of a query, columns that no query reads, and the keys of rows in state."""

from datetime import UTC, datetime, timedelta

import pytest

from bicycle_runtime.engine.options import EngineOptions
from tests.unit.tables.sql_runs import graph, ran, run

TABLE = """
    CREATE TABLE t (a BIGINT NOT NULL, b VARCHAR, x DOUBLE, at TIMESTAMP(3),
      WATERMARK FOR at AS at) WITH (kind = 'file', path = 'in');
"""
OUT = "CREATE TABLE out (a BIGINT, n BIGINT) WITH (kind = 'file', path = 'out');"
COUNTED = """
    (SELECT a, count(*) AS n, window_end AS e
       FROM HOP(t, at, INTERVAL '1' SECOND, INTERVAL '2' SECOND) GROUP BY a, window_end)
"""
BEGIN = datetime(2026, 11, 28, tzinfo=UTC)


def rows(*numbers, **others):
    """Return a row a second, with its number."""
    return [
        {"a": number, "b": "x", "x": 0.5, "at": BEGIN + timedelta(seconds=at), **others}
        for at, number in enumerate(numbers)
    ]


def ids(text):
    return [vertex.id for vertex in graph(text).vertices]


def test_an_equal_part_of_a_query_is_computed_once():
    query = f"SELECT l.a, r.n FROM {COUNTED} l JOIN {COUNTED} r ON l.a = r.a AND l.e = r.e"
    text = f"{TABLE}{OUT} INSERT INTO out {query}"

    assert len([each for each in ids(text) if each.endswith("-combine")]) == 1
    assert sorted((each["a"], each["n"]) for each in run(text, {"t": rows(1, 1, 2)}, "out")) == [
        (1, 1), (1, 1), (1, 2), (2, 1), (2, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("other", ["count(a)", "count(DISTINCT a)", "sum(a)"])
def test_parts_that_differ_in_an_aggregate_are_both_computed(other):
    differs = COUNTED.replace("count(*)", other)
    query = f"SELECT l.a, r.n FROM {COUNTED} l JOIN {differs} r ON l.a = r.a AND l.e = r.e"
    text = f"{TABLE}{OUT} INSERT INTO out {query}"

    assert len([each for each in ids(text) if each.endswith("-combine")]) == 2


def test_a_part_with_a_random_function_is_computed_for_each_use():
    function = "CREATE FUNCTION labeled AS 'tests.sql.called_functions:labeled';"
    part = "(SELECT a, at, labeled(b) AS l FROM t WHERE a > 0)"
    query = f"SELECT p.a, q.a AS n FROM {part} p JOIN {part} q ON p.a = q.a AND p.at = q.at"
    text = f"{function}{TABLE}{OUT} INSERT INTO out {query}"

    selects = [each for each in ids(text) if each.startswith("out-select")]

    assert len(selects) == len({*selects}) == 3


def test_a_query_beside_its_equal_gives_its_rows_twice():
    text = f"{TABLE}{OUT} INSERT INTO out SELECT a, a AS n FROM t UNION ALL SELECT a, a AS n FROM t"

    assert sorted(each["a"] for each in run(text, {"t": rows(1, 2)}, "out")) == [1, 1, 2, 2]


@pytest.mark.parametrize("query", ["SELECT a, a AS n FROM t", "SELECT x, x FROM v"])
def test_a_view_with_other_names_reads_the_source_of_its_table(query):
    view = "CREATE VIEW v (x, y, z, w) AS SELECT * FROM t;"
    renamed = "WITH w (x, y, z, v) AS (SELECT * FROM t) SELECT x, x FROM w"
    text = f"{TABLE}{OUT}{view} INSERT INTO out {query}; INSERT INTO out {renamed}"

    assert [each for each in ids(text) if "source" in each] == ["t-source"]
    assert sorted(each["a"] for each in run(text, {"t": rows(1, 2)}, "out")) == [1, 1, 2, 2]


def test_ids_do_not_depend_on_equal_parts_of_other_statements():
    other = OUT.replace("out", "second")
    query = f"SELECT a, n FROM {COUNTED} WHERE n > 0"
    first, second = f"INSERT INTO out {query};", f"INSERT INTO second {query};"

    assert {*ids(f"{TABLE}{OUT}{other}{first}{second}")} == {
        *ids(f"{TABLE}{OUT}{other}{second}{first}")
    }


@pytest.mark.parametrize(
    "query", ["SELECT a, a AS n FROM t WHERE x > 0", "SELECT a, n FROM (SELECT *, a AS n FROM t)"]
)
def test_a_column_that_no_query_reads_is_not_converted(query):
    text = f"SET on_error = 'dead_letter'; {TABLE.replace('b VARCHAR', 'b DATE')}{OUT}"
    text = f"{text} INSERT INTO out {query}"

    with ran(text, {"t": rows(1, 2)}) as harness:
        assert [each["a"] for each in harness.results("out")] == [1, 2]
        assert not harness.dead_letters


def test_a_column_that_one_of_two_queries_reads_is_converted():
    second = "CREATE TABLE second (b DATE) WITH (kind = 'file', path = 'second');"
    text = f"SET on_error = 'dead_letter'; {TABLE.replace('b VARCHAR', 'b DATE')}{OUT}{second}"
    text = f"{text} INSERT INTO out SELECT a, a AS n FROM t; INSERT INTO second SELECT b FROM t;"

    with ran(text, {"t": rows(1, 2)}) as harness:
        assert harness.results("out") == []
        assert len(harness.dead_letters) == 2


def test_rows_are_counted_without_any_column():
    text = f"""{TABLE} CREATE TABLE out (n BIGINT) WITH (kind = 'file', path = 'out');
        INSERT INTO out SELECT count(*) AS n FROM TUMBLE(t, at, INTERVAL '10' SECOND)
          GROUP BY window_start, window_end"""

    assert run(text, {"t": rows(1, 2, 3)}, "out") == [{"n": 3}]


@pytest.mark.parametrize("state_backend", ["memory", "rocksdb"])
def test_times_are_keys_of_groups_and_results(state_backend):
    text = f"""{TABLE.replace("at AS at", "at AS at - INTERVAL '9' SECOND")}
        CREATE TABLE out (day TIMESTAMP(3), n BIGINT) WITH (kind = 'file', path = 'out');
        INSERT INTO out SELECT CASE WHEN a > 0 THEN date_trunc('day', at) END AS day, count(*) AS n
          FROM TUMBLE(t, at, INTERVAL '2' DAY)
          GROUP BY CASE WHEN a > 0 THEN date_trunc('day', at) END, window_start, window_end"""
    late = [{**each, "at": each["at"] + timedelta(days=1)} for each in rows(3, 4)]

    inputs = {"t": [*rows(1, 0, 2, -1), *late]}
    found = run(text, inputs, "out", epochs=3, engine=EngineOptions(state_backend=state_backend))

    day = timedelta(days=1)
    assert sorted((str(each["day"]), each["n"]) for each in found) == sorted(
        [("None", 2), (str(BEGIN), 2), (str(BEGIN + day), 2)]
    )
