"""W3 as jobs have it: floats, dicts, a filter in front, a key and a value that are computed.

The job of ``bench_w3_windows.py`` with values of two decimals, written in six ways. Four are judged
against a plain two-process loop and Spark's own windows; the loop parses with msgspec, and with
``json`` beside it where there is nothing else to compare. In one of them nothing can be read out of
the function, so that it is called for each reading. All six are also run with functions that cannot
be read, for what reading them gains.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench_w3_windows import first_of
from bicycle_runs import Engine, job, lap_of, spark_engine, warm_up
from file_laps import plain_lap
from measuring import Report, Table, add_peers, arguments, in_turns, ratios
from paces import Lap, Paces
from peers import SparkWindows
from processor_time import processor_seconds
from spark_peer import SPARK, best_spark, spark_windows
from window_jobs import KINDS
from workloads import MeasuredWindow, Readings, Told, check_measured_windows, scratch

OURS = "Bicycle"
PLAIN, PLAIN_JSON = "plain loop, msgspec", "plain loop, json"
# Kind -> the least ratio to the plain loop, and to Spark; None is told, and Spark does not run.
BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "floats": (1.2, 4.0),
    "dicts": (1.2, 4.0),
    "computed": (0.6, 2.0),
    "looping": (0.6, 2.0),
    "filtered": (None, None),
    "keyed": (None, None),
}
JUDGED = (
    "whole run ÷ plain loop, msgspec, and ÷ Spark SQL windows: floats and dicts ≥ 1.2 and ≥ 4, "
    "a value that is computed and a function with a loop ≥ 0.6 and ≥ 2; idle cores from the second "
    "epoch on ≤ 10 %; throughput with functions that are read ÷ called ≥ 1.5, with a loop ≥ 1.1"
)
# Rounding is left out for Spark, whose numbers are rounded in another way.
QUERIES = {
    "floats": SparkWindows(value_type="double"),
    "computed": SparkWindows(value_type="double", value="value * 1.8 + 32"),
    "looping": SparkWindows(value_type="double", value="value + 1.0"),
}
NEAR = {PLAIN: 1e-6, PLAIN_JSON: 1e-6, SPARK: 0.051}  # how far an average may be off
READ_MIN, PARTLY_READ_MIN = 1.5, 1.1
QUICK_COUNT = 20_000


def choice_of(kind: str) -> str:
    """Return what a plain loop, and Spark, do the same for as for a kind: floats are dicts."""
    return "floats" if kind == "dicts" else kind


def truth_of(kind: str) -> Told:
    """Return what tells key and value of a reading; the same object for the same truth."""
    return KINDS[choice_of(kind)].truth


def by_kind(engine: Engine, readings: Readings, name: str) -> tuple[Lap, float]:
    """Run a job and check its output.

    Args:
        engine: What runs it.
        readings: With decimals.
        name: Of a job of ``window_jobs``, without ``windows_``.

    Returns:
        The run, and its seconds of processor time in all processes.
    """
    with scratch("w3") as place:
        output = place / "output"
        params = {"input": readings.folder(), "output": output}
        setup = job(f"windows_{name}", params, storage=place / "checkpoints")
        before = processor_seconds(os.getpid()).total()
        run = engine.run(setup)
        spent = processor_seconds(os.getpid()).total() - before
        check_measured_windows(output, readings, truth_of(name.removesuffix("_called")))
    return lap_of(run), spent


def plain(choice: str, parser: str, readings: Readings) -> Lap:
    """Run a plain loop; its sums are those of plain additions."""
    check = partial(check_measured_windows, told=truth_of(choice), near=NEAR[PLAIN])
    loop = f"windows-{'whole' if choice == 'floats' else choice}-{parser}"
    return plain_lap(loop, readings, check=check)


def spark(choice: str, readings: Readings, batch_size: int, query: SparkWindows) -> Lap:
    """Run Spark's windows."""

    def check(output: Path) -> None:
        check_measured_windows(
            output, readings, truth_of(choice), near=NEAR[SPARK], form=MeasuredWindow
        )

    return spark_windows(readings, batch_size, query, check=check)


