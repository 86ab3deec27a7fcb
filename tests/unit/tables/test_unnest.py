"""UNNEST returns the rows that DuckDB returns."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.tables.sql_runs import by_duckdb, problems, ran, run

START = datetime(2026, 11, 28, tzinfo=UTC)
TABLE = """
    CREATE TABLE t (id BIGINT, items BIGINT[], words VARCHAR[], doc JSON, moment TIMESTAMP(3),
      WATERMARK FOR moment AS moment) WITH (kind = 'file', path = 'in');
"""
COLUMNS = "id BIGINT, items BIGINT[], words VARCHAR[], moment TIMESTAMP"
# Query: its text here and in DuckDB, which numbers items by another function.
QUERIES = {
    "plain": ("SELECT id, x, 0 FROM t CROSS JOIN UNNEST(items) AS u (x)",) * 2,
    "comma": (
        "SELECT t.id, u.x, 0 FROM t, UNNEST(items) AS u (x) WHERE x > 2",
        "SELECT t.id, x, 0 FROM t, UNNEST(items) AS u (x) WHERE x > 2",
    ),
    "numbered": (
        "SELECT id, x, n FROM t CROSS JOIN UNNEST(items) WITH ORDINALITY AS u (x, n)",
        "SELECT id, unnest(items), generate_subscripts(items, 1) FROM t",
    ),
    "left": (
        "SELECT id, x, 0 FROM t LEFT JOIN UNNEST(items) AS u (x) ON TRUE",
        "SELECT id, x, 0 FROM t LEFT JOIN LATERAL (SELECT UNNEST(items) AS x) AS u ON TRUE",
    ),
    "twice": (
        "SELECT id, x, length(w) FROM t CROSS JOIN UNNEST(items) AS u (x)"
        " CROSS JOIN UNNEST(words) AS v (w)",
    )
    * 2,
    "computed": (
        "SELECT id, x + id, 0 FROM t CROSS JOIN UNNEST(array_append(items, id)) AS u (x)",
        "SELECT id, x + id, 0 FROM t CROSS JOIN UNNEST(list_append(items, id)) AS u (x)",
    ),
}


def rows_of(count, seed):
    chance = random.Random(seed)

    def items(values):
        if chance.random() < 0.2:
            return None
        return [chance.choice([*values, None]) for _ in range(chance.randint(0, 4))]

    return [
        {
            "id": at,
            "items": items(range(6)),
            "words": items(["a", "bc", ""]),
            "moment": START + timedelta(seconds=at),
        }
        for at in range(count)
    ]


@pytest.mark.parametrize(("parallelism", "epochs"), [(1, 1), (2, 7), (3, 4)])
def test_unnest_returns_what_duckdb_returns(parallelism, epochs):
    rows = rows_of(60, seed=epochs)
    text = TABLE + "".join(
        f"""CREATE TABLE {name} (a BIGINT, b BIGINT, c BIGINT)
          WITH (kind = 'file', path = '{name}');
        INSERT INTO {name} {query};"""
        for name, (query, _) in QUERIES.items()
    )

    with ran(text, {"t": rows}, epochs=epochs, parallelism=parallelism) as harness:
        found = {
            name: Counter(tuple(r.values()) for r in harness.results(name)) for name in QUERIES
        }

    expected = by_duckdb(COLUMNS, rows, {name: query for name, (_, query) in QUERIES.items()})
    for name in QUERIES:
        assert found[name] == Counter(expected[name]), name


def test_items_of_json_and_windows_over_items():
    text = f"""{TABLE}
        CREATE VIEW lines AS SELECT id, line ->> 'sku' AS sku, moment
          FROM t CROSS JOIN UNNEST(json_items(doc -> 'lines')) AS l (line);
        CREATE TABLE out (sku VARCHAR, n BIGINT) WITH (kind = 'file', path = 'out');
        INSERT INTO out SELECT sku, count(*) FROM TUMBLE(lines, moment, INTERVAL '1' HOUR)
          GROUP BY sku, window_start;
    """
    documents = [{"lines": [{"sku": "a"}, {"sku": "b"}]}, {"lines": [{"sku": "a"}]}, {}]
    rows = [{"id": at, "doc": each, "moment": START} for at, each in enumerate(documents)]

    found = run(text, {"t": rows}, "out", parallelism=2)

    assert sorted((row["sku"], row["n"]) for row in found) == [("a", 2), ("b", 1)]


OTHER = """
    CREATE TABLE s (id BIGINT, moment TIMESTAMP(3), WATERMARK FOR moment AS moment)
      WITH (kind = 'file', path = 's');
    CREATE TABLE out (a BIGINT, b BIGINT) WITH (kind = 'file', path = 'out');
