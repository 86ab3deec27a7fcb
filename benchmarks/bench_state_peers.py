"""Running totals by key, ours on both backends and PySpark's ``transformWithState`` on RocksDB.

The same words in the same steps for all, on two cores: every key once (its state is put), every key
once more in another order (its state is read and put), then small batches that touch a few of all
keys, which is what a commit costs. At the end all are started again, in a Java process that is
warm, and count one more small batch: the time until it is done holds the way back to the state.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
from bicycle_runs import Engine, JobRun, job, spark_engine
from measuring import Report, Table, Target, WrongOutputError, arguments, in_turns, steady_rate
from peers import SPARK_STATE, available, run_spark_state
from workloads import scratch

from bicycle_runtime.engine.options import EngineOptions

BACKENDS = ("memory", "rocksdb")
FIGURES = ("put, µs a record", "get and put, µs a record", "small batch, ms", "restart, s")
LARGE = 10  # Files of a step that goes over all keys.
SMALL, LAST = 2, 3  # The step of small batches, and the one behind the restart.

Batches = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """How many keys there are, and how many small batches touch how many of them."""

    keys: int
    touched: int
    batches: int

    def write(self, folder: Path) -> list[list[Path]]:
        """Write the input into a folder for each step; the last one comes after the restart."""
        source = random.Random(11)
        everything = list(range(self.keys))
        again = source.sample(everything, self.keys)
        small = [source.sample(everything, self.touched) for _ in range(self.batches + 1)]
        steps = [_parts(everything), _parts(again), small[:-1], small[-1:]]
        written = []
        for number, parts in enumerate(steps):
            place = folder / f"step-{number}"
            place.mkdir(parents=True)
            written.append([_write(place, number, parts) for number, parts in enumerate(parts)])
        return written

    @property
    def text(self) -> str:
        """What a reader must know of it."""
        return (
            f"{self.keys:,} keys, each twice; then batches that touch {self.touched:,} of them, "
            "one word a line"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one run was like: records and seconds of each batch, step by step."""

    put: Batches
    known: Batches
    small: Batches
    restart_s: float

    def figures(self) -> tuple[float, ...]:
        """Return what ``FIGURES`` names; the first third of a step warms it up."""
        return (
            1e6 / steady_rate(self.put),
            1e6 / steady_rate(self.known),
            1e3 * statistics.median(seconds for _, seconds in self.small),
            self.restart_s,
        )


@dataclass(slots=True)
class Bench:
    """The contenders, and what their runs were like."""

    engine: Engine
    steps: Steps
    found: dict[str, list[Found]] = field(default_factory=dict)

    def ours(self, backend: str) -> float:
        with scratch("state-peers") as place:
            run = self._ours(place, backend)
        return self._keep(f"Bicycle, {backend}", run)

    def spark(self) -> float:
        """Run Spark: one micro-batch per file, in the order of their times."""
        with scratch("state-peers") as place:
            steps = self.steps.write(place)
            source = place / "input"
            source.mkdir()
            for number, file in enumerate([file for step in steps[:-1] for file in step]):
                target = source / f"{number:05}.txt"
                file.rename(target)
                os.utime(target, (number + 1, number + 1))
            later = steps[-1][0].rename(steps[-1][0].with_name("later.txt"))
            run = run_spark_state(source, place / "output", later=later.parent)
            check(place / "output", source)
        ends = (LARGE, 2 * LARGE, len(run.batches))
        return self._keep(
            SPARK_STATE.name,
            Found(
                put=run.batches[: ends[0]],
                known=run.batches[ends[0] : ends[1]],
                small=run.batches[ends[1] :],
                restart_s=run.restart_s,
            ),
        )

    def _ours(self, place: Path, backend: str) -> Found:
        steps, source = self.steps.write(place), place / "input"
        source.mkdir()
        batches, seconds = [], 0.0
        for number, files in enumerate(steps):
            for file in files:
                file.rename(source / f"{number}-{file.name}")
            run, seconds = self._run(place, backend, step=number)
            batches.append(_batches(run))
        check(place / "output", source)
        put, known, small, _ = batches
        # The first epoch behind a start loads the state: that is told by the restart.
        return Found(put=put, known=known[1:], small=small[1:], restart_s=seconds)

    def _run(self, place: Path, backend: str, *, step: int) -> tuple[JobRun, float]:
        """Go on with the input of a step; return also the seconds from the start to the end."""
        params = {"input": place / "input", "output": place / "output"}
        setup = job("wordcount", params, storage=place / "checkpoints")
        limit = {"max_records_per_epoch": self.steps.touched} if step >= SMALL else {}
        folder = str(place / "local")
        options = EngineOptions(state_backend=backend, state_dir=folder, **limit)
        began = time.monotonic()
        run = self.engine.run(setup, options=options, is_finished=step == LAST)
        return run, time.monotonic() - began

    def _keep(self, name: str, run: Found) -> float:
        self.found.setdefault(name, []).append(run)
        return run.restart_s


