"""A pipeline without code: windows of 10 s, count by sensor, from JSON lines to JSON lines.

``bicycle run --config`` from its first instruction to its last, with Python, Java and Spark to
start, two subtasks, and all that makes it exactly once. Judged are the first start in a home,
which reads all of Spark's classes and leaves an archive of them, and a later one. The pace of a run
is what ten times as many lines take longer. DuckDB computes the same in one pass over
files that never grow, in a process of its own: the limit, which no stream reaches. Bytewax and
Spark's own windows do the same and add a sum and an average, with what they need to recover, as in
``bench_w3_windows``. All outputs are compared with the truth.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from measuring import (
    BUILD,
    Report,
    Table,
    Target,
    WrongOutputError,
    arguments,
    in_turns,
    run_program,
)
from peers import BYTEWAX, available, run_bytewax, run_spark_windows
from workloads import NamedWindow, Readings, check_windows, scratch

WINDOW_MS = 10_000
SIZES = (1_000_000, 10_000_000)
SECONDS_MAX = 12.0
GROWTH_MAX = 12.0  # Ten times as much, and a fifth more.
PACE_MIN = 3.0  # Millions of lines a second, on two cores.
SPARK_BATCH_SIZE = 250_000
FIRST = "Bicycle, the first start in a home"
OURS, LIMIT, SPARK = "Bicycle, a pipeline", "DuckDB, in batch", "Spark SQL windows"

PIPELINE = """
name = "readings"

[source]
kind = "file"
path = "{source}"
time_field = "at"

[time]
max_out_of_orderness = "5s"

[window]
type = "tumbling"
size = "10s"

[ops]
count_by = "sensor"

[sink]
kind = "file"
out_dir = "{output}"
"""
DUCKDB = """
import sys, duckdb
source, output = sys.argv[1:]
duckdb.sql(f\"\"\"
    copy (
        select "at" - "at" % 10000 as window_start_ms, sensor, count(*) as count
        from read_json('{source}/*.jsonl', columns = {{'sensor': 'VARCHAR', 'at': 'BIGINT'}})
        group by all
    ) to '{output}/all.jsonl' (format json)
\"\"\")
"""


def main() -> None:
    """Measure and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options)
    sizes = (20_000, 40_000) if options.quick else SIZES[: 2 if options.large else 1]
    peers, notes = available([BYTEWAX])
    report = Report(
        name="pipeline",
        claim="A pipeline counts a million JSON lines in windows within twelve seconds, "
        "including start-up, and ten times as many in ten times this time.",
        payload=f"{sizes[0]:,} readings of 1,000 sensors in JSON lines, up to 5 s out of order",
        method=f"{options.repeats} rounds in turns; wall time of the whole process, two "
        "subtasks; each output is compared with the expected results",
        notes=notes,
    )
    seconds: dict[int, float] = {}
    firsts: list[float] = []
    for size in sizes:
        readings = Readings(count=size, keys=1_000, window_ms=WINDOW_MS)
        is_first = size == sizes[0]
        contenders: dict[str, Callable[[], float]] = {}
        if is_first:
            _ours(readings, BUILD / "home")  # It leaves the archive of classes.
            contenders[SPARK] = partial(_spark, readings)
            contenders[FIRST] = partial(_ours, readings, None)
        contenders[OURS] = partial(_ours, readings, BUILD / "home")
        contenders[LIMIT] = partial(_duckdb, readings)
        if is_first and peers:
            contenders[BYTEWAX.name] = partial(_bytewax, readings)
        found = in_turns(contenders, rounds=options.repeats if is_first else 1)
        seconds[size] = statistics.median(found[OURS])
        firsts += found.get(FIRST, [])
        report.tables.append(_table(size, found))
    first, later = statistics.median(firsts), seconds[sizes[0]]
    report.targets += [
        Target(
            name="a million lines, the first start in a home", value=first, best=min(firsts),
            unit="s", high=SECONDS_MAX,
        ),
        Target(name="a million lines, a later start", value=later, unit="s", high=SECONDS_MAX),
    ]  # fmt: skip
    if len(seconds) > 1:
        growth = seconds[sizes[1]] / later
        pace = (sizes[1] - sizes[0]) / max(seconds[sizes[1]] - later, 1e-3) / 1e6
        report.targets += [
            Target(name="ten times as many lines", value=growth, unit="x", high=GROWTH_MAX),
            Target(
                name="the throughput after the start", value=pace, unit="M lines/s", low=PACE_MIN
            ),
        ]
    report.tell(options)


def _table(size: int, found: dict[str, list[float]]) -> Table:
    rows = [
        [
            name,
            f"{statistics.median(s):.1f}",
            f"{min(s):.1f}",
            f"{size / statistics.median(s):,.0f}",
        ]
        for name, s in found.items()
    ]
    columns = ["whole run", "median s", "best s", "lines a second"]
    return Table(title=f"{size:,} lines", columns=columns, rows=rows)


def _ours(readings: Readings, home: Path | None) -> float:
    """Return the seconds of a run in a home; None for one that is new."""
    with scratch("pipeline") as place:
        output, file = place / "output", place / "readings.toml"
        file.write_text(PIPELINE.format(source=readings.folder(), output=output))
        command = [Path(sys.executable).with_name("bicycle"), "run", "--config", file]
        command += ["--checkpoint-dir", place / "checkpoints", "--parallelism", "2", "--json"]
        seconds = _timed(lambda: run_program(command, BICYCLE_HOME=str(home or place / "home")))
        _check(output, readings)
        return seconds


def _duckdb(readings: Readings) -> float:
    with scratch("pipeline") as place:
        command = [sys.executable, "-c", DUCKDB, readings.folder(), place]
        seconds = _timed(lambda: run_program(command))
        _check(place, readings)
        return seconds


def _spark(readings: Readings) -> float:
    source = readings.slices(SPARK_BATCH_SIZE)
    with scratch("pipeline") as place:
        nothing = place / "nothing"
        nothing.mkdir()
        seconds = _timed(lambda: run_spark_windows(nothing, source, place / "output"))
        check_windows(place / "output", readings, NamedWindow)
        return seconds


def _bytewax(readings: Readings) -> float:
    with scratch("pipeline") as place:
        run = partial(
            run_bytewax, "bytewax_windows", readings.folder(), place / "output",
            recovery=place / "recovery", process_count=1,
        )  # fmt: skip
        seconds = _timed(run)
        check_windows(place / "output", readings)
        return seconds


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _check(folder: Path, readings: Readings) -> None:
    lines = [
        line
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text().splitlines()
        if line
    ]
    rows = [json.loads(line) for line in lines]
    found = {(row["sensor"], row["window_start_ms"]): row["count"] for row in rows}
    truth = {key: count for key, (count, _) in readings.truth().items()}
    if found != truth or len(rows) != len(truth):
        raise WrongOutputError(f"{len(rows):,} rows for {len(truth):,} windows")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--large", action="store_true", help="ten million lines, too")


if __name__ == "__main__":
    main()
