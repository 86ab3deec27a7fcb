"""Kafka to Kafka: a map and a keyed count, at least once and exactly once; and bare reading.

Bicycle on two cores against Quix Streams and Bytewax with two processes each, in turns, between
topics of one broker, which shares the machine with all of them. Reading is our source in one
process against a plain ``consume()`` loop of the client with the same settings.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bicycle_runs import Engine, JobRun, job, lap_of, spark_engine, warm_up
from confluent_kafka import TopicPartition
from kafka_peers import BYTEWAX_KAFKA, QUIX, run_bytewax_kafka, run_quix
from kafka_topics import PARTITIONS, Output, Place, kafka_place
from measuring import (
    Report,
    Table,
    Target,
    WrongOutputError,
    add_peers,
    arguments,
    in_turns,
    percentile,
    ratios,
)
from peers import Peer, available
from workloads import Events, scratch

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.connectors.registry import create_source
from bicycle_runtime.contract import Budget, ConnectorSpec, DriverServices, Source, SourceReader
from bicycle_sdk.clock import SystemClock

ONCE, LEAST = "exactly-once", "at-least-once"
JOBS = ("kafka_map", "kafka_count")
TEXTS = {"kafka_map": "map", "kafka_count": "keyed count"}
QUIX_LOWS = {"kafka_map": 3.0, "kafka_count": 4.0}
BARE = "bare consume() loop"
READERS = {"our source, bytes": "bytes", "our source, str": "string", "our source, JSON": "json"}
USERS = 10_000
QUICK_COUNT = 20_000
# What an epoch of two seconds takes.
EPOCH = Budget(record_count=500_000, byte_count=128 << 20, parallelism=1)
_CALL_COUNT = 10_000


@dataclass(slots=True)
class Bench:
    """One job: its contenders and what their runs were like."""

    place: Place
    engine: Engine
    name: str
    source: tuple[str, Events]
    peer_source: tuple[str, Events] | None
    peers: list[Peer]
    whole: dict[str, list[float]] = field(default_factory=dict)
    runs: dict[str, list[JobRun]] = field(default_factory=dict)

    def run(self, guarantee: str) -> tuple[JobRun, Output]:
        topic, events = self.source
        with self._target() as (target, folder):
            run = run_ours(
                self.place, self.engine, self.name,
                topics=(topic, target), guarantee=guarantee, folder=folder,
            )  # fmt: skip
            return run, self._check(target, events)

    def ours(self, guarantee: str) -> float:
        run, output = self.run(guarantee)
        self.runs.setdefault(guarantee, []).append(run)
        self.whole.setdefault(f"Bicycle, {guarantee}", []).append(run.whole_rate)
        return output.steady_rate

    def quix(self, guarantee: str) -> float:
        assert self.peer_source is not None
        topic, events = self.peer_source
        with self._target() as (target, folder):
            run_quix(
                self.place, self.name, source=topic, target=target, guarantee=guarantee,
                count=events.count, folder=folder,
            )  # fmt: skip
            return self._rates(f"{QUIX.name}, {guarantee}", self._check(target, events))

    def bytewax(self) -> float:
        assert self.peer_source is not None
        topic, events = self.peer_source
        with self._target() as (target, folder):
            run_bytewax_kafka(self.place, self.name, source=topic, target=target, folder=folder)
            return self._rates(f"{BYTEWAX_KAFKA.name}, {LEAST}", self._check(target, events))

    def contenders(self) -> dict[str, Callable[[], float]]:
        found: dict[str, Callable[[], float]] = {}
        for guarantee in (LEAST, ONCE):
            found[f"Bicycle, {guarantee}"] = partial(self.ours, guarantee)
            if QUIX in self.peers:
                found[f"{QUIX.name}, {guarantee}"] = partial(self.quix, guarantee)
        if BYTEWAX_KAFKA in self.peers:
            found[f"{BYTEWAX_KAFKA.name}, {LEAST}"] = self.bytewax
        return found

    def table(self, rates: dict[str, list[float]]) -> Table:
        rows = [[name, *_rates(found), *_rates(self.whole[name])] for name, found in rates.items()]
        columns = ["messages/s", "steady: median", "best", "whole run: median", "best"]
        title = f"Kafka → {TEXTS[self.name]} → Kafka, {self.source[1].count:,} messages"
        return Table(title=title, columns=columns, rows=rows)

    def epoch_table(self) -> Table:
        rows = []
        for guarantee, runs in self.runs.items():
            epochs = [stats for run in runs for stats in run.full_epochs()]
            for phase in ("run", "publish_wait", "seal"):
                spent = [stats.phases_ms[phase] for stats in epochs]
                cells = [statistics.median(spent), percentile(spent, 0.95), max(spent)]
                rows.append([f"{guarantee}, {phase}", *(f"{value:.0f}" for value in cells)])
        columns = ["milliseconds", "median", "p95", "max"]
        return Table(title=f"Epochs of the {TEXTS[self.name]}", columns=columns, rows=rows)

    def judge(self, report: Report, rates: dict[str, list[float]]) -> None:
        text = TEXTS[self.name]
        pairs: list[tuple[str, str, float | None]] = [
            (f"Bicycle, {ONCE}", f"Bicycle, {LEAST}", 0.7),
            (f"Bicycle, {LEAST}", f"{QUIX.name}, {LEAST}", QUIX_LOWS[self.name]),
            (f"Bicycle, {ONCE}", f"{QUIX.name}, {ONCE}", QUIX_LOWS[self.name]),
            (f"Bicycle, {LEAST}", f"{BYTEWAX_KAFKA.name}, {LEAST}", None),
        ]
        for mine, other, low in pairs:
            if mine in rates and other in rates:
                title = f"{text}: {mine} ÷ {other}"
                for kind, found, bound in (("whole run", self.whole, low), ("steady", rates, None)):
                    report.compare(f"{title}, {kind}", found[mine], found[other], low=bound)

    def _check(self, target: str, events: Events) -> Output:
        check = {"kafka_map": self.place.check_orders, "kafka_count": self.place.check_counts}
        return check[self.name](target, events)

    def _rates(self, name: str, output: Output) -> float:
        self.whole.setdefault(name, []).append(output.whole_rate)
        return output.steady_rate

    @contextmanager
    def _target(self) -> Iterator[tuple[str, Path]]:
        target = self.place.create(self.name)
        with scratch("kafka-run") as folder:
            yield target, folder
        self.place.delete(target)


def run_ours(
    place: Place, engine: Engine, name: str, *, topics: tuple[str, str], guarantee: str,
    folder: Path,
) -> JobRun:  # fmt: skip
    """Run one of our jobs to the end of its source; ``topics`` are source and target."""
    source, target = topics
    params = {
        "brokers": place.bootstrap, "source": source, "target": target, "guarantee": guarantee,
    }  # fmt: skip
    return engine.run(job(name, params, storage=folder))


def read_bare(place: Place, topic: str, count: int) -> float:
    """Return messages per second of the loop that everybody writes first."""
    consumer = place.consumer(**{"fetch.wait.max.ms": 10})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        return pace((len(consumer.consume(_CALL_COUNT, 0.1)) for _ in itertools.count()), count)
    finally:
        consumer.close()


def read_ours(place: Place, topic: str, count: int, value_format: str) -> float:
    """Return messages per second of our source, planned and read as in a job's epochs."""
    properties = {"brokers": place.bootstrap, "topics": [topic], "value_format": value_format}
    source = create_source(
        ConnectorSpec(vertex_id="in", connector_type="kafka", properties=properties)
    )
    with scratch("kafka-read") as folder:
        services = DriverServices(
            storage=LocalStorage(folder, is_synced=False), prefix="connectors/in",
            clock=SystemClock(), collected={}, console=print,
        )  # fmt: skip
        source.start(services, {}, {})
        reader = source.reader()
        try:
            return pace(_read_epochs(source, reader), count)
        finally:
            reader.close()
            source.stop()


