"""DuckDB on one thread: queries of Nexmark over JSON lines, to a file, all rows at once.

``python duckdb_sql.py SETTINGS``: the query runs twice, and the second run counts. The last line of
the output has its seconds and its processor time.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import duckdb


def main() -> None:
    settings = json.loads(sys.argv[1])
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    for name, (columns, path) in settings["tables"].items():
        connection.execute(
            f"CREATE VIEW {name} AS SELECT * FROM read_json('{path}/*.jsonl', "
            f"format = 'newline_delimited', columns = {columns})"
        )
    for turn in settings["turns"]:
        place = Path(settings["output"]) / turn
        place.mkdir(parents=True)
        began, spent = time.monotonic(), time.process_time()
        query = settings["query"].rstrip().rstrip(";")
        connection.execute(f"COPY ({query}) TO '{place}/answer.json' (FORMAT json)")
        lap = {"seconds": time.monotonic() - began, "processor_s": time.process_time() - spent}
    print(json.dumps(lap))


if __name__ == "__main__":
    main()
