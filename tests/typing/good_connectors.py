"""Sinks and sources whose options fit their types."""

from pathlib import Path
from typing import Any

from bicycle_sdk import Secret, StreamEnvironment
from bicycle_sdk.connectors import SinkDescriptor
from bicycle_sdk.sinks import (
    DeltaSinkOptions,
    by_date,
    delta_sink,
    iceberg_sink,
    parquet_sink,
)

env = StreamEnvironment()
words = env.from_collection(["to", "be"])

delta: SinkDescriptor[Any] = delta_sink(Path("out"), keys=["id"], columns={"id": int, "at": "str"})
words.sink_to(delta)
words.sink_to(DeltaSinkOptions("out", roll_ms=5, publish_timeout_ms=9_000))
words.sink_to(parquet_sink("out", partition_by=by_date(), compression="zstd"))
words.sink_to(
    iceberg_sink(
        "sqlite:///lake.db", "a.b", warehouse=Path("lake"), catalog_password=Secret.env("P")
    )
)
