"""W1: JSON events read from files, parsed, filtered, mapped, written as JSON lines.

Bicycle on two cores against a plain two-process loop and Bytewax with two processes, in turns. The
ratio takes the plain loop with ``json`` of the standard library, which is what one would write
first; the same loop with msgspec is shown beside it, since we parse with msgspec.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from bicycle_runs import Engine, job, spark_engine, warm_up
from measuring import Report, Table, arguments, in_turns, millions
from peers import BYTEWAX, PeerRun, available, run_bytewax, run_plain
from workloads import Events, check_totals, scratch

OURS = {"Bicycle, dataclasses": "events_typed", "Bicycle, dicts": "events_as_dicts"}
PLAIN, PLAIN_FAST = "plain loop, json", "plain loop, msgspec"
QUICK_COUNT = 20_000


@dataclass(slots=True)
class Bench:
    """One size: its contenders and what they took to start."""

    engine: Engine
    events: Events
    startup_s: dict[str, list[float]] = field(default_factory=dict)
    whole: dict[str, list[float]] = field(default_factory=dict)
    idle: dict[str, list[float]] = field(default_factory=dict)

    def ours(self, plugin: str, name: str) -> float:
        with scratch("w1") as place:
            output = place / "output"
            params = {"input": self.events.folder(), "output": output}
            run = self.engine.run(job(plugin, params, storage=place / "checkpoints"))
            check_totals(output, self.events)
        self.whole.setdefault(name, []).append(run.whole_rate)
        self.idle.setdefault(name, []).append(run.idle_share)
        return run.steady_rate()

    def plain(self, loop: str, name: str) -> float:
        with scratch("w1") as place:
            run = run_plain(loop, self.events.folder(), place / "output")
            check_totals(place / "output", self.events)
        return self._rate(run, name)

    def bytewax(self) -> float:
        with scratch("w1") as place:
            source, output = self.events.folder(), place / "output"
            run = run_bytewax("bytewax_events", source, output, recovery=None, process_count=2)
            check_totals(output, self.events)
        return self._rate(run, BYTEWAX.name)

    def _rate(self, run: PeerRun, name: str) -> float:
        self.startup_s.setdefault(name, []).append(run.startup_s)
        rate = self.events.count / run.busy_s
        self.whole.setdefault(name, []).append(rate)
        return rate

    def contenders(self, *, with_bytewax: bool) -> dict[str, Callable[[], float]]:
        found: dict[str, Callable[[], float]] = {
            name: lambda plugin=plugin, name=name: self.ours(plugin, name)
            for name, plugin in OURS.items()
        }
        found[PLAIN] = lambda: self.plain("json", PLAIN)
        found[PLAIN_FAST] = lambda: self.plain("msgspec", PLAIN_FAST)
        if with_bytewax:
            found[BYTEWAX.name] = self.bytewax
        return found

    def table(self, rates: dict[str, list[float]]) -> Table:
        rows = [
            [
                name,
                *millions(found),
                *millions(self.whole[name]),
                _seconds(self.startup_s.get(name)),
            ]
            for name, found in rates.items()
        ]
        columns = [
            "M events/s",
            "steady: median",
            "best",
            "whole run: median",
            "best",
            "start-up s",
        ]
        return Table(title=self.events.text, columns=columns, rows=rows)


def _seconds(values: list[float] | None) -> str:
    return f"{statistics.median(values):.2f}" if values else "see bench_startup"


def main() -> None:
    """Measure every size and tell."""
    options = arguments(__doc__, repeats=5, add=_add_options)
    sizes = [QUICK_COUNT] if options.quick else options.sizes
    peers, notes = available((BYTEWAX,) if options.peers and not options.quick else ())
    report = Report(
        name="w1-json",
        claim="JSON events through a filter and a map run at 0.6 of the pace of a plain loop.",
        payload="; ".join(Events(count=size).text for size in sizes) + "; half of them pass",
        method=f"{options.repeats} rounds in turns on a warm engine, two cores each; steady is the "
        "rate behind the first third; outputs compared with the truth in every run",
        notes=notes,
    )
    costs: dict[int, float] = {}
    with spark_engine() as engine:
        for size in sizes:
            bench = Bench(engine, Events(count=size))
            if not costs and not options.quick:
                _warm_up(engine, bench.events)
            contenders = bench.contenders(with_bytewax=bool(peers))
            rates = in_turns(contenders, rounds=options.repeats)
            report.tables.append(bench.table(rates))
            _judge(report, rates, bench)
            costs[size] = 1e9 / statistics.median(rates["Bicycle, dicts"])
    report.compare_growth(costs, "cost per event, {}")
    report.tell(options)


def _warm_up(engine: Engine, events: Events) -> None:
    for plugin in OURS.values():

        def run(plugin: str = plugin):
            with scratch("w1") as place:
                params = {"input": events.folder(), "output": place / "output"}
                return engine.run(job(plugin, params, storage=place / "checkpoints"))

        warm_up(run, least=3, most=8)


def _judge(report: Report, rates: dict[str, list[float]], bench: Bench) -> None:
    size, whole = bench.events.count, bench.whole
    for name in OURS:
        for other, low in ((PLAIN, 0.6), (PLAIN_FAST, None), (BYTEWAX.name, None)):
            if other in rates:
                title = f"{name} ÷ {other}, {size:,}"
                ours, theirs = ((whole[each], rates[each]) for each in (name, other))
                report.compare_runs(title, ours, theirs, low=low)
        report.judge_idle(f"{name}, {size:,}", bench.idle[name])


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000], help="numbers of events"
    )
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True, help="with Bytewax"
    )


if __name__ == "__main__":
    main()
