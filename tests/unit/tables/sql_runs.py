"""SQL files from texts, run on the harness with scripted sources, and the same query by DuckDB."""

import random
import textwrap
from contextlib import contextmanager

import duckdb

from bicycle_runtime.tables.building import build_tables
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import BicycleError


def built(text):
    """Return the environment with the streams of an SQL file."""
    env = StreamEnvironment()
    build_tables(env, textwrap.dedent(text), file="v.sql")
    return env


def graph(text):
    """Return the graph of an SQL file, checked."""
    return built(text).execute("v")


def problems(text):
    """Return line, column and text of each problem of an SQL file."""
    try:
        graph(text)
    except BicycleError as error:
        assert error.code == "BIC-3200"
        return [(each["line"], each["column"], each["text"]) for each in error.facts["problems"]]
    return []


def split(rows, count, seed=0):
    """Return rows in order, split at random into some parts, of which some may be empty."""
    bounds = sorted(random.Random(seed).randint(0, len(rows)) for _ in range(count - 1))
    return [rows[begin:end] for begin, end in zip([0, *bounds], [*bounds, len(rows)], strict=True)]


@contextmanager
def ran(text, inputs, *, epochs=1, faults=(), between=None, **settings):
    """Run an SQL file over rows of its tables, in some epochs, and give the harness.

    Args:
        text: The file.
        inputs: Rows by table.
        epochs: The number of epochs of the input.
        faults: Fault points at which the process dies once.
        between: Called with the harness after the first half of the epochs.
        settings: Of the harness.
    """
    parts = {name: split(rows, epochs) for name, rows in inputs.items()}
    scripted = [f"{name}-source" for name in inputs]
    with Harness(built(text), scripted=scripted, **settings) as harness:
        for point in faults:
            harness.fail_at(point)
        for epoch in range(epochs):
            for name in inputs:
                harness.push(parts[name][epoch], source=f"{name}-source")
            harness.run()
            if between is not None and epoch == epochs // 2:
                between(harness)
        harness.end()
        harness.run()
        yield harness


def run(text, inputs, sink, **settings):
    """Run an SQL file to the end of its input and return the rows of a table."""
    with ran(text, inputs, **settings) as harness:
        return harness.results(sink)


def by_duckdb(columns, rows, queries):
    """Return the rows of each query by DuckDB, over rows of a table ``t``."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE t ({columns})")
        names = [each.split()[0] for each in columns.split(", ")]
        marks = ", ".join("?" for _ in names)
        given = [[row.get(name) for name in names] for row in rows]
        connection.executemany(f"INSERT INTO t VALUES ({marks})", given)
        return {name: connection.execute(text).fetchall() for name, text in queries.items()}
