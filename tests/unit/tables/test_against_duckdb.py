"""Queries return the rows that DuckDB returns, at any parallelism and for any split into epochs."""

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from tests.unit.tables.sql_runs import by_duckdb, ran

COLUMNS = (
    "id BIGINT, n BIGINT, f DOUBLE, s VARCHAR, b BOOLEAN, d DECIMAL(10,2), day DATE, "
    "moment TIMESTAMP"
)
# Query: the types of its columns, then the text; DuckDB gets the same text.
QUERIES = {
    "plain": ("BIGINT, VARCHAR", "SELECT id, s FROM t"),
    "star": (COLUMNS, "SELECT * FROM t"),
    "arithmetic": (
        "BIGINT, BIGINT, DOUBLE, DECIMAL(12,2), BIGINT",
        "SELECT n + 1, n * -3, f / 4, d + d, n % 7 FROM t",
    ),
    "comparison": (
        "BIGINT, BOOLEAN, BOOLEAN, BOOLEAN",
        "SELECT id, n > 3, s = 'b', f <= 0.5 OR n IS NULL FROM t",
    ),
    "nulls": (
        "BIGINT, BIGINT, VARCHAR, BOOLEAN",
        "SELECT id, coalesce(n, -1), coalesce(s, 'none'), n IS NOT NULL AND b FROM t",
    ),
    "where_unknown": ("BIGINT", "SELECT id FROM t WHERE NOT (n > 3)"),
    "where_in": ("BIGINT", "SELECT id FROM t WHERE n IN (1, 2, NULL) OR s NOT IN ('a', 'b')"),
    "where_between": ("BIGINT", "SELECT id FROM t WHERE n BETWEEN 2 AND 5 AND s LIKE 'a%'"),
    "texts": (
        "VARCHAR, VARCHAR, BIGINT, VARCHAR",
        "SELECT upper(s), s || '!', length(s), substring(s, 1, 2) FROM t",
    ),
    "cases": (
        "BIGINT, VARCHAR",
        "SELECT id, CASE WHEN n > 5 THEN 'many' WHEN n > 0 THEN 'few' END FROM t",
    ),
    "casts": (
        "VARCHAR, DOUBLE, BIGINT, DECIMAL(10,2)",
        "SELECT CAST(n AS VARCHAR), CAST(n AS DOUBLE), CAST(b AS BIGINT), CAST(n AS DECIMAL(10, 2))"
        " FROM t",
    ),
    "times": (
        "BIGINT, BIGINT, BIGINT",
        "SELECT extract(year FROM moment), extract(hour FROM moment), extract(month FROM day)"
        " FROM t",
    ),
    "union_all": (
        "BIGINT, DOUBLE",
        "SELECT id, n FROM t WHERE n > 3 UNION ALL SELECT id, f FROM t UNION ALL SELECT 0, d"
        " FROM t",
    ),
    "nested": (
        "BIGINT, BIGINT",
        "SELECT a.id, a.m + 1 FROM (SELECT id, n * 2 AS m FROM t WHERE b) AS a WHERE m > 2",
    ),
    "with": (
        "BIGINT, VARCHAR",
        "WITH big AS (SELECT * FROM t WHERE n > 2), bigger AS (SELECT id, s AS name FROM big"
        " WHERE n > 4) SELECT * FROM bigger",
    ),
    "renamed": (
        "VARCHAR, BIGINT",
        "SELECT u.y, u.x FROM (SELECT id, s FROM t) AS u (x, y) WHERE u.x < 50",
    ),
}


def rows_of(count, seed):
    chance = random.Random(seed)

    def some(value):
        return None if chance.random() < 0.15 else value

    start = datetime(2026, 11, 28, tzinfo=UTC)
    return [
        {
            "id": index,
            "n": some(chance.randint(-3, 9)),
            "f": some(chance.randint(-8, 8) / 4),
            "s": some(chance.choice(["a", "b", "abc", "äöü", ""])),
            "b": some(chance.random() < 0.5),
            "d": some(Decimal(chance.randint(-500, 500)) / 100),
            "day": some(date(2026, 1, 1) + timedelta(days=chance.randint(0, 400))),
            "moment": start + timedelta(milliseconds=index * 997 + chance.randint(0, 2_000)),
        }
        for index in range(count)
    ]


def file_of(queries):
    """Return a file with a table ``t`` and a target for each query."""
    lines = [
        f"CREATE TABLE t ({COLUMNS.replace('TIMESTAMP', 'TIMESTAMP(3)')}) "
        "WITH (kind = 'file', path = 'in');"
    ]
    for name, (types, query) in queries.items():
        columns = types.split(", ")
        if " " not in columns[0]:
            columns = [f"c{at} {word}" for at, word in enumerate(columns)]
        lines.append(
            f"CREATE TABLE {name} ({', '.join(columns)}) WITH (kind = 'file', path = 'out/{name}');"
        )
        lines.append(f"INSERT INTO {name} {query};")
    return "\n".join(lines)


def plain(row):
    """Return values that can be compared: times without zone, numbers as one type."""
    values = row.values() if isinstance(row, dict) else row
    return tuple(
        value.replace(tzinfo=None)
        if isinstance(value, datetime)
        else float(value)
        if isinstance(value, Decimal)
        else value
        for value in values
    )


@pytest.mark.parametrize(("parallelism", "epochs"), [(1, 1), (2, 7), (3, 4)])
def test_queries_return_what_duckdb_returns(parallelism, epochs):
    rows = rows_of(120, seed=parallelism)

    with ran(file_of(QUERIES), {"t": rows}, epochs=epochs, parallelism=parallelism) as harness:
        found = {name: Counter(map(plain, harness.results(name))) for name in QUERIES}

    expected = by_duckdb(COLUMNS, rows, {name: query for name, (_, query) in QUERIES.items()})
    for name in QUERIES:
        assert found[name] == Counter(map(plain, expected[name])), name
