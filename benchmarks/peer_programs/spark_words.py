"""PySpark's own ``transformWithState`` in Python: running count of words, written as JSON lines.

``python spark_words.py INPUT OUTPUT STATE [LATER]``: one micro-batch per input file, RocksDB state,
one row out for each word in. Words are split by Spark itself, outside Python. The files of LATER
join the input behind the end of the query, which is then started again in the same Java process.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import explode, lower, split
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass":
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}  # fmt: skip


class Counter(StatefulProcessor):
    """Counts one word."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(
        self,
        key: tuple,
        rows: Iterator[Row],
        timerValues: object,  # noqa: ARG002  # contract
    ) -> Iterator[Row]:
        count = self._count.get()[0] if self._count.exists() else 0
        for _ in rows:
            count += 1
            yield Row(word=key[0], count=count)
        self._count.update((count,))

    def close(self) -> None:
        pass


def main() -> None:
    source, output, state, *later = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    began = time.monotonic()
    query = count(spark, source, output, state)
    batches = [
        (progress.numInputRows, progress.durationMs["triggerExecution"] / 1000)
        for progress in query.recentProgress
        if progress.numInputRows
    ]
    told = {"first_batch_began": began, "batches": batches}
    if later:
        for file in Path(later[0]).iterdir():
            shutil.copy(file, source)
        again = time.monotonic()
        count(spark, source, output, state)
        told["restart_s"] = time.monotonic() - again
    print(json.dumps(told))
    spark.stop()


def count(spark: SparkSession, source: str, output: str, state: str) -> StreamingQuery:
    """Run the query until all input there is now is counted."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(source)
    words = lines.select(explode(split(lower(lines.value), " ")).alias("word"))
    counted = words.groupBy("word").transformWithState(
        Counter(), "word string, count long", "Append", "none"
    )
    query = (
        counted.writeStream.outputMode("append").format("json").option("path", output)
        .option("checkpointLocation", state).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return query


if __name__ == "__main__":
    main()