def _read_epochs(source: Source, reader: SourceReader) -> Iterator[int]:
    """Yield the sizes of batches, epoch after epoch."""
    while True:
        ends: dict[str, int] = {}
        for part in source.plan(EPOCH) if source.poll().has_input else []:
            for batch in reader.read(part):
                ends[part.shard] = batch.next_offset
                yield len(batch.values)
        source.sealed(ends)


def pace(sizes: Iterable[int], count: int) -> float:
    """Return messages per second behind the first that came, so without connecting."""
    found = skipped = 0
    began = 0.0
    for size in sizes:
        found += size
        if found and not skipped:
            skipped, began = found, time.monotonic()
        if found >= count:
            break
    if found != count:
        raise WrongOutputError(f"{found} messages were read, expected {count}")
    return (found - skipped) / (time.monotonic() - began)


def main() -> None:
    """Measure reading and both jobs, and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options)
    if options.quick:
        options.size = options.peer_size = QUICK_COUNT
    events, fewer = (Events(count=n, users=USERS) for n in (options.size, options.peer_size))
    wanted = (QUIX, BYTEWAX_KAFKA) if options.peers and not options.quick else ()
    peers, notes = available(wanted)
    report = Report(
        name="kafka-throughput",
        claim="Exactly once has 0.7 of the throughput of at least once, and both are three to four "
        "times as fast as Quix Streams.",
        payload=f"{events.text} of {USERS:,} users, the user as key, {PARTITIONS} partitions; "
        f"{fewer.count:,} of them for the other systems",
        method=f"{options.repeats} rounds in turns on a warm engine, two cores each, which "
        "the broker shares; steady is the rate after the first third; every output "
        "message compared with the expected results, read with read_committed",
        notes=notes,
    )
    with kafka_place() as place:
        topics = {events: place.fill(events)}
        if peers and fewer not in topics:
            topics[fewer] = place.fill(fewer)
        _measure_reading(report, place, topics[events], events, options)
        with spark_engine() as engine:
            for name in JOBS:
                sources = {found: (topic, found) for found, topic in topics.items()}
                bench = Bench(place, engine, name, sources[events], sources.get(fewer), peers)
                _measure_job(report, bench, options)
    report.tell(options)


def _measure_reading(
    report: Report, place: Place, topic: str, events: Events, options: argparse.Namespace
) -> None:
    contenders: dict[str, Callable[[], float]] = {
        BARE: partial(read_bare, place, topic, events.count)
    }
    for name, value_format in READERS.items():
        contenders[name] = partial(read_ours, place, topic, events.count, value_format)
    rates = in_turns(contenders, rounds=options.repeats)
    rows = [[name, *_rates(found)] for name, found in rates.items()]
    columns = ["messages/s", "median", "best"]
    report.tables.append(Table(title="Reading in one process", columns=columns, rows=rows))
    for name, value_format in READERS.items():
        median, best = ratios(rates[name], rates[BARE])
        low = 0.7 if value_format != "json" else None  # The bare loop parses nothing.
        title = f"reading: {name} ÷ {BARE}"
        report.targets.append(Target(name=title, value=median, best=best, low=low, unit="x"))


def _measure_job(report: Report, bench: Bench, options: argparse.Namespace) -> None:
    if not options.quick:
        warm_up(lambda: lap_of(bench.run(LEAST)[0]), least=1, most=3)
    rates = in_turns(bench.contenders(), rounds=options.repeats)
    report.tables += [bench.table(rates), bench.epoch_table()]
    bench.judge(report, rates)


def _rates(values: list[float]) -> list[str]:
    return [f"{statistics.median(values):,.0f}", f"{max(values):,.0f}"]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", type=int, default=2_000_000, help="messages")
    parser.add_argument(
        "--peer-size", type=int, default=500_000, help="messages for the other systems"
    )
    add_peers(parser, "Quix Streams and Bytewax")


if __name__ == "__main__":
    main()
