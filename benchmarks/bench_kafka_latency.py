"""How long a message is under way: from the producer through Kafka, a map, and Kafka to a reader.

A probe in a process of its own sends events at a steady pace and reads what becomes of them with
``isolation.level=read_committed``, so a result counts when it is committed. The settings are the
defaults, without the pauses between epochs: ``latency_target_ms`` is 0, and at least once tasks
read on. Quix Streams and Bytewax do the same beside us, in shorter rounds; Quix Streams commits as
often as is best of a few settings that are tried before, and Bytewax has no exactly-once sink.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bicycle_runs import Engine, JobRun, job, spark_engine
from kafka_peers import BYTEWAX_KAFKA, QUIX, bytewax_processes, quix_processes
from kafka_topics import PARTITIONS, Place, kafka_place
from measuring import (
    Report,
    Table,
    Target,
    WrongOutputError,
    add_peers,
    arguments,
    in_turns,
    percentile,
)
from peers import Peer, available
from workloads import scratch

from bicycle_runtime.engine.options import EngineOptions

ONCE, LEAST = "exactly-once", "at-least-once"
P99_HIGHS = {(10_000, ONCE): 110.0, (10_000, LEAST): 40.0}
JUDGED = (
    "p99 at 10,000 messages a second, median of the rounds of 60 s: at least once ≤ 40 ms, exactly "
    "once ≤ 110 ms"
)
# Seconds between commits. Ours commits with every epoch; 5 is the default of Quix Streams.
QUIX_COMMITS_S = {LEAST: (0.1, 5.0), ONCE: (0.05, 0.1, 0.25)}
_PROBE = Path(__file__).parent / "kafka_probe.py"


@dataclass(slots=True)
class Bench:
    """One pace: its contenders and the latencies of all their rounds."""

    place: Place
    engine: Engine
    rate: int
    seconds: float
    warm_s: float
    peer_seconds: float
    settings: EngineOptions
    quix_commits_s: dict[str, float] = field(default_factory=dict)
    latencies_ms: dict[str, list[list[float]]] = field(default_factory=dict)
    runs: dict[str, list[JobRun]] = field(default_factory=dict)

    def ours(self, guarantee: str) -> float:
        """Return the 99th percentile of our job."""
        name = f"Bicycle, {guarantee}"
        stop = threading.Event()
        with self._topics() as (source, target, folder), ThreadPoolExecutor(1) as pool:
            params = {
                "brokers": self.place.bootstrap, "source": source, "target": target,
                "guarantee": guarantee, "bounded": "false",
            }  # fmt: skip
            setup = job("kafka_map", params, storage=folder)
            running = pool.submit(self.engine.run, setup, options=self.settings, stop=stop)
            try:
                found = self._probe(
                    name, source, target, seconds=self.seconds, is_alive=lambda: not running.done()
                )
            finally:
                stop.set()
            self.runs.setdefault(name, []).append(running.result())
        return found

    def quix(self, guarantee: str) -> float:
        """Return the 99th percentile of Quix Streams."""
        start = partial(
            quix_processes, guarantee=guarantee, commit_s=self.quix_commits_s[guarantee]
        )
        return self._peer(f"{QUIX.name}, {guarantee}", start)

    def quix_settings(self) -> Table:
        """Try how often Quix Streams is best to commit; return the table, and keep the best.

        Each setting has two rounds, of which the better one counts: the first of all rounds meets a
        broker that is not warm yet.
        """
        rows = []
        for guarantee, commits_s in QUIX_COMMITS_S.items():
            found = dict.fromkeys(commits_s, math.inf)
            for commit_s in commits_s * 2:
                self.quix_commits_s[guarantee] = commit_s
                found[commit_s] = min(found[commit_s], self.quix(guarantee))
                del self.latencies_ms[f"{QUIX.name}, {guarantee}"]
            best = self.quix_commits_s[guarantee] = min(found, key=found.__getitem__)
            for commit_s, p99 in found.items():
                taken = " (taken)" if commit_s == best else ""
                name = f"{guarantee}, a commit every {commit_s:g} s{taken}"
                rows.append([name, f"{p99:.1f}"])
        title = f"{QUIX.name}, {self.rate:,} messages a second"
        return Table(title=title, columns=["settings", "p99 ms, better of two"], rows=rows)

    def bytewax(self) -> float:
        """Return the 99th percentile of Bytewax, which writes at least once."""
        return self._peer(f"{BYTEWAX_KAFKA.name}, {LEAST}", bytewax_processes)

    def contenders(self, peers: list[Peer]) -> dict[str, Callable[[], float]]:
        """Return what takes turns."""
        found: dict[str, Callable[[], float]] = {}
        for guarantee in (LEAST, ONCE):
            found[f"Bicycle, {guarantee}"] = partial(self.ours, guarantee)
            if QUIX in peers:
                found[f"{QUIX.name}, {guarantee}"] = partial(self.quix, guarantee)
        if BYTEWAX_KAFKA in peers:
            found[f"{BYTEWAX_KAFKA.name}, {LEAST}"] = self.bytewax
        return found

    def table(self) -> Table:
        """Return the percentiles: of each the median of the rounds."""
        rows = []
        for name, rounds in self.latencies_ms.items():
            cells = [_median(rounds, share) for share in (0.5, 0.95, 0.99, 1.0)]
            rows.append([name, *(f"{value:.1f}" for value in cells)])
        columns = ["milliseconds", "p50", "p95", "p99", "max"]
        return Table(title=f"{self.rate:,} messages a second", columns=columns, rows=rows)

    def epoch_table(self) -> Table:
        """Return what our epochs were like."""
        rows = []
        for name, runs in self.runs.items():
            epochs = [stats for run in runs for stats in run.full_epochs()]
            rows += [
                [f"{name}, {phase}", *_spread([stats.phases_ms[phase] for stats in epochs])]
                for phase in ("run", "publish_wait", "seal")
            ]
            rows.append([f"{name}, whole epoch", *_spread([s.duration_ms for s in epochs])])
        title = f"Epochs of Bicycle at {self.rate:,} messages a second"
        return Table(title=title, columns=["milliseconds", "median", "p95", "p99"], rows=rows)

    def judge(self, report: Report) -> None:
        """Add the 99th percentiles to the report."""
        for name, rounds in self.latencies_ms.items():
            guarantee = name.rpartition(", ")[2]
            high = P99_HIGHS.get((self.rate, guarantee)) if name.startswith("Bicycle") else None
            report.targets.append(
                Target(
                    name=f"p99 at {self.rate:,}/s, {name}",
                    value=_median(rounds, 0.99),
                    best=min(percentile(found, 0.99) for found in rounds),
                    high=high,
                    unit="ms",
                )
            )

    @contextmanager
    def _topics(self) -> Iterator[tuple[str, str, Path]]:
        source, target = self.place.create("events"), self.place.create("orders")
        with scratch("kafka-latency") as folder:
            yield source, target, folder
        for topic in (source, target):
            self.place.delete(topic)

    def _peer(
        self, name: str, start: Callable[..., AbstractContextManager[list[subprocess.Popen[bytes]]]]
    ) -> float:
        with (
            self._topics() as (source, target, folder),
            start(
                self.place, "kafka_map", source=source, target=target, folder=folder
            ) as processes,
        ):

            def is_alive() -> bool:
                return all(process.poll() is None for process in processes)

            return self._probe(name, source, target, seconds=self.peer_seconds, is_alive=is_alive)

    def _probe(
        self, name: str, source: str, target: str, *, seconds: float, is_alive: Callable[[], bool]
    ) -> float:  # fmt: skip
        words = [
            sys.executable, _PROBE, self.place.bootstrap, source, target, self.rate, seconds,
            self.warm_s,
        ]  # fmt: skip
        with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True) as process:
            told, _ = process.communicate()
        if process.returncode or not is_alive():
            raise RuntimeError(f"{name}: the probe ended with {process.returncode}, or the job did")
        answer = json.loads(told.splitlines()[-1])
        if answer["lost"] or answer["twice"]:
            raise WrongOutputError(f"{name}: {answer['lost']} lost, {answer['twice']} twice")
        self.latencies_ms.setdefault(name, []).append(answer["latencies_ms"])
        return percentile(answer["latencies_ms"], 0.99)


def main() -> None:
    """Measure every pace and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options, judged=JUDGED)
    if options.quick:
        options.rates, options.seconds, options.warm_up = [500], 2.0, 1.0
    wanted = (QUIX, BYTEWAX_KAFKA) if options.peers and not options.quick else ()
    peers, notes = available(wanted)
    settings = EngineOptions(epoch_interval_ms=options.epoch_interval_ms)
    report = Report(
        name="kafka-latency",
        claim="At 10,000 messages a second, the p99 latency is at most 40 ms at least once, "
        "and at most 110 ms exactly once.",
        payload=f"JSON events of about 100 bytes, {PARTITIONS} partitions in and out",
        method=f"{options.repeats} rounds in turns of {options.seconds:g} s, others "
        f"{options.peer_seconds:g} s, on a warm engine, after {options.warm_up:g} s to "
        "warm up; from before produce() until a read_committed consumer returns the "
        f"result; epoch_interval_ms={settings.epoch_interval_ms}, everything else as "
        "with latency_target_ms=0; broker and probe share the machine; every message "
        "must arrive exactly once",
        notes=notes,
    )
    with kafka_place() as place, spark_engine() as engine:
        for rate in options.rates:
            bench = Bench(
                place, engine, rate, options.seconds, options.warm_up, options.peer_seconds,
                settings,
            )  # fmt: skip
            if QUIX in peers:
                report.tables.append(bench.quix_settings())
            in_turns(bench.contenders(peers), rounds=options.repeats)
            report.tables += [bench.table(), bench.epoch_table()]
            bench.judge(report)
    report.tell(options)


def _median(rounds: list[list[float]], share: float) -> float:
    return statistics.median(percentile(found, share) for found in rounds)


def _spread(values: list[float]) -> list[str]:
    shares = [percentile(values, share) for share in (0.5, 0.95, 0.99)]
    return [f"{value:.1f}" for value in shares]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rates", type=int, nargs="+", default=[10_000], help="messages a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of a round")
    parser.add_argument(
        "--peer-seconds", type=float, default=10.0, help="length of a round of another system"
    )
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds before each round")
    parser.add_argument(
        "--epoch-interval-ms", type=int, default=EngineOptions().epoch_interval_ms,
        help="least time between the starts of two epochs (default %(default)s)",
    )  # fmt: skip
    add_peers(parser, "Quix Streams and Bytewax")


if __name__ == "__main__":
    main()
