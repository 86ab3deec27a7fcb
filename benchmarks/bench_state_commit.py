"""What it costs to seal an epoch that touches a few keys of many.

The word count runs in this process, without Java, on one storage folder: first all keys are counted
once, then each epoch touches some. Bytes written are exact; times have the noise of the machine.
The cost of the commit must follow the touched keys, whatever the number of all keys. The time of
the whole epoch stands beside it: where there are many keys, the look-ups of the user's function
miss the processor's caches.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

from bicycle_runs import JobRun, job, local_engine
from measuring import Report, Table, Target, WrongOutputError, arguments, percentile
from workloads import scratch

from bicycle_runtime.engine.epoch.stats import EpochStats
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.operators.functions.process import StatefulOperator

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Epochs that touched ``touched`` of ``total`` keys."""

    backend: str
    total: int
    touched: int
    commit_ms: tuple[float, ...]
    epoch_ms: tuple[float, ...]
    epoch_bytes: tuple[int, ...]

    @property
    def median_ms(self) -> float:
        """Median time of a commit, over all subtasks."""
        return statistics.median(self.commit_ms)

    @property
    def median_bytes(self) -> float:
        """Median size of what an epoch writes: its own changes, without a merge of older ones."""
        return statistics.median(self.epoch_bytes)

    def cells(self) -> list[str]:
        per_key = self.median_ms * 1e6 / self.touched
        mean_bytes = statistics.mean(self.epoch_bytes)
        return [
            self.backend,
            f"{self.total:,}",
            f"{self.touched:,}",
            f"{self.median_ms:.2f}",
            f"{percentile(self.commit_ms, 0.95):.2f}",
            f"{per_key:,.0f}",
            f"{statistics.median(self.epoch_ms):.1f}",
            f"{self.median_bytes:,.0f}",
            f"{self.median_bytes / self.touched:.1f}",
            f"{mean_bytes / self.touched:.1f}",
        ]


def main() -> None:
    """Measure each pair of sizes and tell."""
    options = arguments(__doc__, repeats=1, add=_add_options)
    totals = [1_000, 10_000] if options.quick else sorted(options.totals)
    touched = [100, 500] if options.quick else sorted(options.touched)
    epochs = 4 if options.quick else options.epochs
    backends = options.backends
    found = [
        _measure(total, count, epochs, backend)
        for backend in backends
        for total in totals
        for count in touched
    ]
    report = Report(
        name="state-commit",
        claim="The cost of sealing an epoch depends on the changed keys, not on all keys.",
        payload="running word count, one word a line, keys drawn without repetition",
        method=f"median of {epochs} epochs each, in one process without Spark; a commit "
        "finds, encodes and writes the changes in both subtasks; the epoch includes "
        "all steps (read, count, write state and output, seal); the mean size per key "
        "includes merges of older changes, also of the first load; output lines are "
        "counted",
        tables=[_table(found)],
        targets=[
            target
            for backend in backends
            for target in _targets([one for one in found if one.backend == backend])
        ],
    )
    report.tell(options)


def _measure(total: int, touched: int, epochs: int, backend: str) -> Found:
    source = random.Random(7)
    # Without folding: a fold writes all keys, once per checkpoint interval, and is not the claim.
    settings = {"checkpoint_interval_ms": _HOUR_MS, "state_backend": backend}
    with scratch("state") as place, local_engine() as engine:
        lines = place / "input"
        lines.mkdir()
        _write(lines / "a.txt", range(total))
        params = {"input": lines, "output": place / "output"}
        setup = job("wordcount", params, storage=place / "checkpoints", is_synced=False)
        engine.run(setup, options=EngineOptions(**settings), is_finished=False)
        for _ in range(epochs):
            _write(lines / "b.txt", source.sample(range(total), touched))
        setup = job("wordcount", params, storage=place / "checkpoints", is_synced=False)
        options = EngineOptions(**settings, max_records_per_epoch=touched, retained_epochs=1_000)
        growth = _Growth(place / "checkpoints")
        with _stopwatch() as commits:
            run = engine.run(setup, options=options, on_epoch=partial(_behind_epoch, growth))
        gc.unfreeze()
        _check(place / "output", expected=total + touched * epochs)
        return _found(backend, total, touched, run, growth, commits)


