"""Tables in S3: Parquet files and a Delta table of a job that is killed, read back from there."""

from __future__ import annotations

import io

import pytest
from deltalake import DeltaTable
from pyarrow import parquet

from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.testing import Harness
from bicycle_sdk.sinks import Rolling, by_field, delta_sink, parquet_sink

ROWS = [{"id": number, "city": f"city {number % 3}"} for number in range(60)]
COLUMNS = {"id": int, "city": str}
POINTS = ("after_seal", "half_published", "after_publish")


def run(sink, point):
    def job(env):
        env.from_collection(ROWS).sink_to(sink).uid("out")

    with Harness(job, real_sinks=["out"], parallelism=2) as harness:
        harness.fail_at(point)
        harness.run()
        assert harness.crash_count == 1


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("folders", [None, by_field("city")])
def test_parquet_files_of_a_job_that_is_killed_are_whole(bucket, point, folders):
    url = f"s3://{bucket}/lake"
    run(parquet_sink(url, columns=COLUMNS, folders=folders, roll_rows=7), point)

    storage = open_storage(url)
    names = [name for name in storage.list("") if name.endswith(".parquet")]
    assert names
    rows = []
    for name in names:
        with storage.open_read(name) as stream:
            found = parquet.ParquetFile(io.BytesIO(stream.read())).read().to_pylist()
        city = name.partition("/")[0].removeprefix("city=").replace("%20", " ")
        rows += [{"id": row["id"], "city": row.get("city", city)} for row in found]
    assert sorted(rows, key=lambda row: row["id"]) == ROWS


@pytest.mark.parametrize("point", [*POINTS, "transaction_marked"])
def test_a_delta_table_of_a_job_that_is_killed_has_each_row_once(bucket, point, monkeypatch):
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    url = f"s3://{bucket}/table"
    run(delta_sink(url, columns=COLUMNS, rolling=Rolling(rows=20)), point)

    rows = DeltaTable(url).to_pyarrow_table().to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == ROWS
