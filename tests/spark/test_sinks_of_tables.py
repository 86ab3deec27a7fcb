"""One job on Spark from a table to all sinks of tables; workers and driver are killed in turn."""

from __future__ import annotations

import signal

import polars
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from tests.plugin_zoo.zoo import install, whole
from tests.postgres.postgres_server import PostgresServer
from tests.spark.jobsite import JobSite

pytestmark = [pytest.mark.spark, pytest.mark.crash]

COUNT, USERS = 2_000, 50
TABLES = whole(
    "tables",
    """
    from dataclasses import dataclass

    from bicycle_sdk import StreamEnvironment, bicycle_plugin
    from bicycle_sdk.sources import postgres_source
    from bicycle_sdk.sinks import (
        IcebergCatalog, Rolling, by_field, delta_sink, iceberg_sink, parquet_sink, postgres_sink,
    )


    @dataclass(frozen=True)
    class Payment:
        id: int
        user: str
        cents: int


    @dataclass(frozen=True, kw_only=True)
    class Params:
        input: str
        output: str
        database: str


    def same(payment: Payment) -> Payment:
        return payment


    @bicycle_plugin(name="tables", version="1.0")
    def job(env: StreamEnvironment, params: Params) -> None:
        rows = postgres_source(params.database, "incoming", "id", type=Payment)
        payments = env.add_source(rows).uid("incoming").map(same).uid("payments")
        soon, out = Rolling(rows=300), params.output
        parquet = parquet_sink(f"{out}/parquet", folders=by_field("user"), roll_rows=20)
        payments.sink_to(parquet).uid("parquet")
        payments.sink_to(delta_sink(f"{out}/delta", rolling=soon)).uid("delta")
        catalog = IcebergCatalog(address=f"sqlite:///{out}/lake.db", warehouse=f"file://{out}/lake")
        last = iceberg_sink(catalog, "shop.last", keys=["user"], rolling=soon)
        keyed = payments.key_by(lambda payment: payment.user).map(same)
        keyed.sink_to(last).uid("iceberg")
        table = postgres_sink(params.database, "payments", keys=["id"], create_table=True)
        payments.sink_to(table).uid("postgres")
    """,
)
KILLS = ("transaction_marked@5=kill", "after_seal@2=kill", "transaction_committed@8=kill")


@pytest.fixture
def server():
    server = PostgresServer()
    yield server
    server.remove()


def test_a_job_whose_driver_and_workers_are_killed_writes_all_tables_exactly(
    site: JobSite, server: PostgresServer
):
    site.plugin = "tables"
    site.params["database"] = server.url
    install(site.plugins, TABLES)
    site.output.mkdir()
    server.query('create table incoming (id bigint primary key, "user" text, cents int)')
    server.query(
        "insert into incoming select n, 'user ' || n %% %s, n * 7 from generate_series(0, %s) n",
        USERS,
        COUNT - 1,
    )
    words = ("--max-records-per-epoch", "250", "--parallelism", "2")
    for kill in KILLS:
        life = site.run(*words, faults=f"operator@2=kill,{kill}")
        assert life.process.returncode == -signal.SIGKILL, (life.stdout, life.stderr)
        life.wait_for_fault("operator@2=kill")  # A worker died as well.
    site.finish(*words)

    expected = [(number, f"user {number % USERS}", number * 7) for number in range(COUNT)]
    frame = polars.read_parquet(f"{site.output}/parquet/**/*.parquet", hive_partitioning=True)
    assert sorted(frame.select("id", "user", "cents").rows()) == expected
    frame = polars.from_arrow(DeltaTable(site.output / "delta").to_pyarrow_table())
    assert sorted(frame.select("id", "user", "cents").rows()) == expected
    assert server.query('select id, "user", cents from payments order by id') == expected
    catalog = SqlCatalog("bicycle", uri=f"sqlite:///{site.output}/lake.db")
    last = catalog.load_table("shop.last").scan().to_arrow()
    catalog.close()
    assert sorted(last["user"].to_pylist()) == sorted({user for _, user, _ in expected})
    assert all(row["cents"] == row["id"] * 7 for row in last.to_pylist())