def _behind_epoch(growth: _Growth, stats: EpochStats) -> None:
    """Note what was written, and do as a worker does: what is old is not searched for cycles."""
    growth.note(stats)
    gc.collect(0)
    gc.freeze()


@contextlib.contextmanager
def _stopwatch() -> Iterator[dict[int, float]]:
    """Note how many milliseconds the commits of each epoch take."""
    found: dict[int, float] = {}
    commit = StatefulOperator.commit

    def timed(
        self: StatefulOperator, epoch: int, attempt: str, *, is_interval_over: bool
    ) -> RangeState:
        began = time.perf_counter()
        state = commit(self, epoch, attempt, is_interval_over=is_interval_over)
        found[epoch] = found.get(epoch, 0.0) + (time.perf_counter() - began) * 1e3
        return state

    with mock.patch.object(StatefulOperator, "commit", timed):
        yield found


class _Growth:
    """Notes how many bytes of new state files there are behind each epoch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = self._files()
        self.byte_counts: list[int] = []

    def note(self, stats: EpochStats) -> None:
        files = self._files()
        if stats.record_count:
            self.byte_counts.append(sum(files[name] for name in files.keys() - self._known.keys()))
        self._known = files

    def _files(self) -> dict[str, int]:
        paths = (path for path in self._folder.rglob("state/**/*") if path.is_file())
        return {str(path): path.stat().st_size for path in paths}


def _found(
    backend: str, total: int, touched: int, run: JobRun, growth: _Growth, commits: dict[int, float]
) -> Found:
    epochs = run.full_epochs()
    if {stats.record_count for stats in epochs} != {touched}:
        raise WrongOutputError(f"epochs did not take {touched} records each")
    # The first epoch loads the state.
    durations = tuple(stats.duration_ms for stats in epochs[1:])
    sizes = tuple(growth.byte_counts[1:])
    return Found(
        backend=backend, total=total, touched=touched, epoch_ms=durations, epoch_bytes=sizes,
        commit_ms=tuple(commits[stats.epoch] for stats in epochs[1:]),
    )  # fmt: skip


def _write(file: Path, numbers: range | list[int]) -> None:
    with file.open("a") as stream:
        stream.writelines(f"key-{number:07}\n" for number in numbers)


def _check(output: Path, *, expected: int) -> None:
    count = sum(file.read_bytes().count(b"\n") for file in output.rglob("*.jsonl"))
    if count != expected:
        raise WrongOutputError(f"{count} output lines, expected {expected}")


def _table(found: list[Found]) -> Table:
    columns = [
        "state", "all keys", "touched", "commit ms: median", "p95", "ns per touched key",
        "epoch ms: median", "state bytes: median", "per touched key", "with merges",
    ]  # fmt: skip
    rows = [one.cells() for one in found]
    return Table(title="One epoch, by all keys and touched keys", columns=columns, rows=rows)


def _targets(found: list[Found]) -> list[Target]:
    """Judge one backend; ``found`` begins with the fewest keys and ends with the most touched."""
    by_size = {(one.total, one.touched): one for one in found}
    least, many = found[0], found[-1]
    few, small = by_size[least.total, many.touched], by_size[many.total, least.touched]
    growth = many.touched / small.touched
    backend = many.backend
    more_touched = f"{many.touched:,} ÷ {small.touched:,} touched"
    all_name = f"{many.total:,} ÷ {few.total:,} keys in all, {many.touched:,} touched"
    return [
        Target(
            name=f"{backend}: state bytes, {all_name}", value=many.median_bytes / few.median_bytes,
            high=1.5, unit="x",
        ),
        Target(
            name=f"{backend}: commit time, {all_name}", value=many.median_ms / few.median_ms,
            best=min(many.commit_ms) / min(few.commit_ms), high=1.5, unit="x",
        ),
        Target(
            name=f"{backend}: state bytes, {more_touched}, over {growth:g}",
            value=many.median_bytes / small.median_bytes / growth, high=1.5, unit="x",
        ),
    ]  # fmt: skip


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--totals", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="all keys"
    )
    parser.add_argument(
        "--touched", type=int, nargs="+", default=[300, 3_000], help="keys touched per epoch"
    )
    parser.add_argument("--epochs", type=int, default=24, help="epochs of each size")
    parser.add_argument(
        "--backends", nargs="+", choices=("memory", "rocksdb"), default=["memory", "rocksdb"]
    )


if __name__ == "__main__":
    main()
