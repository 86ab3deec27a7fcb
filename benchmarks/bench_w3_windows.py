"""W3: tumbling windows of 10 s, count + sum + average by sensor, readings up to 5 s out of order.

Bicycle on two cores against a plain two-process loop, in turns. The loop reads its half of the
files, folds it in dicts and writes parts; it neither joins the parts of two processes nor knows
when a window is complete, so it does less than a window must.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass, field

from bicycle_runs import Engine, JobRun, job, spark_engine, warm_up
from measuring import Report, Table, Target, arguments, in_turns, millions, ratios
from peers import run_plain
from workloads import Readings, check_windows, scratch

OURS, PLAIN = "Bicycle", "plain loop"
QUICK = Readings(count=20_000, keys=100)


@dataclass(slots=True)
class Bench:
    """One input and what its runs were like."""

    engine: Engine
    readings: Readings
    whole: dict[str, list[float]] = field(default_factory=dict)

    def ours(self) -> float:
        run = by_window(self.engine, self.readings)
        self.whole.setdefault(OURS, []).append(run.whole_rate)
        return run.steady_rate()

    def plain(self) -> float:
        with scratch("w3") as place:
            run = run_plain("windows", self.readings.folder(), place / "output")
        rate = self.readings.count / run.busy_s
        self.whole.setdefault(PLAIN, []).append(rate)
        return rate

    def table(self, rates: dict[str, list[float]]) -> Table:
        rows = [
            [name, *millions(found), *millions(self.whole[name])] for name, found in rates.items()
        ]
        columns = ["M readings/s", "steady: median", "best", "whole run: median", "best"]
        return Table(title=self.readings.text, columns=columns, rows=rows)


def by_window(engine: Engine, readings: Readings) -> JobRun:
    """Run our job on an input and check what it wrote."""
    with scratch("w3") as place:
        output = place / "output"
        params = {"input": readings.folder(), "output": output}
        run = engine.run(job("readings_by_window", params, storage=place / "checkpoints"))
        check_windows(output, readings)
    return run


def main() -> None:
    """Measure every input and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options)
    inputs = [QUICK] if options.quick else _inputs(options)
    report = Report(
        name="w3-windows",
        claim="Windows of event time, durable in every epoch, keep 0.4 of a plain loop's pace.",
        payload="; ".join(readings.text for readings in inputs),
        method=f"{options.repeats} rounds in turns on a warm engine, two cores each; steady is the "
        "rate behind the first third; all windows compared with the truth in every run of ours",
        notes=["The plain loop does not join what its two processes counted."],
    )
    costs: dict[int, dict[int, float]] = {}
    with spark_engine() as engine:
        if not options.quick:
            warm_up(lambda: by_window(engine, inputs[0]), least=3, most=6)
        for readings in inputs:
            bench = Bench(engine, readings)
            rates = in_turns({OURS: bench.ours, PLAIN: bench.plain}, rounds=options.repeats)
            report.tables.append(bench.table(rates))
            median, best = ratios(rates[OURS], rates[PLAIN])
            title = f"Bicycle ÷ plain loop, {readings.text}"
            target = Target(name=title, value=median, best=best, low=0.4, unit="x")
            report.targets.append(target)
            cost = 1e9 / statistics.median(rates[OURS])
            costs.setdefault(readings.keys, {})[readings.count] = cost
    _judge_growth(report, costs)
    report.tell(options)


def _judge_growth(report: Report, costs: dict[int, dict[int, float]]) -> None:
    for keys, by_count in costs.items():
        if len(by_count) > 1:
            small, large = min(by_count), max(by_count)
            value = by_count[large] / by_count[small]
            title = f"cost per reading, {large:,} ÷ {small:,}, {keys:,} sensors"
            report.targets.append(Target(name=title, value=value, high=1.15, unit="x"))


def _inputs(options: argparse.Namespace) -> list[Readings]:
    return [Readings(count=count, keys=keys) for keys in options.keys for count in options.sizes]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000], help="numbers of readings"
    )
    parser.add_argument(
        "--keys", type=int, nargs="+", default=[1_000, 100_000], help="numbers of sensors"
    )


if __name__ == "__main__":
    main()