def main() -> None:
    """Measure all and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options, judged=JUDGED)
    count = QUICK_COUNT if options.quick else options.size
    readings = Readings(count=count, keys=options.keys, has_decimals=True)
    others = first_of(readings, options.spark_size)
    fewer = first_of(readings, options.fewer)
    report = Report(
        name="w3-kinds",
        claim="Windows over floats or dicts are 1.2 times as fast as a plain loop and 4 "
        "times as fast as the windows of Spark. With a function that computes values, "
        "the factors are 0.6 and 2.",
        payload=f"{readings.text}, with two decimals; rows that are not judged get the first "
        f"{fewer.count:,}, Spark {others.count:,}",
        method=f"{options.repeats} rounds or more in turns on a warm engine, two cores each; "
        "steady is the rate after the first third; all windows compared with the "
        "expected results in every run, Bicycle with exact sums",
    )
    with spark_engine() as engine:
        all_paces: dict[str, Paces] = {}
        contenders: dict[str, Callable[[], float]] = {}
        settings = None
        if options.peers and not options.quick:
            tried = first_of(readings, options.sweep_size)
            table, settings = best_spark(
                f"{SPARK}, {tried.text}", partial(spark, "floats", tried), QUERIES["floats"]
            )
            report.tables.append(table)
        for kind, (low, _) in BOUNDS.items():
            part = readings if low is not None else fewer
            paces = all_paces[kind] = Paces(
                text=f"{KINDS[kind].text}, {part.text}", unit="readings"
            )
            turns: dict[str, Callable[[], Lap]] = {
                OURS: lambda part=part, kind=kind: by_kind(engine, part, kind)[0]
            }
            if kind != "dicts":
                turns[PLAIN] = partial(plain, kind, "msgspec", part)
            if kind == "floats":
                turns[PLAIN_JSON] = partial(plain, kind, "json", part)
            if settings is not None and kind in QUERIES:
                size, chosen = settings
                query = _like(QUERIES[kind], chosen)
                turns[SPARK] = partial(spark, kind, others, size, query)
            contenders |= {f"{kind}, {name}": paces.turn(name, run) for name, run in turns.items()}
        if not options.quick:
            warm_up(lambda: by_kind(engine, fewer, "floats")[0], least=3, most=5)
        enough = [
            all_paces[kind].enough(OURS, is_judged=low is not None and not options.quick)
            for kind, (low, _) in BOUNDS.items()
        ]
        in_turns(
            contenders, rounds=options.repeats, is_enough=lambda: all(each() for each in enough)
        )
        for kind, paces in all_paces.items():
            _judge(report, kind, paces, all_paces["floats"])
        report.tables.append(_called_table(report, engine, fewer, options))
    report.tell(options)


def _like(query: SparkWindows, chosen: SparkWindows) -> SparkWindows:
    return SparkWindows(
        value=query.value, value_type=query.value_type, has_rocksdb=chosen.has_rocksdb
    )


def _judge(report: Report, kind: str, paces: Paces, floats: Paces) -> None:
    if kind == "dicts":  # A loop has no other form for them, and Spark neither.
        paces.laps |= {name: laps for name, laps in floats.laps.items() if name != OURS}
    report.tables.append(paces.table())
    loop, other = BOUNDS[kind]
    paces.judge(report, OURS, {PLAIN: loop, PLAIN_JSON: loop, SPARK: other})
    if loop is not None:
        paces.judge_idle(report, OURS)


def _called_table(
    report: Report, engine: Engine, readings: Readings, options: argparse.Namespace
) -> Table:
    """Run each kind of job with functions that are read and with the same ones called, in turns."""

    def pace(name: str) -> float:
        _, spent = by_kind(engine, readings, name)
        return readings.count / spent

    names = [name for kind in KINDS for name in (kind, f"{kind}_called")]
    rates = in_turns({name: partial(pace, name) for name in names}, rounds=options.repeats)
    rows = []
    for name, kind in KINDS.items():
        read, called = rates[name], rates[f"{name}_called"]
        factor, _ = ratios(read, called)
        shown = [f"{1e6 / statistics.median(each):.2f}" for each in (read, called)]
        rows.append([kind.text, *shown, f"{factor:.2f}"])
        low = READ_MIN if kind.is_read else PARTLY_READ_MIN
        report.compare(f"functions read ÷ called, {kind.text}", read, called, low=low)
    return Table(
        title=f"{readings.text}, with decimals: us of processor time for each",
        columns=["job", "functions read", "the same called", "times the throughput"],
        rows=rows,
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", type=int, default=10_000_000, help="number of readings")
    parser.add_argument("--keys", type=int, default=1_000, help="number of sensors")
    parser.add_argument(
        "--fewer", type=int, default=1_000_000, help="readings where nothing is judged"
    )
    parser.add_argument(
        "--sweep-size", type=int, default=1_000_000, help="readings where settings are tried"
    )
    parser.add_argument(
        "--spark-size", type=int, default=5_000_000, help="readings for Spark at most"
    )
    add_peers(parser, "Spark's own windows")


if __name__ == "__main__":
    main()
