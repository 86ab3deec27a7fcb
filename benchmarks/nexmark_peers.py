"""Flink SQL, Spark SQL and DuckDB on a query of Nexmark, and what their output and ours contain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flink_peer import PYFLINK
from measuring import WrongOutputError
from nexmark_jobs import COLUMNS, query_of
from processor_time import processor_seconds

__all__ = ["DUCKDB", "FLINK", "SPARK", "Cost", "contents", "run_peer", "run_whole"]

FLINK, SPARK, DUCKDB = "Flink SQL 2.3", "Spark SQL, Structured Streaming", "DuckDB, one thread"
_PROGRAMS = Path(__file__).parent / "peer_programs"
_LOOK_S = 0.1
_TABLES = {
    "person": "id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR, "
    "state VARCHAR, dateTime TIMESTAMP(3), extra VARCHAR",
    "auction": "id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, "
    "reserve BIGINT, dateTime TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, "
    "extra VARCHAR",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, "
    "dateTime TIMESTAMP(3), extra VARCHAR",
}
_FLINK_FORMAT = "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One run: seconds, and seconds of processor time of all its processes."""

    seconds: float
    processor_s: float


def run_whole(command: Sequence[str | Path], **environment: str) -> tuple[Cost, str]:
    """Run a command; return its cost, with Java and workers, and its output.

    Raises:
        WrongOutputError: it failed; with the end of its output.
    """
    began, spent = time.monotonic(), 0.0
    process = subprocess.Popen(
        [*map(str, command)], env={**os.environ, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    text = ""
    while True:
        spent = max(spent, processor_seconds(process.pid).total())
        try:
            text, _ = process.communicate(timeout=_LOOK_S)
            break
        except subprocess.TimeoutExpired:
            continue
    if process.returncode:
        raise WrongOutputError(f"{command[0]} failed:\n{text[-2_000:]}")
    return Cost(seconds=time.monotonic() - began, processor_s=spent), text


def run_peer(
    system: str, name: str, source: Path, place: Path, *, is_whole: bool = False, **settings: Any
) -> Cost:
    """Run a query in another system; its output is in ``place``, in the folder ``output``.

    Args:
        system: Its name.
        name: The query.
        source: The folder of the tables.
        place: An empty folder.
        is_whole: Whether the cost is that of the whole program; else of a warm engine.
        settings: Of the system.

    Raises:
        PeerMissingError: it cannot be installed here.
    """
    program, python, tables, word = _SYSTEMS[system]()
    query = query_of(name, word).strip().rstrip(";")
    quoted = "`dateTime`" if system == FLINK else "dateTime"  # DATETIME is a word of its grammar.
    given = {
        "tables": tables(source), "query": query.replace("dateTime", quoted),
        "output": str(place / "output"), "checkpoints": str(place / "checkpoints"),
        "target": _flink_target(name), "turns": ["measured"] if is_whole else ["warm", "measured"],
        **settings,
    }  # fmt: skip
    (place / "logs").mkdir(parents=True)
    cost, text = run_whole(
        [python, _PROGRAMS / program, json.dumps(given)], FLINK_LOG_DIR=str(place / "logs"),
        PYTHONPATH=str(_PROGRAMS),
    )  # fmt: skip
    return cost if is_whole else Cost(**json.loads(text.strip().splitlines()[-1]))


def _flink_tables(source: Path) -> list[str]:
    return [
        f"CREATE TABLE {name} ({_quoted(columns)}, "
        "WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND)"
        f" WITH ('connector' = 'filesystem', 'path' = '{source / name}', {_FLINK_FORMAT})"
        for name, columns in _TABLES.items()
    ]


def _flink_target(name: str) -> str:
    return (
        f"CREATE TABLE answer ({_quoted(COLUMNS[name])}) WITH ('connector' = 'filesystem', "
        f"'path' = 'OUTPUT', {_FLINK_FORMAT})"
    )


def _quoted(columns: str) -> str:
    """Return a list of columns with names in backticks: some are words of Flink's grammar."""
    pairs = (each.split(" ", 1) for each in columns.split(", "))
    return ", ".join(f"`{column}` {kind}" for column, kind in pairs)


def _spark_tables(source: Path) -> dict[str, tuple[str, str]]:
    return {
        name: (_plain(columns, "STRING"), str(source / name)) for name, columns in _TABLES.items()
    }


def _duckdb_tables(source: Path) -> dict[str, tuple[dict[str, str], str]]:
    found = {}
    for name, columns in _TABLES.items():
        pairs = [each.split(" ") for each in _plain(columns, "VARCHAR").split(", ")]
        found[name] = {column: kind for column, kind in pairs}, str(source / name)
    return found


def _plain(columns: str, text: str) -> str:
    return columns.replace("TIMESTAMP(3)", "TIMESTAMP").replace("VARCHAR", text)


_System = tuple[str, Path | str, Callable[[Path], Any], str]
_SYSTEMS: Mapping[str, Callable[[], _System]] = {
    FLINK: lambda: ("flink_sql.py", PYFLINK.python(), _flink_tables, "flink"),
    SPARK: lambda: ("spark_sql.py", sys.executable, _spark_tables, "spark"),
    DUCKDB: lambda: ("duckdb_sql.py", sys.executable, _duckdb_tables, "duckdb"),
}


def contents(folder: Path) -> Counter[tuple[Any, ...]]:
    """Return the rows of all files of an output that are complete, with values of one form."""
    found: Counter[tuple[Any, ...]] = Counter()
    for path in folder.rglob("*"):
        hidden = path.name.startswith((".", "_")) or "_spark_metadata" in path.parts
        if path.is_file() and not hidden:
            for line in path.read_text().splitlines():
                found[tuple(map(_value, json.loads(line).values()))] += 1
    return found


def _value(value: Any) -> Any:
    if isinstance(value, int | float):
        return float(f"{value:.9g}")
    is_time = isinstance(value, str) and value[4:5] == "-" and value[10:11] in ("T", " ")
    if not is_time:
        return value
    moment = datetime.fromisoformat(value)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
