"""W3: tumbling windows of 10 s, count + sum + average by sensor, readings up to 5 s out of order.

Bicycle on two cores against plain two-process loops, Spark's own windows by SQL, which run in Java
alone, Bytewax with its recovery, and PyFlink, in turns. The loops swap readings between their
processes and write each window when it is complete, but keep nothing: what ours seals in each epoch
(about one second), Bytewax saves every ten seconds, its default, PyFlink every second, and Spark
with each micro-batch. Bytewax runs as one worker: two lose readings, since each takes time from the
files that it reads itself. Settings of others are the best of a few that are tried before.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from bicycle_runs import Engine, JobRun, engine_on, job, lap_of, spark_engine, warm_up
from file_laps import bytewax_lap, flink_lap, plain_laps
from flink_peer import FLINK_MODES, PYFLINK, best_bundle
from measuring import Report, Table, add_peers, arguments, in_turns
from paces import PEER_ROUNDS, Lap, Paces
from peers import BYTEWAX, Peer, SparkWindows, available
from spark_peer import SPARK, best_spark, spark_windows
from workloads import NamedWindow, Readings, check_windows, scratch

OURS = "Bicycle"
PLAIN = {f"plain loop, {parser}": f"windows-whole-{parser}" for parser in ("json", "msgspec")}
BYTEWAX_NAME = f"{BYTEWAX.name}, one worker"
BOUNDS = {
    **dict.fromkeys(PLAIN, 1.2), SPARK: 4.0, BYTEWAX_NAME: 4.0,
    **dict.fromkeys(FLINK_MODES.values()),
}  # fmt: skip
JUDGED = (
    f"whole run of the largest input ÷ each plain loop ≥ 1.2, ÷ {SPARK} ≥ 4, ÷ {BYTEWAX_NAME} "
    "≥ 4; idle cores from the second epoch on ≤ 10 %; "
    "cost of a record, largest ÷ smallest input ≤ 1.15"
)
QUICK = Readings(count=20_000, keys=100)


@dataclass(slots=True)
class Bench:
    """One input and its contenders."""

    engine: Engine
    readings: Readings
    paces: Paces = field(init=False)

    def __post_init__(self) -> None:
        self.paces = Paces(text=self.readings.text, unit="readings")

    def contenders(self, others: dict[str, Callable[[], Lap]]) -> dict[str, Callable[[], float]]:
        """Return what takes turns: ours, the loops, and others."""
        runs: dict[str, Callable[[], Lap]] = {
            OURS: lambda: lap_of(by_window(self.engine, self.readings)),
            **plain_laps(PLAIN, self.readings, check=check_windows),
        }
        return self.paces.turns(runs) | self.paces.turns(others, most=PEER_ROUNDS)


def by_window(
    engine: Engine, readings: Readings, plugin: str = "readings_by_window", *, parallelism: int = 2
) -> JobRun:
    """Run our job on an input and check what it wrote."""
    with scratch("w3") as place:
        output = place / "output"
        params = {"input": readings.folder(), "output": output}
        run = engine.run(
            job(plugin, params, storage=place / "checkpoints", parallelism=parallelism)
        )
        check_windows(output, readings)
    return run


def main() -> None:
    """Measure every input and tell."""
    options = arguments(__doc__, repeats=4, add=_add_options, judged=JUDGED)
    inputs = [QUICK] if options.quick else _inputs(options)
    wanted = (BYTEWAX, PYFLINK) if options.peers and not options.quick else ()
    peers, notes = available(wanted)
    report = Report(
        name="w3-windows",
        claim="Event-time windows, durable in every epoch, are 1.2 times as fast as a plain "
        "loop, and 4 times as fast as Bytewax and as the windows of Spark, which run "
        "in Java.",
        payload="; ".join(readings.text for readings in inputs),
        method=f"{options.repeats} rounds or more in turns on a warm engine, two cores each; "
        "steady is the rate after the first third; all windows compared with the "
        "expected results in every run; other systems get only the largest inputs, "
        f"Spark their first {options.spark_size:,} readings, Bytewax "
        f"{options.bytewax_size:,} and PyFlink {options.flink_size:,} at most, because "
        "they are slower",
        notes=notes,
    )
    costs: dict[int, dict[int, float]] = {}
    with spark_engine() as engine:
        if not options.quick:
            warm_up(lambda: lap_of(by_window(engine, inputs[0])), least=3, most=6)
        for readings in inputs:
            bench = Bench(engine, readings)
            is_last = readings.count == max(each.count for each in inputs)
            wants_others = is_last and options.peers and not options.quick
            others = _others(report, peers, readings, options) if wants_others else {}
            paces = bench.paces
            in_turns(
                bench.contenders(others), rounds=options.repeats,
                is_enough=paces.enough(OURS, is_judged=is_last and not options.quick),
            )  # fmt: skip
            report.tables.append(paces.table())
            costs.setdefault(readings.keys, {})[readings.count] = 1e9 / statistics.median(
                paces.whole(OURS)
            )
            if is_last:
                paces.judge(report, OURS, BOUNDS)
                paces.judge_idle(report, OURS)
    for count, by_size in costs.items():
        report.compare_growth(by_size, f"cost per reading, {{}}, {count:,} sensors")
    if not options.quick:
        report.tables.append(_on_one_core(first_of(inputs[0], options.one_core_size)))
    report.tell(options)


def _others(
    report: Report, peers: list[Peer], readings: Readings, options: argparse.Namespace
) -> dict[str, Callable[[], Lap]]:
    """Find the best settings of other systems; return how they run."""

    def spark(count: int, batch_size: int, query: SparkWindows) -> Lap:
        fewer = first_of(readings, count)
        return spark_windows(
            fewer, batch_size, query, check=lambda output: check_windows(output, fewer, NamedWindow)
        )

    table, settings = best_spark(
        f"{SPARK}, {first_of(readings, options.sweep_size).text}",
        partial(spark, options.sweep_size), SparkWindows(),
    )  # fmt: skip
    report.tables.append(table)
    found: dict[str, Callable[[], Lap]] = {SPARK: partial(spark, options.spark_size, *settings)}
    if BYTEWAX in peers:
        found[BYTEWAX_NAME] = partial(
            bytewax_lap, "bytewax_windows", first_of(readings, options.bytewax_size),
            check=check_windows, is_durable=True, process_count=1,
        )  # fmt: skip
    if PYFLINK in peers:
        # Each of its subtasks reads one file.
        fewer = replace(first_of(readings, options.flink_size), files=2)
        flink = partial(flink_lap, "flink_windows", fewer, check=check_windows)
        for mode, name in FLINK_MODES.items():
            title = f"{name}, {fewer.text}"
            table, bundle = best_bundle(title, "readings", partial(flink, mode=mode))
            report.tables.append(table)
            found[name] = partial(flink, mode=mode, bundle=bundle)
    return found


def _on_one_core(readings: Readings) -> Table:
    """Run ours and the loops on one core alone, that is one task, or one process."""
    paces = Paces(text=f"One core alone, {readings.text}", unit="readings")
    with engine_on(core=0) as engine:

        def ours() -> Lap:
            return lap_of(by_window(engine, readings, parallelism=1))

        runs: dict[str, Callable[[], Lap]] = {
            OURS: ours,
            **plain_laps(PLAIN, readings, check=check_windows, process_count=1),
        }
        warm_up(ours, least=2, most=3)
        in_turns(paces.turns(runs), rounds=3)
    return paces.table()


def _inputs(options: argparse.Namespace) -> list[Readings]:
    return [Readings(count=count, keys=keys) for keys in options.keys for count in options.sizes]


def first_of(readings: Readings, count: int) -> Readings:
    """Return the first readings of an input."""
    return replace(readings, count=min(readings.count, count))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000], help="numbers of readings"
    )
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000], help="numbers of sensors")
    parser.add_argument(
        "--sweep-size", type=int, default=1_000_000, help="readings where settings are tried"
    )
    parser.add_argument(
        "--spark-size", type=int, default=5_000_000, help="readings for Spark at most"
    )
    parser.add_argument(
        "--bytewax-size", type=int, default=500_000, help="readings for Bytewax at most"
    )
    parser.add_argument(
        "--flink-size", type=int, default=100_000, help="readings for PyFlink at most"
    )
    parser.add_argument(
        "--one-core-size", type=int, default=3_000_000, help="readings where one core works alone"
    )
    add_peers(parser, "Spark's own windows, Bytewax and PyFlink")


if __name__ == "__main__":
    main()
