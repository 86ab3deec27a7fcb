"""A pipeline from PostgreSQL to PostgreSQL: rows are read, completed by others, and written."""

import pytest

from bicycle_runtime.engine.options import EngineOptions
from tests.unit.pipelines.pipeline_runs import ran, run

PIPELINE = """
    [source]
    kind = "postgres"
    url = "{url}"
    table = "{table}"
    column = "id"
    time_field = "at"
    start_at = 3
    {source}

    [time]
    max_out_of_orderness = "0s"

    [[steps]]
    operator = "lookup"
    url = "{url}"
    table = "{table}_users"
    key = "user_id"
    column = "id"
    fields = ["city"]
    how = "{how}"
    on_error = {{ action = "fail", retries = 3, backoff = "100ms" }}

    [window]
    size = "1m"

    [ops]
    count_by = "city"
    aggregates = [
        {{ name = "orders", agg = "count" }},
        {{ name = "cents", agg = "sum", field = "cents" }},
    ]

    [sink]
    kind = "postgres"
    url = "{url}"
    table = "{table}_sums"
    create_table = true
    keys = ["window_start_ms", "city"]
    columns = {{ window_start_ms = "int", city = "string", orders = "int", cents = "int" }}
"""
COUNT = 40


@pytest.fixture
def orders(server, table):
    server.query(f"create table {table} (id int primary key, user_id int, cents int, "
                 "at timestamptz)")  # fmt: skip
    server.query(f"insert into {table} select n, nullif(mod(n, 4), 0), n, to_timestamp(n * 3) "
                 f"from generate_series(1, {COUNT}) n")  # fmt: skip
    server.query(f"create table {table}_users (id bigint primary key, name text, city text)")
    server.query(f"insert into {table}_users values (1, 'a', 'Ulm'), (2, 'b', 'Bonn')")
    return table


def sums(how):
    """Return what the table of sums must hold."""
    found = {}
    for n in range(3, COUNT + 1):
        city = {1: "Ulm", 2: "Bonn"}.get(n % 4)
        if city is not None or how == "left":
            count, cents = found.get((n * 3_000 // 60_000 * 60_000, city), (0, 0))
            found[n * 3_000 // 60_000 * 60_000, city] = count + 1, cents + n
    return sorted((start, city, *values) for (start, city), values in found.items())


@pytest.mark.core
@pytest.mark.parametrize(
    "source", ["", 'fields = { user_id = "json", cents = "int", at = "timestamp" }']
)
def test_rows_are_read_completed_and_written_once_whatever_is_killed(server, orders, source):
    text = PIPELINE.format(url=server.url, table=orders, how="inner", source=source)

    small = EngineOptions(max_records_per_epoch=7)
    settings = {"real_sinks": ["sink"], "engine": small, "parallelism": 2}
    with ran(text, faults=["before_seal"], **settings) as harness:
        assert harness.crash_count == 1

    rows = server.query(f"select window_start_ms, city, orders, cents from {orders}_sums")
    assert sorted(rows) == sums("inner")


def test_rows_that_no_key_finds_go_on_without_its_columns(server, orders):
    text = PIPELINE.format(url=server.url, table=orders, how="left", source="")
    text = text[: text.index("[window]")] + '[sink]\n    kind = "console"\n'

    found = {row["id"]: row.get("city", "-") for row in run(text)}

    assert found == {n: {1: "Ulm", 2: "Bonn"}.get(n % 4, "-") for n in range(3, COUNT + 1)}


def test_decimals_keep_their_digits(server, table):
    server.query(f"create table {table} (id int primary key, cents numeric)")
    server.query(f"insert into {table} values (1, 12.3), (2, 9999999999.99), (3, null), (4, 0.005)")
    text = f"""
        [source]
        kind = "postgres"
        url = "{server.url}"
        table = "{table}"
        column = "id"
        fields = {{ id = "int", cents = "decimal(12,2)?" }}
        on_error = {{ action = "skip" }}

        [sink]
        kind = "postgres"
        url = "{server.url}"
        table = "{table}_copy"
        create_table = true
        keys = ["id"]
        columns = {{ id = "int", cents = "decimal(12,2)" }}
    """

    with ran(text, real_sinks=["sink"]):
        pass

    rows = server.query(f"select id, cents::text from {table}_copy order by id")
    assert rows == [(1, "12.30"), (2, "9999999999.99"), (3, None)]
