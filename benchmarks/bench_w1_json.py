"""W1: JSON events read from files, parsed, filtered, mapped, written as JSON lines.

Bicycle on two cores against a plain two-process loop, Bytewax and PyFlink, in turns. The plain loop
is there with ``json`` of the standard library, which is what one would write first, and with
msgspec, the fastest; the others get orjson, and the best of a few settings that are tried before.
The largest input is also run on one core alone, and by ``bicycle run``, whose memory is watched.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bicycle_runs import Engine, engine_on, job, lap_of, spark_engine, warm_up
from command_memory import memory_table, memory_target, peaks_of
from file_laps import bytewax_lap, flink_lap, plain_laps
from flink_peer import FLINK_MODES, PYFLINK, best_bundle
from measuring import Report, add_peers, arguments, in_turns
from paces import PEER_ROUNDS, Lap, Paces, best_settings
from peers import BYTEWAX, Peer, available
from workloads import Events, check_totals, scratch

DICTS = "Bicycle, dicts"
OURS = {"Bicycle, dataclasses": "events_typed", DICTS: "events_as_dicts"}
PLAIN = {"plain loop, json": "json", "plain loop, msgspec": "msgspec"}
BOUNDS = {**dict.fromkeys(PLAIN, 1.0), BYTEWAX.name: 1.2, **dict.fromkeys(FLINK_MODES.values())}
JUDGED = (
    f"{DICTS}, whole run of the largest input ÷ each plain loop ≥ 1, ÷ {BYTEWAX.name} ≥ 1.2; "
    "idle cores from the second epoch on ≤ 10 %; driver and both workers together ≤ 400 MB; "
    "cost of a record, largest ÷ smallest input ≤ 1.15"
)
QUICK_COUNT = 20_000
# Settings of Bytewax, by the names that reports give them.
BYTEWAX_FORMS = {
    f"{processes} processes, {threads} threads each, batches of {batch:,}": {
        "process_count": processes, "thread_count": threads, "batch_size": batch,
    }
    for processes, threads in ((1, 1), (1, 2), (2, 1))
    for batch in (1_000, 10_000)
}  # fmt: skip


@dataclass(slots=True)
class Bench:
    """One input and its contenders."""

    engine: Engine
    events: Events
    paces: Paces = field(init=False)

    def __post_init__(self) -> None:
        self.paces = Paces(text=self.events.text, unit="events")

    def contenders(self, others: dict[str, Callable[[], Lap]]) -> dict[str, Callable[[], float]]:
        """Return what takes turns: ours, the loops, and others."""
        runs: dict[str, Callable[[], Lap]] = {
            name: partial(ours, self.engine, self.events, plugin) for name, plugin in OURS.items()
        }
        runs |= plain_laps(PLAIN, self.events, check=check_totals)
        return self.paces.turns(runs) | self.paces.turns(others, most=PEER_ROUNDS)


def ours(engine: Engine, events: Events, plugin: str, *, parallelism: int = 2) -> Lap:
    """Run one of our jobs and check what it wrote."""
    with scratch("w1") as place:
        params = {"input": events.folder(), "output": place / "output"}
        run = engine.run(
            job(plugin, params, storage=place / "checkpoints", parallelism=parallelism)
        )
        check_totals(place / "output", events)
    return lap_of(run)


def main() -> None:
    """Measure every size and tell."""
    options = arguments(__doc__, repeats=5, add=_add_options, judged=JUDGED)
    sizes = [QUICK_COUNT] if options.quick else sorted(options.sizes)
    wanted = (BYTEWAX, PYFLINK) if options.peers and not options.quick else ()
    peers, notes = available(wanted)
    report = Report(
        name="w1-json",
        claim="JSON events through a filter and a map are as fast as a plain loop, and 1.2 "
        "times as fast as Bytewax.",
        payload="; ".join(Events(count=size).text for size in sizes) + "; half of them pass",
        method=f"{options.repeats} rounds or more in turns on a warm engine, two cores each; "
        "steady is the rate after the first third; outputs compared with the expected "
        "results in every run; other systems get only the largest input, PyFlink its "
        f"first {options.flink_size:,} events",
        notes=notes,
    )
    largest = Events(count=sizes[-1])
    others = _others(report, peers, largest, options)
    costs: dict[int, float] = {}
    with spark_engine() as engine:
        if not options.quick:
            for plugin in OURS.values():
                warm_up(partial(ours, engine, Events(count=sizes[0]), plugin), least=3, most=8)
        for size in sizes:
            bench = Bench(engine, Events(count=size))
            is_last = size == largest.count
            paces = bench.paces
            in_turns(
                bench.contenders(others if is_last else {}), rounds=options.repeats,
                is_enough=paces.enough(DICTS, is_judged=is_last and not options.quick),
            )  # fmt: skip
            report.tables.append(paces.table())
            costs[size] = 1e9 / statistics.median(paces.whole(DICTS))
            if is_last:
                for name in OURS:
                    is_judged = name == DICTS
                    paces.judge(report, name, BOUNDS if is_judged else dict.fromkeys(BOUNDS))
                    paces.judge_idle(report, name)
    report.compare_growth(costs, "cost per event, {}")
    if not options.quick:
        _judge_memory(report, largest, rounds=3)
        report.tables.append(_on_one_core(Events(count=options.one_core_size)))
    report.tell(options)


def _others(
    report: Report, peers: list[Peer], events: Events, options: argparse.Namespace
) -> dict[str, Callable[[], Lap]]:
    """Find the best settings of other systems; return how they run."""
    bytewax = partial(bytewax_lap, "bytewax_events", check=check_totals, is_durable=False)
    flink = partial(flink_lap, "flink_events", check=check_totals)
    found: dict[str, Callable[[], Lap]] = {}
    tried = Events(count=min(events.count, options.sweep_size))
    if BYTEWAX in peers:
        forms = {
            form: partial(bytewax, tried, **settings) for form, settings in BYTEWAX_FORMS.items()
        }
        table, best = best_settings(f"{BYTEWAX.name}, {tried.text}", "events", forms)
        report.tables.append(table)
        found[BYTEWAX.name] = partial(bytewax, events, **BYTEWAX_FORMS[best])
    if PYFLINK in peers:
        fewer = Events(count=min(events.count, options.flink_size))
        tried = Events(count=min(fewer.count, options.sweep_size))
        for mode, name in FLINK_MODES.items():
            table, bundle = best_bundle(
                f"{name}, {tried.text}", "events", partial(flink, tried, mode=mode)
            )
            report.tables.append(table)
            found[name] = partial(flink, fewer, mode=mode, bundle=bundle)
    return found


def _judge_memory(report: Report, events: Events, *, rounds: int) -> None:
    """Watch the memory of ``bicycle run`` over an input."""
    file = f"{Path(__file__).with_name('benchmark_jobs.py')}:events_as_dicts"
    peaks = [
        peaks_of([file], events.folder(), check=lambda output: check_totals(output, events))
        for _ in range(rounds)
    ]
    report.tables.append(memory_table(f"Memory of `bicycle run`, {events.text}", peaks))
    report.targets.append(memory_target("driver and both workers, memory at most", peaks, high=400))


def _on_one_core(events: Events) -> object:
    """Run ours and the loops on one core alone, that is one task, or one process."""
    paces = Paces(text=f"One core alone, {events.text}", unit="events")
    with engine_on(core=0) as engine:
        runs: dict[str, Callable[[], Lap]] = {
            DICTS: partial(ours, engine, events, OURS[DICTS], parallelism=1),
            **plain_laps(PLAIN, events, check=check_totals, process_count=1),
        }
        warm_up(runs[DICTS], least=2, most=3)
        in_turns(paces.turns(runs), rounds=3)
    return paces.table()


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000], help="numbers of events"
    )
    parser.add_argument(
        "--sweep-size", type=int, default=1_000_000, help="events where settings are tried"
    )
    parser.add_argument("--flink-size", type=int, default=500_000, help="events for PyFlink")
    parser.add_argument(
        "--one-core-size", type=int, default=5_000_000, help="events where one core works alone"
    )
    add_peers(parser, "Bytewax and PyFlink")


if __name__ == "__main__":
    main()
