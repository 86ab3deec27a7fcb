"""Flink SQL: queries of Nexmark over JSON lines, to files, exactly once, all in Java.

``python flink_sql.py SETTINGS``: each query runs twice in one Java process, and the second run
counts. The last line of the output has its seconds and its processor time.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from processor import processor_s
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment


def table_of(settings: dict[str, Any]) -> TableEnvironment:
    words = {
        "parallelism.default": settings["parallelism"],
        "pipeline.object-reuse": settings["reuse"],
        "state.backend.type": settings["state"],
        "execution.checkpointing.interval": "1000 ms",
        "execution.checkpointing.dir": Path(settings["checkpoints"]).as_uri(),
        "execution.checkpointing.incremental": "true",
        "taskmanager.memory.managed.size": "1g",
        "table.local-time-zone": "UTC",
        "restart-strategy.type": "none",  # An error ends the benchmark.
    }
    chosen = Configuration()
    for name, value in words.items():
        chosen.set_string(name, str(value).lower() if isinstance(value, bool) else str(value))
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(chosen).build()
    )


def main() -> None:
    settings = json.loads(sys.argv[1])
    table = table_of(settings)
    for statement in settings["tables"]:
        table.execute_sql(statement)
    for turn in settings["turns"]:
        target = settings["target"].replace("answer", f"{turn}_answer", 1)
        table.execute_sql(target.replace("OUTPUT", f"{settings['output']}/{turn}"))
        began, spent = time.monotonic(), processor_s()
        table.execute_sql(f"INSERT INTO {turn}_answer {settings['query']}").wait()
        lap = {"seconds": time.monotonic() - began, "processor_s": processor_s() - spent}
    print(json.dumps(lap))


if __name__ == "__main__":
    main()
