"""What all PyFlink programs here share: settings, files in and out, and when the work was done."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Encoder, WatermarkStrategy
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat

__all__ = ["FirstRecord", "lines_of", "setup", "started", "write"]


class FirstRecord:
    """Notes when a Python process saw its first record.

    Args:
        folder: Gets a file for each process.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._is_noted = False

    def note(self) -> None:
        """Call it for every record; the first call counts."""
        if not self._is_noted:
            self._is_noted = True
            name = f"{os.getpid()}-{uuid.uuid4().hex}"
            (Path(self._folder) / name).write_text(str(time.monotonic()))


def setup() -> tuple[StreamExecutionEnvironment, str, str, dict[str, Any]]:
    """Return the environment, the folders of the input and the output, and the settings."""
    source, output, told = sys.argv[1:]
    settings = json.loads(told)
    words = {
        "parallelism.default": settings["parallelism"],
        "python.execution-mode": settings["mode"],
        "python.fn-execution.bundle.size": settings["bundle"],
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.state.cache-size": 100_000,
        "python.map-state.read-cache-size": 100_000,
        "python.map-state.write-cache-size": 100_000,
        "pipeline.object-reuse": "true",
        "state.backend.type": settings["state"],
        "execution.checkpointing.interval": f"{settings['checkpoint_ms']} ms",
        "execution.checkpointing.dir": Path(settings["checkpoints"]).as_uri(),
        "execution.checkpointing.incremental": "true",
        "taskmanager.memory.managed.size": "1g",
        "restart-strategy.type": "none",  # An error ends the benchmark.
    }
    chosen = Configuration()
    for name, value in words.items():
        chosen.set_string(name, str(value))
    return StreamExecutionEnvironment.get_execution_environment(chosen), source, output, settings


def lines_of(env: StreamExecutionEnvironment, source: str) -> DataStream:
    """Return the lines of the files of a folder; each file is read by one subtask."""
    lines = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), Path(source).as_uri()
    ).build()
    return env.from_source(lines, WatermarkStrategy.no_watermarks(), "lines")


def write(texts: DataStream, output: str) -> None:
    """Write texts as lines, exactly once: files become visible with checkpoints."""
    sink = FileSink.for_row_format(Path(output).as_uri(), Encoder.simple_string_encoder()).build()
    texts.sink_to(sink)


def started(env: StreamExecutionEnvironment) -> None:
    """Run the job to its end and say when that was."""
    env.execute("benchmark")
    print(json.dumps({"ended": time.monotonic()}))
