"""Servers that come back as a read-only replica, or not for a long time."""

import threading

import psycopg
import pytest

from bicycle_runtime.connectors.errors import POSTGRES_UNREACHABLE
from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.testing.connectors.running import SourceRun, services_in
from bicycle_sdk.clock import SystemClock
from tests.raising import raises
from tests.sink_runs import SinkRuns

BUDGET = Budget(record_count=10_000, byte_count=1 << 30, parallelism=1)


@pytest.fixture
def sink(server, table, tmp_path):
    runs = SinkRuns("postgres", tmp_path, url=server.url, table=table)
    yield lambda: runs.start(None, columns={"id": "int"}, create_table=True)
    runs.stop()


@pytest.fixture
def source(server, table, tmp_path):
    runs = []

    def start(**properties):
        spec = ConnectorSpec(
            vertex_id="in",
            connector_type="postgres",
            properties={"url": server.url, "table": table, "column": "id", **properties},
        )
        runs.append(SourceRun(spec, services_in(tmp_path, clock=SystemClock())).start())
        return runs[-1]

    yield start
    server.start()
    for run in runs:
        run.stop()


def promote(server):
    server.query("select pg_promote()")


def test_a_sink_waits_for_the_primary_after_a_failover(server, table, sink):
    run = sink()
    run.run_epoch([[{"id": 1}]])
    run.seal([[{"id": 2}]])
    server.fail_over()
    timer = threading.Timer(1.0, promote, [server])
    timer.start()
    run.publish()
    timer.join()

    assert server.query(f"select id from {table} order by id") == [(1,), (2,)]


def test_a_sink_waits_while_the_primary_takes_no_writes(server, table, sink):
    run = sink()
    server.query("alter system set default_transaction_read_only = on")
    server.query("select pg_reload_conf()")
    run.seal([[{"id": 2}]])

    def allow():
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("set default_transaction_read_only = off")
            connection.execute("alter system reset default_transaction_read_only")
            connection.execute("select pg_reload_conf()")

    timer = threading.Timer(1.0, allow)
    timer.start()
    run.publish()
    timer.join()

    assert server.query(f"select id from {table}") == [(2,)]


def test_a_source_reads_nothing_from_a_replica(server, table, source):
    server.query(f"create table {table} (id serial primary key)")
    server.query(f"insert into {table} default values")
    run = source(follow=True)
    run.source.poll()
    run.seal(run.read(BUDGET))
    server.fail_over()
    assert [run.source.poll().is_reachable for _ in range(3)] == [False] * 3
    with raises(POSTGRES_UNREACHABLE):
        source(connect_timeout_ms=1_000)
    promote(server)
    server.query(f"insert into {table} values (100)")

    assert run.source.poll().is_reachable
    assert [row["id"] for row in run.read(BUDGET).values] == [100]


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_task_waits_for_a_server_that_is_away_longer_than_a_start(
    server, table, source, is_begun
):
    server.query(f"create table {table} (id serial primary key)")
    server.query(f"insert into {table} select from generate_series(1, 3000)")
    run = source(connect_timeout_ms=1_000)
    run.source.poll()
    [part] = run.source.plan(BUDGET)
    batches = run.reader.read(part)
    found = list(next(batches).values) if is_begun else []
    server.kill()
    timer = threading.Timer(3.0, server.start)
    timer.start()
    try:
        for batch in batches:
            found += batch.values
    finally:
        timer.join()

    assert [row["id"] for row in found] == list(range(1, 3001))
