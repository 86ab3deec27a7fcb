"""Spark's own windows of 10 s by SQL, all in Java: count, sum and average, written as JSON lines.

``python spark_windows.py WARM_UP INPUT OUTPUT STATE QUERY``: one micro-batch for each input file,
in the order of their times. The same query has run over WARM_UP before, in the same Java process.
QUERY has the columns in SQL, as JSON, and says where state lies.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import avg, count, lit, timestamp_millis, unix_millis, window
from pyspark.sql.functions import sum as sum_of
from pyspark.sql.streaming import StreamingQuery

_SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}


_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
Query = dict[str, str]


def windows(spark: SparkSession, source: str, query: Query) -> DataFrame:
    lines = spark.readStream.schema(f"sensor string, at long, value {query['value_type']}")
    readings = lines.option("maxFilesPerTrigger", 1).json(source)
    chosen = readings.where(query["keeps"])
    readings = chosen.selectExpr(f"{query['key']} AS sensor", "at", f"{query['value']} AS value")
    timed = readings.withColumn("time", timestamp_millis(readings.at))
    grouped = timed.withWatermark("time", "5 seconds").groupBy(
        window("time", "10 seconds"), "sensor"
    )
    found = grouped.agg(
        count(lit(1)).alias("count"), sum_of("value").alias("total"), avg("value").alias("average")
    )
    return found.select(
        found.sensor.alias("key"),
        unix_millis(found.window.start).alias("start"),
        unix_millis(found.window.end).alias("end"),
        "count",
        "total",
        "average",
    )


def run(
    spark: SparkSession, source: str, columns: Query, *, output: Path, state: Path
) -> StreamingQuery:  # fmt: skip
    query = (
        windows(spark, source, columns).writeStream.outputMode("append").format("json")
        .option("path", str(output)).option("checkpointLocation", str(state))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return query


def main() -> None:
    warm_up, source, output, state, told = sys.argv[1:]
    columns = json.loads(told)
    builder = SparkSession.builder.master("local[2]")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    if columns["has_rocksdb"]:
        builder = builder.config("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    began = time.monotonic()
    earlier = Path(state) / "warm-up"
    run(spark, warm_up, columns, output=Path(state) / "warm-up-output", state=earlier)
    query = run(spark, source, columns, output=Path(output), state=Path(state) / "measured")
    # Those without input count, too: the last one writes the windows that are complete by then.
    batches = [
        (progress.numInputRows, progress.durationMs["triggerExecution"] / 1000)
        for progress in query.recentProgress
    ]
    print(json.dumps({"first_batch_began": began, "batches": batches}))
    spark.stop()


if __name__ == "__main__":
    main()
