"""What it costs that tables of lakes and requests to a server are exactly once.

Each sink prepares, stages, seals and publishes epochs. Beside it stands its library alone, with the
same records: columns made as fast as Python and pyarrow can, one commit for as many records, no
epochs, no staging, no restart. Rows are read back and compared.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
import msgspec
import pyarrow
from deltalake import DeltaTable, write_deltalake
from measuring import ROOT, Report, Table, Target, WrongOutputError, arguments, in_turns
from pyiceberg.catalog.sql import SqlCatalog
from workloads import scratch

sys.path.append(str(ROOT))  # The server is that of the tests.
from bicycle_runtime.contract import ConnectorSpec, WriterTask
from bicycle_runtime.testing.connectors.running import SinkRun, services_in
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.connectors import SinkDescriptor
from bicycle_sdk.sinks import IcebergCatalog, Rolling, delta_sink, http_sink, iceberg_sink
from tests.unit.connectors.http_server import Server

BATCH = 4_096
EPOCH = 10 * BATCH
REQUEST = 100


class Account(NamedTuple):
    """A record."""

    id: int
    user_name: str
    cents: int
    rate: float


SCHEMA = pyarrow.schema(
    [("id", "int64"), ("user_name", "string"), ("cents", "int64"), ("rate", "float64")]
)
Records = list[Account]


def main() -> None:
    """Measure and tell."""
    options = arguments(__doc__, repeats=5, add=_add_options)
    count = 2 * EPOCH if options.quick else options.records
    records = [Account(n, f"user-{n}", n, n % 100 / 8) for n in range(count)]
    twice = [account._replace(id=account.id % (count // 2)) for account in records]
    pairs: dict[str, tuple[Callable[[], float], Callable[[], float], float]] = {
        "Delta, append": (
            partial(_delta, records, ()), partial(_delta_alone, records, is_merge=False), 0.4,
        ),
        "Delta, upsert": (
            partial(_delta, twice, ("id",)), partial(_delta_alone, twice, is_merge=True), 0.4,
        ),
        "Iceberg, append": (
            partial(_iceberg, records, ()), partial(_iceberg_alone, records, is_upsert=False), 0.4,
        ),
        "Iceberg, upsert": (
            partial(_iceberg, twice, ("id",)), partial(_iceberg_alone, twice, is_upsert=True), 1.0,
        ),
        "HTTP": (partial(_http, records), partial(_http_alone, records), 0.7),
    }  # fmt: skip
    contenders = {}
    for name, (ours, alone, _) in pairs.items():
        contenders |= {name: ours, f"{name}, its library alone": alone}
    found = in_turns(contenders, rounds=options.repeats)
    report = Report(
        name="sinks",
        claim="The sinks of Delta and Iceberg, which write rows twice, have 0.4 of the throughput "
        "of their libraries. Upserts of Iceberg exceed the throughput of the library, and "
        "HTTP has 0.7 of it.",
        payload=f"{count:,} records of four fields; for upserts each key twice, in commits of "
        f"{EPOCH:,}; requests of {REQUEST} records to a server in the same process",
        method=f"{options.repeats} rounds in turns; one writer; processor time of all "
        "threads, from records to visible output; rows are read back",
        tables=[
            Table(
                title="One record",
                columns=["us per record", "median", "best"],
                rows=[
                    [name, f"{statistics.median(costs):.2f}", f"{min(costs):.2f}"]
                    for name, costs in found.items()
                ],
            )
        ],
        targets=[
            _target(name, found[name], found[f"{name}, its library alone"], low)
            for name, (_, _, low) in pairs.items()
        ],
    )
    report.tell(options)


def _target(name: str, ours: list[float], alone: list[float], low: float) -> Target:
    return Target(
        name=f"{name}: the sink's throughput ÷ the library's",
        value=statistics.median(b / a for a, b in zip(ours, alone, strict=True)),
        best=min(alone) / min(ours),
        low=low,
        unit="x",
    )


def _run(place: Path, sink: SinkDescriptor[Account], records: Records) -> float:
    """Write epochs, batch by batch, as operators do; return the time of a record."""
    spec = ConnectorSpec(
        vertex_id="out",
        connector_type=sink.connector_type,
        properties=sink.properties,
        record_type=Account,
    )
    run = SinkRun(spec, services_in(place, clock=SystemClock())).start()
    gc.collect()
    began = time.process_time()
    for number, start in enumerate(range(0, len(records), EPOCH)):
        prefix = f"staged/{number}/0"
        task = WriterTask(storage=run.services.storage, prefix=prefix, epoch=number, subtask=0)
        writer = run.sink.writer().open(task)
        for first in range(start, min(start + EPOCH, len(records)), BATCH):
            batch = records[first : min(first + BATCH, start + EPOCH)]
            writer.write(writer.prepare(batch, None))
        is_last = start + EPOCH >= len(records)
        run.sink.publish(number, run.sink.prepare(number, writer.finish(), is_last=is_last))
    spent = time.process_time() - began
    run.stop()
    return spent * 1e6 / len(records)


def _alone(records: Records, write: Callable[[pyarrow.Table], object], step: int) -> float:
    """Write columns that are made batch by batch, so many rows at a time."""
    gc.collect()
    began = time.process_time()
    for start in range(0, len(records), step):
        end = min(start + step, len(records))
        batches = [_batch(records[n : min(n + BATCH, end)]) for n in range(start, end, BATCH)]
        write(pyarrow.Table.from_batches(batches))
    return (time.process_time() - began) * 1e6 / len(records)


def _batch(records: Records) -> pyarrow.RecordBatch:
    columns = zip(*records, strict=True)
    arrays = [pyarrow.array(c, kind) for c, kind in zip(columns, SCHEMA.types, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _rolling(keys: tuple[str, ...]) -> Rolling:
    """Commit each epoch of an upsert, and all that is appended together."""
    return Rolling(rows=EPOCH if keys else 1 << 30, size_bytes=1 << 40, age_ms=3_600_000)


def _delta(records: Records, keys: tuple[str, ...]) -> float:
    with scratch("delta-sink") as place:
        sink = delta_sink(place / "table", keys=keys, rolling=_rolling(keys))
        cost = _run(place, sink, records)
        _check(DeltaTable(place / "table").to_pyarrow_table(), records)
        return cost


def _delta_alone(records: Records, *, is_merge: bool) -> float:
    with scratch("delta-alone") as place:
        path = str(place / "table")
        DeltaTable.create(path, SCHEMA)

        def merge(rows: pyarrow.Table) -> None:
            found = DeltaTable(path).merge(
                rows, predicate="t.id = s.id", source_alias="s", target_alias="t"
            )
            found.when_matched_update_all().when_not_matched_insert_all().execute()

        def append(rows: pyarrow.Table) -> None:
            write_deltalake(path, rows, mode="append")

        cost = _alone(records, merge if is_merge else append, EPOCH if is_merge else len(records))
        _check(DeltaTable(path).to_pyarrow_table(), records)
        return cost


def _iceberg(records: Records, keys: tuple[str, ...]) -> float:
    with scratch("iceberg-sink") as place:
        catalog = IcebergCatalog(address=f"sqlite:///{place}/lake.db", warehouse=f"file://{place}")
        sink = iceberg_sink(catalog, "shop.accounts", keys=keys, rolling=_rolling(keys))
        cost = _run(place, sink, records)
        _check_catalog(place, records)
        return cost


def _iceberg_alone(records: Records, *, is_upsert: bool) -> float:
    with scratch("iceberg-alone") as place:
        catalog = SqlCatalog(
            "bicycle", uri=f"sqlite:///{place}/lake.db", warehouse=f"file://{place}"
        )
        catalog.create_namespace("shop")
        table = catalog.create_table("shop.accounts", SCHEMA)
        if is_upsert:
            cost = _alone(records, partial(table.upsert, join_cols=["id"]), EPOCH)
        else:
            cost = _alone(records, table.append, len(records))
        catalog.close()
        _check_catalog(place, records)
        return cost


def _http(records: Records) -> float:
    server = Server()
    with scratch("http-sink") as place:
        sink = http_sink(server.url, batch_records=REQUEST, idempotent=True)
        cost = _run(place, sink, records)
    return _served(server, records, cost)


def _http_alone(records: Records) -> float:
    server = Server()
    with httpx.Client() as client:
        gc.collect()
        began = time.process_time()
        for number, start in enumerate(range(0, len(records), REQUEST)):
            body = msgspec.json.encode(records[start : start + REQUEST])
            client.post(server.url, content=body, headers={"Idempotency-Key": str(number)})
        cost = (time.process_time() - began) * 1e6 / len(records)
    return _served(server, records, cost)


def _served(server: Server, records: Records, cost: float) -> float:
    server.stop()
    if [tuple(row) for row in server.records] != [tuple(account) for account in records]:
        raise WrongOutputError(f"{len(server.records):,} records, or others")
    return cost


def _check_catalog(place: Path, records: Records) -> None:
    catalog = SqlCatalog("bicycle", uri=f"sqlite:///{place}/lake.db")
    found = catalog.load_table("shop.accounts").scan().to_arrow()
    catalog.close()
    _check(found, records)


def _check(found: pyarrow.Table, records: Records) -> None:
    last = {account.id: account for account in records}
    if sorted(_rows(found)) != sorted(tuple(account) for account in last.values()):
        raise WrongOutputError(f"{found.num_rows:,} rows, expected {len(last):,}, or others")


def _rows(found: pyarrow.Table) -> Iterator[tuple[object, ...]]:
    return zip(*(found.column(name).to_pylist() for name in SCHEMA.names), strict=True)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=200_000, help="records in a round")


if __name__ == "__main__":
    main()
