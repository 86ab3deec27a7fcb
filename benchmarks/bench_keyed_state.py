"""A keyed process function with value state over a million keys, on Spark, sealed with every epoch.

Bicycle reads keys from files, counts the events of each in value state, and writes each count, with
state in memory and with RocksDB; beside it run plain loops, which keep nothing, Bytewax with its
recovery, and PyFlink with both of its state backends. The whole run is judged, in which each key
comes once before any comes again: events per second, divided by the two cores. A job on one core
alone is told, and the processor time of the same job within one process, without Spark.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from bicycle_runs import CORES, Engine, engine_on, job, lap_of, spark_engine, warm_up
from file_laps import bytewax_lap, flink_lap, plain_laps
from flink_peer import FLINK_MODES, PYFLINK
from keyed_counts import counting
from measuring import Report, Table, Target, WrongOutputError, add_peers, arguments, in_turns
from paces import PEER_ROUNDS, Lap, Paces
from peers import BYTEWAX, Peer, available
from workloads import KeyEvents, check_counts, scratch

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness
from bicycle_sdk import fail

BACKENDS = ("memory", "rocksdb")
OURS = f"Bicycle, {BACKENDS[0]}"
PLAIN = {f"plain loop, {parser}": f"words-{parser}" for parser in ("json", "msgspec")}
FLINK_STATES = ("hashmap", "rocksdb")
LEAST = 100_000
JUDGED = f"{OURS}, whole run on Spark, events per second and core ≥ {LEAST:,}; idle cores ≤ 10 %"


def ours(engine: Engine, events: KeyEvents, backend: str, *, parallelism: int = CORES) -> Lap:
    """Run our job and check what it wrote."""
    with scratch("keyed") as place:
        params = {"input": events.folder(), "output": place / "output"}
        setup = job(
            "events_of_keys", params, storage=place / "checkpoints", parallelism=parallelism
        )
        state = EngineOptions(state_backend=backend, state_dir=str(place / "local"))
        run = engine.run(setup, options=state)
        check_counts(place / "output", events)
    return lap_of(run)


def main() -> None:
    """Measure all and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options, judged=JUDGED)
    if options.quick:
        options.keys, options.events, options.epoch_events = 2_000, 6_000, 2_000
    events = KeyEvents(count=options.events, keys=options.keys)
    wanted = (BYTEWAX, PYFLINK) if options.peers and not options.quick else ()
    peers, notes = available(wanted)
    paces = Paces(text=events.text, unit="events")
    with spark_engine() as engine:
        runs = {f"Bicycle, {name}": partial(ours, engine, events, name) for name in BACKENDS}
        runs |= plain_laps(PLAIN, events, check=check_counts)
        others = _others(peers, options)
        if not options.quick:
            few = KeyEvents(count=200_000, keys=50_000)
            for backend in BACKENDS:
                warm_up(partial(ours, engine, few, backend), least=2, most=4)
        in_turns(
            paces.turns(runs) | paces.turns(others, most=PEER_ROUNDS),
            rounds=options.repeats, is_enough=paces.enough(OURS, is_judged=not options.quick),
        )  # fmt: skip
    report = Report(
        name="keyed-state",
        claim="A keyed process function with value state processes 100,000 events a second "
        "and core, durable in every epoch.",
        payload=f"{events.text}, keys of 12 characters; slower systems get "
        f"{options.peer_events:,} events of {options.peer_keys:,} keys",
        method=f"{options.repeats} rounds or more in turns on a warm engine, two cores each; "
        "from file to file; steady is the rate after the first third; all counts "
        "compared with the expected results",
        tables=[paces.table()],
        targets=_targets(paces),
        notes=notes,
    )
    paces.judge(report, OURS, dict.fromkeys(name for name in paces.laps if name != OURS))
    paces.judge_idle(report, OURS)
    if not options.quick:
        report.tables.append(_on_one_core(events))
    report.tables.append(_in_one_process(options))
    report.tell(options)


