"""Tables that our sinks wrote, read by Spark SQL with the jars of Delta Lake and of Iceberg.

Neither has published a jar for the Spark that jobs run on, so the reader is a Spark of its own: the
newest one that both have jars for, in an environment of its own.
"""

import json
import subprocess
from hashlib import sha256

import pytest

from bicycle_runtime.dev.kafka_jars import Jar, fetchers
from bicycle_runtime.testing import Harness
from bicycle_sdk.sinks import Rolling
from tests.cluster.wheels import install, new_venv
from tests.waiting import PATIENCE_S

SPARK = "pyspark==4.1.0"
JARS = [
    Jar(
        group="io.delta", artifact="delta-spark_4.1_2.13", version="4.1.0", size_bytes=8_349_284,
        sha256="9b05d7a82196ee1f1073733a45a2faae59161e52b86ae918fe6742fad6eaf036",
    ),
    Jar(
        group="io.delta", artifact="delta-storage", version="4.1.0", size_bytes=72_650,
        sha256="6d0520ffcc35b582369f92c23fa24e14a5bb935cf6e31ed7f47c5046ae17cb25",
    ),
    Jar(
        group="org.apache.iceberg", artifact="iceberg-spark-runtime-4.1_2.13", version="1.12.0",
        size_bytes=48_309_426,
        sha256="3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
]  # fmt: skip
READER = """
import json, sys
from pyspark.sql import SparkSession

jars, *tables = sys.argv[1:]
settings = {
    "spark.jars": jars,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.ui.enabled": "false",
}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
found = []
for table in tables:
    kind, _, place = table.partition("=")
    rows = spark.read.format(kind).load(place).orderBy("id").collect()
    found.append([row.asDict() for row in rows])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """What reads tables: called with ``format=place`` of each."""
    folder = tmp_path_factory.mktemp("spark")
    python = new_venv(folder / "venv")
    install(python, SPARK)
    (folder / "jars").mkdir()
    _, fetch = fetchers()[0]
    fetch(JARS, folder / "jars")
    paths = [folder / "jars" / jar.file_name for jar in JARS]
    assert [sha256(path.read_bytes()).hexdigest() for path in paths] == [jar.sha256 for jar in JARS]

    def read(*tables):
        command = [str(python), "-c", READER, ",".join(map(str, paths)), *tables]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        return json.loads(done.stdout.splitlines()[-1])

    return read


def written(lake):
    """Write a table of rows, and one of the last row of each key; killed on the way."""
    rows = [{"id": n, "city": f"city {n % 3}", "share": n / 2} for n in range(30)]
    columns = {"id": int, "city": str, "share": float}

    def job(env):
        stream = env.from_collection(rows)
        every = lake.descriptor(
            "a", columns=columns, partition_by=["city"], rolling=Rolling(rows=7)
        )
        stream.sink_to(every).uid("every")
        last = lake.descriptor("last", columns=columns, keys=["city"], rolling=Rolling(rows=7))
        stream.key_by(lambda row: row["city"]).sink_to(last).uid("last")

    with Harness(job, real_sinks=["every", "last"], parallelism=2) as harness:
        harness.fail_at("transaction_marked")
        harness.run()
        assert harness.crash_count == 1
    return rows


def test_spark_reads_the_rows_and_the_last_ones_of_each_key(spark, delta, iceberg):
    rows = written(delta)
    assert written(iceberg) == rows

    found = spark(
        *(f"delta={delta.folder / name}" for name in ("a", "last")),
        *(f"iceberg={iceberg.table(name).metadata_location}" for name in ("a", "last")),
    )

    assert found == [rows, rows[-3:]] * 2
