"""What it costs that Parquet files are exactly once, and complete, and few.

The sink gets the batches that a window or a map gives it, in epochs, with writer, staging, the seal
and publishing. The plain loop makes the same columns of the same records, as fast as pyarrow and
Python can, and writes one file. What pyarrow takes for a table that is made already stands beside.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pyarrow
from measuring import Report, Table, Target, WrongOutputError, arguments, in_turns
from pyarrow import parquet
from workloads import scratch

from bicycle_runtime.contract import ConnectorSpec, WriterTask
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.vectors import ArrowVector, Vector
from bicycle_runtime.testing.connectors.running import SinkRun, services_in
from bicycle_sdk.clock import SystemClock

BATCH = 4_096
EPOCH_BATCHES = 25
USERS = 10_000
CITIES = ("brest", "dover", "emden", "faro")


class Reading(NamedTuple):
    """A record."""

    number: int
    user: str
    city: str
    celsius: float


SCHEMA = pyarrow.schema(
    [("number", "int64"), ("user", "string"), ("city", "string"), ("celsius", "float64")]
)


def main() -> None:
    """Measure and tell."""
    options = arguments(__doc__, repeats=7, add=_add_options)
    count = 50_000 if options.quick else options.records
    records = [
        Reading(n, f"user-{n % USERS:05}", CITIES[n % 4], n % 400 / 10 - 10) for n in range(count)
    ]
    contenders = {
        "sink, no folders": partial(_sink, records),
        "sink, a folder for each city": partial(_sink, records, by="city"),
        "sink, from columns": partial(_sink, records, makes=_columns_of),
        "sink, from columns, an epoch is a file": partial(
            _sink, records, makes=_columns_of, roll_rows=BATCH * EPOCH_BATCHES
        ),
        "sink, from columns, texts are Python's": partial(
            _sink, records, makes=partial(_columns_of, texts=_python_texts)
        ),
        "pyarrow, from records": partial(_plain, records),
        "pyarrow, from a table": partial(_table_alone, _table_of(records)),
    }
    found = in_turns(contenders, rounds=options.repeats)
    rows = [
        [name, f"{statistics.median(costs):.2f}", f"{min(costs):.2f}"]
        for name, costs in found.items()
    ]
    plain, alone = found["pyarrow, from records"], found["pyarrow, from a table"]
    report = Report(
        name="parquet-sink",
        claim="The Parquet sink has 0.6 of the throughput of pyarrow for the same records.",
        payload=f"{count:,} records of four fields, {USERS:,} users, 4 cities, "
        f"epochs of {BATCH * EPOCH_BATCHES:,}",
        method=f"{options.repeats} rounds in turns; one writer; processor time of all threads, "
        "from records to visible files; snappy; files are read back and summed",
        tables=[Table(title="One record", columns=["us per record", "median", "best"], rows=rows)],
        targets=[
            _target(
                "the sink's throughput ÷ pyarrow from records",
                plain,
                found["sink, no folders"],
                0.6,
            ),
            _target("with folders", plain, found["sink, a folder for each city"], None),
            _target("from columns ÷ pyarrow from a table", alone, found["sink, from columns"], 0.6),
            _target(
                "the same, an epoch is a file",
                alone,
                found["sink, from columns, an epoch is a file"],
                None,
            ),
            _target(
                "the same, texts are Python's",
                alone,
                found["sink, from columns, texts are Python's"],
                None,
            ),
        ],
    )
    report.tell(options)


def _target(name: str, theirs: list[float], ours: list[float], low: float | None) -> Target:
    return Target(
        name=name,
        value=statistics.median(a / b for a, b in zip(theirs, ours, strict=True)),
        best=min(theirs) / min(ours),
        low=low,
        unit="x",
    )


def _sink(
    records: list[Reading],
    by: str = "",
    *,
    makes: Callable[[list[Reading]], Sequence[Any]] = list,
    roll_rows: int | None = None,
) -> float:
    with scratch("parquet-sink") as place:
        more = {"partition_by": "field", "partition_field": by} if by else {}
        if roll_rows is not None:
            more["roll_rows"] = roll_rows
        spec = ConnectorSpec(
            vertex_id="out",
            connector_type="parquet_file",
            properties={"path": str(place / "out"), "roll_ms": "1h", **more},
            record_type=Reading,
        )
        run = SinkRun(spec, services_in(place, clock=SystemClock())).start()
        starts = range(0, len(records), BATCH)
        batches = [makes(records[start : start + BATCH]) for start in starts]
        gc.collect()
        began = time.process_time()
        for first in range(0, len(batches), EPOCH_BATCHES):
            epoch = batches[first : first + EPOCH_BATCHES]
            _epoch(run, epoch, is_last=first + EPOCH_BATCHES >= len(batches))
        spent = time.process_time() - began
        run.stop()
        _check(place / "out", records)
        return spent * 1e6 / len(records)


def _arrow_texts(texts: list[str]) -> Vector:
    """Return texts as Parquet files and expressions in SQL give them."""
    return ArrowVector(pyarrow.array(texts, pyarrow.string()))


def _python_texts(texts: list[str]) -> Vector:
    """Return texts as lines of JSON give them."""
    return Vector(len(texts), texts, kinds=frozenset({str}))


def _columns_of(
    records: list[Reading], *, texts: Callable[[list[str]], Vector] = _arrow_texts
) -> Frame:
    """Return records as chains give them that work on columns."""
    number, user, city, celsius = map(list, zip(*records, strict=True))
    vectors = [
        Vector(len(records), None, numpy.array(number, numpy.int64)),
        texts(user),
        texts(city),
        Vector(len(records), None, numpy.array(celsius)),
    ]
    return Frame.of(RecordForm(Reading, Reading._fields), vectors, len(records))


def _epoch(run: SinkRun, batches: list[Sequence[Any]], *, is_last: bool) -> None:
    """Write an epoch, batch by batch, as an operator does."""
    run.epoch += 1
    prefix = f"staged/{run.epoch}/0"
    task = WriterTask(storage=run.services.storage, prefix=prefix, epoch=run.epoch, subtask=0)
    writer = run.sink.writer().open(task)
    for batch in batches:
        writer.write(writer.prepare(batch, None))
    state = run.sink.prepare(run.epoch, writer.finish(), is_last=is_last)
    run.sink.publish(run.epoch, state)


def _table_of(records: list[Reading]) -> pyarrow.Table:
    columns = [
        pyarrow.array(column, kind)
        for column, kind in zip(zip(*records, strict=True), SCHEMA.types, strict=True)
    ]
    return pyarrow.Table.from_arrays(columns, schema=SCHEMA)


def _plain(records: list[Reading]) -> float:
    return _written(records, lambda: _table_of(records))


def _table_alone(table: pyarrow.Table) -> float:
    return _written(table, lambda: table)


def _written(records, make) -> float:
    with scratch("parquet-plain") as place:
        gc.collect()
        began = time.process_time()
        parquet.write_table(make(), place / "all.parquet")
        spent = time.process_time() - began
        return spent * 1e6 / len(records)


def _check(folder: Path, records: list[Reading]) -> None:
    files = list(folder.glob("**/part-*.parquet"))
    total = sum(
        sum(parquet.ParquetFile(path).read(["number"])["number"].to_pylist()) for path in files
    )
    if total != sum(record.number for record in records):
        raise WrongOutputError(f"{len(files)} files sum to {total:,}")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=1_000_000, help="records in a round")


if __name__ == "__main__":
    main()