def _others(peers: list[Peer], options: argparse.Namespace) -> dict[str, Callable[[], Lap]]:
    fewer = KeyEvents(count=options.peer_events, keys=options.peer_keys)
    found: dict[str, Callable[[], Lap]] = {}
    if BYTEWAX in peers:
        found[BYTEWAX.name] = partial(
            bytewax_lap, "bytewax_words", fewer, check=check_counts, is_durable=True,
            process_count=CORES, snapshot_s=1,
        )  # fmt: skip
    if PYFLINK in peers:
        for mode, name in FLINK_MODES.items():
            for state in FLINK_STATES:
                found[f"{name}, {state}"] = partial(
                    flink_lap, "flink_words", fewer, check=check_counts, mode=mode, state=state
                )
    return found


def _targets(paces: Paces) -> list[Target]:
    targets = []
    for backend in BACKENDS:
        for kind, found in (("whole run", paces.whole), ("steady", paces.steady)):
            rates = [rate / CORES for rate in found(f"Bicycle, {backend}")]
            is_judged = backend == BACKENDS[0] and kind == "whole run"
            targets.append(
                Target(
                    name=f"events per second and core, {backend}, {kind}",
                    value=statistics.median(rates), best=max(rates),
                    low=LEAST if is_judged else None,
                )
            )  # fmt: skip
    return targets


def _on_one_core(events: KeyEvents) -> Table:
    """Run ours and the loops on one core alone, that is one task, or one process."""
    paces = Paces(text=f"One core alone, {events.text}", unit="events")
    with engine_on(core=0) as engine:
        few = KeyEvents(count=200_000, keys=50_000)
        warm_up(partial(ours, engine, few, BACKENDS[0], parallelism=1), least=2, most=3)
        runs: dict[str, Callable[[], Lap]] = {
            OURS: partial(ours, engine, events, BACKENDS[0], parallelism=1),
            **plain_laps(PLAIN, events, check=check_counts, process_count=1),
        }
        in_turns(paces.turns(runs), rounds=1)
    return paces.table()


def _in_one_process(options: argparse.Namespace) -> Table:
    """Run epochs over a state of all keys in this process, and a dict that keeps nothing."""
    keys = [f"user-{number:07}" for number in range(options.keys)]
    chance = random.Random(1)
    engine = EngineOptions(max_records_per_epoch=max(options.keys, options.epoch_events))
    with Harness(counting(fail()), parallelism=1, engine=engine) as harness:
        known: Counter[str] = Counter()
        epoch = partial(_epoch, harness, known)
        epoch(keys)

        def drawn() -> list[str]:
            return chance.choices(keys, k=options.epoch_events)

        contenders = {
            "bicycle, without Spark": lambda: epoch(drawn()),
            "plain dict": lambda: _plain(Counter(keys), drawn()),
        }
        found = in_turns(contenders, rounds=options.repeats)
    rows = [
        [name, f"{statistics.median(paces):,.0f}", f"{max(paces):,.0f}"]
        for name, paces in found.items()
    ]
    return Table(
        title=f"In one process, epochs of {options.epoch_events:,} events: per second of processor "
        "time",
        columns=["contender", "median", "best"],
        rows=rows,
    )


def _epoch(harness: Harness, known: Counter[str], events: list[str]) -> float:
    """Run one epoch and return its events per second of processor time."""
    harness.push(events)
    before = len(harness.results("out"))
    began = time.process_time()
    harness.run()
    spent = time.process_time() - began
    expected = 0
    for event in events:
        known[event] += 1
        expected += known[event]
    if sum(harness.results("out")[before:]) != expected:
        raise WrongOutputError(f"the counts of {len(events)} events do not add up")
    return len(events) / spent


def _plain(counts: Counter[str], events: list[str]) -> float:
    began = time.process_time()
    results = []
    for event in events:
        counts[event] += 1
        results.append(counts[event])
    return len(results) / (time.process_time() - began)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys with state")
    parser.add_argument("--events", type=int, default=5_000_000, help="events in all")
    parser.add_argument("--peer-keys", type=int, default=100_000, help="keys for slower systems")
    parser.add_argument("--peer-events", type=int, default=200_000, help="events for them")
    parser.add_argument(
        "--epoch-events", type=int, default=250_000, help="events of one epoch in one process"
    )
    add_peers(parser, "Bytewax and PyFlink")


if __name__ == "__main__":
    main()