def check(output: Path, source: Path) -> None:
    """See that each word that came n times was counted from 1 to n.

    Raises:
        WrongOutputError: it was not.
    """
    words = Counter(word for file in source.iterdir() for word in file.read_text().split())
    left = {word: count * (count + 1) // 2 for word, count in words.items()}
    decode = msgspec.json.Decoder(dict[str, str | int]).decode
    line_count = 0
    for file in output.glob("part-*"):
        for line in file.read_bytes().splitlines():
            record = decode(line)
            left[record["word"]] -= record["count"]
            line_count += 1
    if line_count != words.total() or any(left.values()):
        raise WrongOutputError(f"{line_count} counts of {words.total()} words, or wrong ones")


def main() -> None:
    """Measure all and tell."""
    options = arguments(__doc__, repeats=2, add=_add_options)
    steps = Steps(keys=options.keys, touched=options.touched, batches=options.batches)
    if options.quick:
        steps = Steps(keys=5_000, touched=200, batches=3)
    peers, notes = available(() if options.quick else (SPARK_STATE,))
    with spark_engine() as engine:
        bench = Bench(engine, steps)
        contenders = {f"Bicycle, {name}": partial(bench.ours, name) for name in BACKENDS}
        if SPARK_STATE in peers:
            contenders[SPARK_STATE.name] = bench.spark
        warm_up = Bench(engine, Steps(keys=20_000, touched=1_000, batches=2))
        for backend in BACKENDS if not options.quick else ():
            warm_up.ours(backend)
        in_turns(contenders, rounds=options.repeats)
    report = Report(
        name="state-peers",
        claim="Reading, writing, sealing and restoring keyed state in Python is faster than "
        "with transformWithState.",
        payload=steps.text,
        method=f"{options.repeats} rounds in turns, two cores each; the throughput of a step after "
        "its first third; a restart is a start of the query in a warm Java process, "
        "until its first batch is complete; counts compared with the expected results "
        "in every run",
        tables=[_table(bench.found)],
        targets=_targets(bench.found),
        notes=notes,
    )
    report.tell(options)


def _table(found: dict[str, list[Found]]) -> Table:
    rows = [[name, *(f"{value:,.2f}" for value in _medians(runs))] for name, runs in found.items()]
    return Table(title="By step, medians", columns=["contender", *FIGURES], rows=rows)


def _targets(found: dict[str, list[Found]]) -> list[Target]:
    if SPARK_STATE.name not in found:
        return []
    theirs = _medians(found[SPARK_STATE.name])
    targets = []
    for backend in BACKENDS:
        ours = _medians(found[f"Bicycle, {backend}"])
        for name, their, our in zip(FIGURES, theirs, ours, strict=True):
            what = name.partition(",")[0]
            targets.append(
                Target(
                    name=f"{SPARK_STATE.name} ÷ Bicycle, {backend}: {what}",
                    value=their / our, unit="x", low=1,
                )
            )  # fmt: skip
    return targets


def _medians(runs: list[Found]) -> list[float]:
    return [
        statistics.median(values) for values in zip(*(run.figures() for run in runs), strict=True)
    ]


def _batches(run: JobRun) -> Batches:
    return [(stats.record_count, stats.duration_ms / 1_000) for stats in run.full_epochs()]


def _parts(keys: list[int]) -> list[list[int]]:
    return [keys[number::LARGE] for number in range(LARGE)]


def _write(folder: Path, number: int, keys: list[int]) -> Path:
    file = folder / f"{number:05}.txt"
    with file.open("w") as stream:
        stream.writelines(f"user-{key:08}\n" for key in keys)
    return file


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=1_000_000, help="all keys")
    parser.add_argument("--touched", type=int, default=1_000, help="keys of a small batch")
    parser.add_argument("--batches", type=int, default=20, help="small batches")


if __name__ == "__main__":
    main()
