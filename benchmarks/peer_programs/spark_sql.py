"""Spark SQL in Structured Streaming: queries of Nexmark over JSON lines, to files, exactly once.

``python spark_sql.py SETTINGS``: each query runs twice in one Java process, and the second run
counts. The last line of the output has its seconds and its processor time.
"""

from __future__ import annotations

import json
import sys
import time

from processor import processor_s
from pyspark.sql import SparkSession

_WORDS = {
    "spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}  # fmt: skip


def main() -> None:
    settings = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[2]")
    for name, value in _WORDS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for name, (columns, path) in settings["tables"].items():
        rows = spark.readStream.schema(columns)
        if settings["files_in_batch"]:
            rows = rows.option("maxFilesPerTrigger", settings["files_in_batch"])
        timed = rows.json(path).withWatermark("dateTime", "4 seconds")
        timed.createOrReplaceTempView(name)
    for turn in settings["turns"]:
        began, spent = time.monotonic(), processor_s()
        query = (
            spark.sql(settings["query"]).writeStream.outputMode("append").format("json")
            .option("path", f"{settings['output']}/{turn}")
            .option("checkpointLocation", f"{settings['checkpoints']}/{turn}")
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        lap = {"seconds": time.monotonic() - began, "processor_s": processor_s() - spent}
    print(json.dumps(lap))
    spark.stop()


if __name__ == "__main__":
    main()
