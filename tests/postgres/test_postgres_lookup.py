"""Look-ups in PostgreSQL: rows of keys, one question for many, a cache, a server that goes away."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from bicycle_runtime.connectors.postgres.lookup import LookupTable
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.script import script_source
from bicycle_sdk import Secret, retry
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.lookups import PostgresLookup

END_SESSIONS = """
    select pg_terminate_backend(pid, 10000) from pg_stat_activity
    where application_name = 'bicycle lookup'
"""


@pytest.fixture
def users(server, table):
    server.query(f"create table {table} (id bigint primary key, name text, city text)")
    server.query(f"insert into {table} values (1, 'ada', 'London'), (2, 'bob', null)")
    return table


def table_of(server, users, key="id", **more):
    settings = {"columns": None, "password": None, "cache_rows": 2, "cache_ms": 1_000, **more}
    clock = ManualClock()
    return LookupTable(server.url, users, key, clock=clock, **settings), clock


# The process goes on, so a session that a killed worker held open is found by the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.core
def test_a_job_that_is_killed_finds_the_row_of_each_record(server, users):
    def job(env):
        lookup = PostgresLookup(
            server.url, users, key="id", key_of=lambda order: order["user"], columns=["name"]
        )
        orders = env.from_collection([{"user": number % 3 + 1} for number in range(9)])
        found = orders.async_io_batches(lookup, max_size=4, timeout=timedelta(seconds=60))
        found.uid("found").collect("out")

    with Harness(job) as harness:
        harness.fail_at("before_seal")
        harness.run()
        results = harness.results("out")

    names = {1: {"id": 1, "name": "ada"}, 2: {"id": 2, "name": "bob"}, 3: None}
    assert [order["user"] for order, _ in results] == [1, 2, 3] * 3
    assert all(row == names[order["user"]] for order, row in results)


def test_rows_are_kept_for_a_while_and_only_so_many(server, users):
    async def ask():
        table, clock = table_of(server, users)
        first = await table.find([1, 9])
        server.query(f"update {users} set name = 'eve' where id = 1")
        server.query(f"insert into {users} values (9, 'zoe')")
        kept = await table.find([1, 9])
        clock.advance(1_001)
        later = await table.find([9, 1])
        await table.find([2])  # The third key: the oldest one is forgotten.
        server.query(f"update {users} set name = 'new'")
        last = await table.find([1, 9])
        await table.close()
        names = [{k: row and row["name"] for k, row in each.items()}
                 for each in (first, kept, later, last)]  # fmt: skip
        assert names == [{1: "ada", 9: None}, {1: "ada", 9: None}, {9: "zoe", 1: "eve"},
                         {1: "eve", 9: "new"}]  # fmt: skip

    asyncio.run(ask())


def test_rows_are_found_by_several_columns(server, users):
    async def ask():
        table, _ = table_of(server, users, ["name", "id"], columns=["city"], cache_rows=9)
        found = await table.find([("ada", 1), ("ada", 2), ("bob", 2), ("ada", 1)])
        await table.close()
        ada, bob = ({"name": "ada", "id": 1, "city": "London"},
                    {"name": "bob", "id": 2, "city": None})  # fmt: skip
        assert found == {("ada", 1): ada, ("ada", 2): None, ("bob", 2): bob}

    asyncio.run(ask())


def test_a_server_that_was_away_is_asked_again(server, users):
    async def ask():
        table, _ = table_of(server, users, cache_ms=0)
        assert (await table.find([1]))[1]["name"] == "ada"
        server.query(END_SESSIONS)
        with pytest.raises(psycopg.OperationalError):
            await table.find([1])
        assert (await table.find([1]))[1]["city"] == "London"
        await table.close()

    asyncio.run(ask())


def test_retries_of_the_operator_ask_a_session_that_was_ended_again(server, users, monkeypatch):
    monkeypatch.setenv("PASSWORD", "is not asked for")

    def job(env):
        lookup = PostgresLookup(
            server.url, users, key="id", key_of=int, password=Secret.env("PASSWORD")
        )
        found = (
            env.add_source(script_source())
            .uid("in")
            .async_io_batches(
                lookup,
                max_size=1,
                timeout=timedelta(seconds=60),
                retry=retry(50, backoff=timedelta(milliseconds=100)),
            )
        )
        found.uid("found").collect("out")

    with Harness(job) as harness:
        harness.push([1])
        harness.run_epoch()
        server.query(END_SESSIONS)
        harness.push([2])
        harness.end()
        harness.run()
        assert [row["name"] for _, row in harness.results("out")] == ["ada", "bob"]


@pytest.mark.parametrize(
    ("kind", "strange"),
    [("timestamptz", "infinity"), ("date", "-infinity"), ("timestamp[]", "{infinity}")],
)
def test_a_time_that_python_does_not_have_is_told_with_row_and_column(server, users, kind, strange):
    server.query(f"alter table {users} add until {kind}")
    server.query(f"update {users} set until = '{strange}' where id = 2")

    def job(env):
        lookup = PostgresLookup(server.url, users, key="id", key_of=int)
        found = env.add_source(script_source()).async_io_batches(
            lookup, max_size=1, timeout=timedelta(seconds=60)
        )
        found.on_error("dead_letter").uid("found").collect("out")

    with Harness(job) as harness:
        harness.push([1, 2])
        harness.end()
        harness.run()
        assert [row["id"] for _, row in harness.results("out")] == [1]
        [letter] = harness.dead_letters
    problem = f"row 2 of table {users}: column 'until' contains a date or time"
    assert letter["message"].startswith(problem)


@pytest.mark.parametrize("wrong", [{"cache_rows": 0}, {"cache_ms": -1}])
def test_a_cache_that_cannot_be_is_refused(wrong):
    with pytest.raises(StreamDefinitionError, match="expected"):
        PostgresLookup("postgresql://h/d", "t", key="id", key_of=int, **wrong)