"""
CLOSE = "s.moment BETWEEN t.moment AND t.moment + INTERVAL '1' MINUTE"


def moments(*rows):
    return [{**row, "moment": START + timedelta(seconds=row["id"])} for row in rows]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_items_are_joined_with_a_stream(parallelism):
    text = f"""{TABLE}{OTHER}
        INSERT INTO out SELECT t.id, s.id FROM t CROSS JOIN UNNEST(items) AS u (x)
          JOIN s ON u.x = s.id AND {CLOSE};
    """
    rows = moments({"id": 1, "items": [2, 3, 70]}, {"id": 3, "items": [2, 5]})
    others = moments({"id": 2}, {"id": 3}, {"id": 5}, {"id": 70})

    found = run(text, {"t": rows, "s": others}, "out", parallelism=parallelism)

    assert sorted(tuple(row.values()) for row in found) == [(1, 2), (1, 3), (3, 5)]


def test_items_of_joined_rows_keep_the_event_time_of_the_join():
    text = f"""{TABLE}{OTHER}
        CREATE VIEW pairs AS SELECT items, t.moment AS first, s.moment AS second
          FROM t JOIN s ON t.id = s.id AND {CLOSE};
        CREATE VIEW parts AS SELECT x, greatest(first, second) AS at
          FROM pairs CROSS JOIN UNNEST(items) AS u (x);
        INSERT INTO out SELECT x, count(*) FROM TUMBLE(parts, at, INTERVAL '1' HOUR)
          GROUP BY x, window_start;
    """
    rows = moments({"id": 1, "items": [7, 8]}, {"id": 2, "items": [7]})

    found = run(text, {"t": rows, "s": moments({"id": 1}, {"id": 2})}, "out")

    assert sorted(tuple(row.values()) for row in found) == [(7, 2), (8, 1)]


def test_late_rows_of_a_window_before_unnest_are_a_table():
    text = f"""{TABLE}{OTHER}
        CREATE VIEW counts AS SELECT x, n FROM (
          SELECT id, count(*) AS n FROM TUMBLE(t, moment, INTERVAL '1' HOUR)
          GROUP BY id, window_start
        ) AS w CROSS JOIN UNNEST([id, n]) AS u (x);
        INSERT INTO out SELECT id, 1 FROM counts$late;
    """
    assert problems(text) == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("t CROSS JOIN UNNEST(id) AS u (x)", "UNNEST of BIGINT is not possible; expected an array"),
        (
            "t CROSS JOIN UNNEST(doc) AS u (x)",
            "UNNEST of JSON is not possible; expected an array; write UNNEST(json_items(…))",
        ),
        (
            "t LEFT JOIN UNNEST(items) AS u (x) ON x > 1",
            "UNNEST and LATERAL need CROSS JOIN … or LEFT JOIN … ON TRUE",
        ),
        (
            "UNNEST(items) AS u (x)",
            "UNNEST needs a table: FROM table CROSS JOIN UNNEST(column) AS t (x)",
        ),
        ("t CROSS JOIN UNNEST(items, words) AS u (x, y)", "UNNEST has one array, got 2"),
        ("t CROSS JOIN UNNEST(items) AS u (x, y)", "UNNEST has 1 column, got 2 names"),
        (
            "t JOIN t AS s ON t.id = s.id AND t.moment = s.moment CROSS JOIN UNNEST(t.items)",
            "UNNEST after another join is not supported; write it before the join, or create a "
            "view",
        ),
    ],
)
def test_wrong_unnests_are_rejected(source, problem):
    text = f"""{TABLE}
        CREATE TABLE out (x BIGINT) WITH (kind = 'file', path = 'out');
        INSERT INTO out SELECT 1 FROM {source};
    """
    assert [found for _, _, found in problems(text)] == [problem]
