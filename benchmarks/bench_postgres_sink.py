"""What it costs that upserts into PostgreSQL are exactly once.

The sink prepares, stages, seals and publishes epochs. The bare loop sends the same records with
``COPY`` row by row into a temporary table, and from there into the table by key, one transaction
for as many records: no epochs, no staging, no restart. Both start with an empty table; the second
half of the records has the keys of the first.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from functools import partial
from typing import NamedTuple

import psycopg
from measuring import ROOT, Report, Table, Target, WrongOutputError, arguments, in_turns
from workloads import scratch

sys.path.append(str(ROOT))  # The server is that of the tests.
from bicycle_runtime.contract import ConnectorSpec, WriterTask
from bicycle_runtime.testing.connectors.running import SinkRun, services_in
from bicycle_sdk.clock import SystemClock
from tests.postgres.postgres_server import PostgresServer

BATCH = 4_096
EPOCH = 10 * BATCH


class Account(NamedTuple):
    """A record."""

    id: int
    user_name: str
    cents: int
    rate: float


def main() -> None:
    """Measure and tell."""
    options = arguments(__doc__, repeats=5, add=_add_options)
    count = 20_000 if options.quick else options.records
    records = [Account(n % (count // 2), f"user-{n}", n, n % 100 / 8) for n in range(count)]
    server = PostgresServer()
    try:
        contenders = {
            "sink": partial(_sink, server, records),
            "bare COPY loop": partial(_bare, server, records),
        }
        found = in_turns(contenders, rounds=options.repeats)
    finally:
        server.remove()
    rows = [
        [name, f"{statistics.median(costs):.2f}", f"{min(costs):.2f}"]
        for name, costs in found.items()
    ]
    ours, bare = found["sink"], found["bare COPY loop"]
    report = Report(
        name="postgres-sink",
        claim="Upserts into PostgreSQL have 0.7 of the throughput of a bare loop with COPY.",
        payload=f"{count:,} records of four fields, each key twice, in transactions of {EPOCH:,}",
        method=f"{options.repeats} rounds in turns; one writer, one connection, time from records "
        "to the last commit; a server on this machine without fsync; rows are compared",
        tables=[Table(title="One record", columns=["us per record", "median", "best"], rows=rows)],
        targets=[
            Target(
                name="the sink's throughput ÷ the loop's",
                value=statistics.median(b / a for a, b in zip(ours, bare, strict=True)),
                best=min(bare) / min(ours),
                low=0.7,
                unit="x",
            )
        ],
    )
    report.tell(options)


def _sink(server: PostgresServer, records: list[Account]) -> float:
    _begin(server)
    with scratch("postgres-sink") as place:
        spec = ConnectorSpec(
            vertex_id="out",
            connector_type="postgres",
            properties={
                "url": server.url, "table": "accounts", "mode": "upsert", "keys": ["id"],
            },
            record_type=Account,
        )  # fmt: skip
        run = SinkRun(spec, services_in(place, clock=SystemClock())).start()
        gc.collect()
        began = time.perf_counter()
        for number, start in enumerate(range(0, len(records), EPOCH)):
            prefix = f"staged/{number}/0"
            task = WriterTask(storage=run.services.storage, prefix=prefix, epoch=number, subtask=0)
            writer = run.sink.writer().open(task)
            for first in range(start, min(start + EPOCH, len(records)), BATCH):
                batch = records[first : min(first + BATCH, start + EPOCH)]
                writer.write(writer.prepare(batch, None))
            state = run.sink.prepare(number, writer.finish(), is_last=False)
            run.sink.publish(number, state)
        spent = time.perf_counter() - began
        run.stop()
    _check(server, records)
    return spent * 1e6 / len(records)


def _bare(server: PostgresServer, records: list[Account]) -> float:
    _begin(server)
    with psycopg.connect(server.url, autocommit=True) as connection:
        gc.collect()
        began = time.perf_counter()
        for start in range(0, len(records), EPOCH):
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute(
                    "create temporary table stage (like accounts, n serial) on commit drop"
                )
                with cursor.copy("copy stage (id, user_name, cents, rate) from stdin") as copy:
                    for record in records[start : start + EPOCH]:
                        copy.write_row(record)
                cursor.execute(
                    "insert into accounts select distinct on (id) id, user_name, cents, rate "
                    "from stage order by id, n desc on conflict (id) do update set "
                    "user_name = excluded.user_name, cents = excluded.cents, rate = excluded.rate"
                )
        spent = time.perf_counter() - began
    _check(server, records)
    return spent * 1e6 / len(records)


def _begin(server: PostgresServer) -> None:
    server.query("drop table if exists accounts")
    server.query(
        "create table accounts (id bigint primary key, user_name text, cents bigint, "
        "rate double precision)"
    )


def _check(server: PostgresServer, records: list[Account]) -> None:
    last = {record.id: tuple(record) for record in records}
    found = server.query("select * from accounts order by id")
    if found != sorted(last.values()):
        raise WrongOutputError(f"{len(found):,} rows, expected {len(last):,}, or others")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=400_000, help="records in a round")


if __name__ == "__main__":
    main()
