"""Nexmark: SQL over JSON lines, to files, exactly once, beside Flink SQL, Spark SQL and DuckDB.

Each query runs on warm engines and as a whole command from the shell, in turns. Ours and Spark run
on embedded Spark with two cores, Flink with two subtasks, DuckDB on one thread and without
checkpoints. Rates are events per second of processor time, which a loaded machine disturbs least:
all processes count, Java included. All outputs of a query are compared with DuckDB's;
Spark has no rows of windows that are open at the end of the input.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyspark
from bicycle_runs import Engine, job, spark_engine
from command_memory import BICYCLE
from flink_peer import PYFLINK
from measuring import BUILD, Report, Table, Target, WrongOutputError, add_peers, arguments, in_turns
from nexmark_data import write_events
from nexmark_jobs import QUERIES, WINDOWS, file_of
from nexmark_peers import DUCKDB, FLINK, SPARK, Cost, contents, run_peer, run_whole
from peers import available
from processor_time import processor_seconds
from workloads import scratch

OURS, WHOLE = "Bicycle", "whole command"
FLINK_STATES = {"hashmap": f"{FLINK}, heap", "rocksdb": f"{FLINK}, RocksDB"}
NOT_IN_SPARK = ("q5", "q7", "q8", "hop")  # It makes 3,600 rows of each for hop.
# What is tried before: object reuse of Flink, files in a micro-batch of Spark.
FLINK_SWEEP = ({"parallelism": 2, "reuse": False}, {"parallelism": 2, "reuse": True})
SPARK_SWEEP = ({"files_in_batch": 0}, {"files_in_batch": 1})
JUDGED = (
    f"events per second of processor time on a warm engine: every query ÷ {FLINK} on heap ≥ 1; "
    f"windows ({', '.join(WINDOWS)}) ÷ {FLINK} on heap and on RocksDB ≥ 2, ÷ {SPARK} ≥ 4, "
    f"÷ {DUCKDB} ≥ 0.5; processor time of hop ÷ tumble ≤ 2; whole commands are shown beside them"
)
_ATTEMPT = Callable[[Path], Cost]


@dataclass(slots=True)
class Bench:
    """One query, the rows that it has, and the costs of its contenders."""

    name: str
    source: Path
    count: int
    costs: dict[str, list[Cost]] = field(default_factory=dict)
    expected: Counter[tuple[Any, ...]] | None = None

    def turn(self, title: str, run: _ATTEMPT) -> Callable[[], float]:
        """Return a contender whose output is compared."""

        def contender() -> float:
            with scratch("nexmark") as place:
                cost = run(place)
                found = contents(place / "output" / "measured")
            self.expected = found if self.expected is None else self.expected
            # Spark does not end the windows that are open at the end of the input.
            is_open = title == SPARK and self.name in WINDOWS
            if found - self.expected if is_open else found != self.expected:
                text = f"{self.name} by {title}: {found.total():,} rows, which differ"
                raise WrongOutputError(text)
            self.costs.setdefault(title, []).append(cost)
            return self.rate(cost)

        return contender

    def rate(self, cost: Cost) -> float:
        """Return events per second of processor time."""
        return self.count / cost.processor_s

    def rates(self, title: str) -> list[float]:
        """Return the rates of a contender in all rounds."""
        return [self.rate(each) for each in self.costs[title]]

    def compare(self, report: Report, theirs: str, low: float) -> None:
        """Judge our rate against that of another."""
        if theirs in self.costs:
            title = f"{self.name}: {OURS} ÷ {theirs}"
            report.compare(title, self.rates(OURS), self.rates(theirs), low=low)

    def rows(self) -> list[list[str]]:
        """Return the rows of the table."""
        return [
            [
                f"{self.name}, {title}", f"{statistics.median(self.rates(title)):,.0f}",
                f"{statistics.median(each.processor_s for each in found):.2f}",
                f"{statistics.median(each.seconds for each in found):.2f}",
            ]
            for title, found in self.costs.items()
        ]  # fmt: skip


def run_warm(engine: Engine, name: str, source: Path, place: Path) -> Cost:
    """Run our job on a warm engine."""
    params = {"query": name, "input": source, "output": place / "output" / "measured"}
    setup = job("nexmark", params, storage=place / "checkpoints")
    before = processor_seconds(_own_pid())
    run = engine.run(setup)
    spent = processor_seconds(_own_pid()) - before
    return Cost(seconds=run.ended - run.began, processor_s=spent.total())


def run_command(name: str, source: Path, place: Path) -> Cost:
    """Run our SQL file by the command."""
    file = place / f"{name}.sql"
    file.write_text(file_of(name, source, place / "output" / "measured"))
    cost, _ = run_whole(
        [BICYCLE, "run", file, "--checkpoint-dir", place / "checkpoints"],
        BICYCLE_HOME=str(place / "home"),
    )
    return cost


def _own_pid() -> int:
    return int(Path("/proc/self").resolve().name)


def sweep(bench: Bench, system: str, every: tuple[dict[str, object], ...]) -> tuple[Table, dict]:
    """Try settings of another system; return their table and the best."""
    rows, best = [], (0.0, every[0])
    for settings in every:
        with scratch("sweep") as place:
            cost = run_peer(system, bench.name, bench.source, place, **_states(system, settings))
        rate = bench.rate(cost)
        text = ", ".join(f"{name} {value}" for name, value in settings.items())
        rows.append([text, f"{rate:,.0f}"])
        best = max(best, (rate, settings), key=lambda each: each[0])
    columns = ["setting", "events per second of processor time"]
    return Table(title=f"{system}, settings on {bench.name}", columns=columns, rows=rows), best[1]


def _states(system: str, settings: dict[str, object]) -> dict[str, object]:
    return {"state": "hashmap", **settings} if system == FLINK else settings


def contenders(bench: Bench, engine: Engine, chosen: dict[str, dict], *, has_whole: bool) -> dict:
    """Return the contenders of a query, DuckDB first: others are compared with its rows."""
    name, source = bench.name, bench.source
    found: dict[str, _ATTEMPT] = {}
    if DUCKDB in chosen:
        found[DUCKDB] = lambda place: run_peer(DUCKDB, name, source, place)
    found[OURS] = lambda place: run_warm(engine, name, source, place)
    if has_whole:
        found[f"{OURS}, {WHOLE}"] = lambda place: run_command(name, source, place)
    if FLINK in chosen:
        for state, title in FLINK_STATES.items():
            settings = {**chosen[FLINK], "state": state}
            found[title] = partial(run_peer, FLINK, name, source, **settings)
        if has_whole:
            settings = {**chosen[FLINK], "state": "hashmap", "is_whole": True}
            found[f"{FLINK}, {WHOLE}"] = partial(run_peer, FLINK, name, source, **settings)
    if SPARK in chosen and name not in NOT_IN_SPARK:
        found[SPARK] = partial(run_peer, SPARK, name, source, **chosen[SPARK])
    return {title: bench.turn(title, run) for title, run in found.items()}


def main() -> None:
    """Measure every query and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options, judged=JUDGED)
    count = 5_000 if options.quick else options.events
    source = BUILD / "nexmark" / str(count)
    if not source.is_dir():
        write_events(source, count)
    report = Report(
        name="nexmark",
        claim="SQL queries of Nexmark need at most the processor time of Flink SQL.",
        payload=f"{count:,} events (46 bids, 3 auctions, 1 person of 50), 1,000 in a second of "
        "event time, as JSON lines in two files for each table; results as JSON lines",
        method=f"{options.repeats} rounds in turns; processor time of all processes; outputs "
        f"compared in every run; {PYFLINK.name}, PySpark {pyspark.__version__}, DuckDB "
        f"{duckdb.__version__}",
    )
    chosen: dict[str, dict] = {}
    if options.peers:
        _, report.notes = available([PYFLINK])
        chosen = {DUCKDB: {}, **({} if report.notes else {FLINK: {}}), SPARK: {}}
        chosen = {name: each for name, each in chosen.items() if name in options.systems}
        for system, every in ((FLINK, FLINK_SWEEP), (SPARK, SPARK_SWEEP)):
            if system in chosen:
                bench = Bench(options.sweep_query, source, count)
                table, chosen[system] = sweep(bench, system, every)
                report.tables.append(table)
    found: dict[str, Bench] = {}
    with spark_engine() as engine:
        engine.start_workers()
        for name in options.queries:
            bench = found[name] = Bench(name, source, count)
            runs = contenders(bench, engine, chosen, has_whole=options.whole)
            runs[OURS]()  # Workers import and compile what the query needs.
            bench.costs.clear()
            in_turns(runs, rounds=options.repeats)
            _judge(report, bench)
    rows = [row for bench in found.values() for row in bench.rows()]
    columns = ["query", "events per processor second", "processor s", "seconds"]
    report.tables.append(Table(title=f"{count:,} events", columns=columns, rows=rows))
    if "hop" in found and "tumble" in found:
        cost = {
            name: statistics.median(each.processor_s for each in found[name].costs[OURS])
            for name in ("hop", "tumble")
        }
        name = "processor time, hop ÷ tumble"
        ratio = cost["hop"] / cost["tumble"]
        report.targets.append(Target(name=name, value=ratio, high=2, unit="x"))
    report.tell(options)


def _judge(report: Report, bench: Bench) -> None:
    is_window = bench.name in WINDOWS
    bench.compare(report, FLINK_STATES["hashmap"], 2 if is_window else 1)
    if is_window:
        bench.compare(report, FLINK_STATES["rocksdb"], 2)
        bench.compare(report, SPARK, 4)
        bench.compare(report, DUCKDB, 0.5)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=int, default=1_000_000, help="events of the input")
    parser.add_argument(
        "--queries", nargs="+", default=QUERIES, choices=QUERIES, help="queries that are measured"
    )
    parser.add_argument("--sweep-query", default="q11", help="query on which settings are tried")
    parser.add_argument(
        "--systems", nargs="+", default=(FLINK, SPARK, DUCKDB), help="other systems by name"
    )
    parser.add_argument(
        "--whole", action=argparse.BooleanOptionalAction, default=True, help="with whole commands"
    )
    add_peers(parser, "Flink SQL, Spark SQL and DuckDB")


if __name__ == "__main__":
    main()
