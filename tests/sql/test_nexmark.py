"""The append-only queries of Nexmark return DuckDB's rows, through epochs and a crash."""

import re
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow
import pytest

from tests.unit.tables.sql_runs import ran

FOLDER = Path(__file__).parent / "nexmark"
QUERIES = ["q0", "q1", "q2", "q5", "q7", "q8", "q10", "q11", "q13", "q14", "q21", "q22"]
TIMES = ("dateTime", "expires", "since")
EVENTS, DISORDER_MS = 3_000, 1_500


@pytest.fixture(scope="module", params=[7, 20261128])
def rows(request):
    """The rows of each table, from the generator of the benchmark."""
    folder = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        from nexmark_data import TABLES, events, side_rows
    finally:
        sys.path.remove(folder)
    found = {name: [] for name in TABLES}
    settings = {"seed": request.param, "per_second": 50, "disorder_ms": DISORDER_MS}
    for name, row in events(EVENTS, **settings):
        found[name].append(row)
    return {**found, "side_input": side_rows()}


@pytest.fixture(scope="module")
def duck(rows):
    """A connection of DuckDB with the tables."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, each in rows.items():
            columns = ", ".join(
                f"CAST({column} AS TIMESTAMP) AS {column}" if column in TIMES else column
                for column in each[0]
            )
            connection.register("given", pyarrow.Table.from_pylist(each))
            connection.execute(f"CREATE TABLE {name} AS SELECT {columns} FROM given")
        yield connection


def by_duckdb(name):
    """Return a query for DuckDB, which has no window functions in FROM."""
    given = FOLDER / f"{name}.duckdb.sql"
    text = given if given.is_file() else FOLDER / f"{name}.sql"
    return text.read_text("utf-8")


def columns_of(duck, name):
    """Return the columns of the result as a definition of a table in our dialect."""
    described = duck.execute(f"DESCRIBE {by_duckdb(name)}").fetchall()
    types = {"TIMESTAMP": "TIMESTAMP(3)", "HUGEINT": "BIGINT", "INTEGER": "BIGINT"}
    return ", ".join(
        f"{column} {'DOUBLE' if kind.startswith('DECIMAL') else types.get(kind, kind)}"
        for column, kind, *_ in described
    )


def file_of(columns, name):
    tables = (FOLDER / "tables.sql").read_text("utf-8")
    query = (FOLDER / f"{name}.sql").read_text("utf-8")
    target = f"CREATE TABLE answer ({columns}) WITH (kind = 'file', path = 'answer');"
    return f"{tables}\n{target}\nINSERT INTO answer\n{query}"


def read_by(rows, name):
    """Return the tables that a query reads."""
    text = (FOLDER / f"{name}.sql").read_text("utf-8")
    return {
        table: each
        for table, each in rows.items()
        if re.search(rf"\b(FROM|JOIN|TABLE|,) {table}\b", text)
    }


def plain(row):
    """Return values that can be compared: times in UTC without zone, numbers with 9 digits."""
    values = row.values() if isinstance(row, dict) else row
    return tuple(map(plain_value, values))


def plain_value(value):
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return value if isinstance(value, str | None) else float(f"{float(value):.9g}")


@pytest.mark.parametrize("name", QUERIES)
def test_rows_are_those_of_duckdb(rows, duck, name):
    expected = Counter(map(plain, duck.execute(by_duckdb(name)).fetchall()))
    text = file_of(columns_of(duck, name), name)

    with ran(
        text, read_by(rows, name), epochs=5, parallelism=2, faults=["after_seal"]
    ) as harness:  # fmt: skip
        found = Counter(map(plain, harness.results("answer")))
        crashes = harness.crash_count

    assert found == expected
    assert crashes == 1
    assert expected


def test_windows_of_processing_time_count_each_bid_once(rows):
    columns = "bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3)"

    with ran(
        file_of(columns, "q12"), read_by(rows, "q12"), epochs=4, faults=["after_seal"],
        between=lambda harness: harness.advance_time(25_000),
    ) as harness:  # fmt: skip
        found = harness.results("answer")

    counts = Counter()
    for row in found:
        counts[row["bidder"]] += row["bid_count"]
    assert counts == Counter(row["bidder"] for row in rows["bid"])
    assert len({row["starttime"] for row in found}) > 1
    assert len({(row["bidder"], row["starttime"]) for row in found}) == len(found)
