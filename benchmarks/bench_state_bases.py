"""Bases of state: how large they are, what an epoch notices of them, and how soon they are read.

One operator with running totals works in this process, without Java: all keys are written once,
then each epoch touches some. Epochs beside a base are compared with epochs without one in the same
run. A restart is measured from nothing to the first entry that was read: from the storage alone,
and with the local folder of the run before. A change of the parallelism is measured by its slowest
subtask, since they work side by side.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from measuring import Report, Table, Target, WrongOutputError, arguments, percentile
from workloads import scratch

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.manifest import OperatorState
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.operators.spec import StateScope
from bicycle_runtime.recovery.rescale import restore_ranges
from bicycle_runtime.state.sealed.refs import objects_of
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for

BACKENDS = ("memory", "rocksdb")
GROUPS = 128
LOAD_EPOCHS = 10
PARALLELISMS = (4, 8, 3)
MIB = 1 << 20


class Subtask:
    """A table of running totals over some key groups, with its store."""

    def __init__(self, backend: str, place: Path) -> None:
        settings = StateSettings(backend=backend, folder=str(place / "local"))
        self.tables = tables_for(settings, job_url="benchmark")
        storage = LocalStorage(str(place / "sealed"), is_synced=False)
        self.store = self.tables.store("op", storage, lambda: self.tables.accumulators(int))

    def epoch(
        self, sealed: RangeState, keys: list[int], number: int, *, is_over: bool = False
    ) -> RangeState:
        """Add one to some keys."""
        table = self.store.at(sealed)
        groups, touched = table.groups, table.touched
        for key in keys:
            group = key % GROUPS
            entries = groups.get(group)
            if entries is None:
                entries = groups[group] = {}
            entries[key] = entries.get(key, 0) + 1
            touched[group, key] = None
        self.tables.space.trim()
        return self.store.commit(sealed, epoch=number, attempt="a", is_interval_over=is_over)

    def read(self, sealed: RangeState, key: int) -> int:
        """Return the total of a key."""
        return self.store.at(sealed).groups[key % GROUPS][key]


@dataclass(slots=True)
class Found:
    """What was measured with one backend."""

    backend: str
    quiet_ms: list[float] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)
    full: tuple[float, float] = (0, 0)
    incremental: tuple[float, float] = (0, 0)
    cold_s: float = 0
    warm_s: float = 0
    rescale_s: dict[str, float] = field(default_factory=dict)


class Run:
    """One backend over some keys."""

    def __init__(self, backend: str, place: Path, *, keys: int, touched: int) -> None:
        self.found = Found(backend)
        self._backend, self._place, self._keys, self._touched = backend, place, keys, touched
        self._random = random.Random(5)
        self._subtask = Subtask(backend, place)
        self._sealed = RangeState(first_group=0, end_group=GROUPS)
        self._epoch = 0

    def measure(self, *, epochs: int) -> Found:
        """Load all keys, then make bases, restart and rescale."""
        for part in range(LOAD_EPOCHS):
            self._run(list(range(part, self._keys, LOAD_EPOCHS)))
        self.found.full = self._base()
        for _ in range(epochs):
            self.found.quiet_ms.append(self._timed())
        self.found.incremental = self._base()
        self._subtask.store.at(self._sealed)
        self._subtask.store.close()
        self.found.warm_s = self._restart()
        shutil.rmtree(self._place / "local", ignore_errors=True)
        self.found.cold_s = self._restart()
        self._rescale()
        return self.found

    def _run(self, keys: list[int], *, is_over: bool = False) -> None:
        self._epoch += 1
        self._sealed = self._subtask.epoch(self._sealed, keys, self._epoch, is_over=is_over)

    def _timed(self, *, is_over: bool = False) -> float:
        keys = self._random.sample(range(self._keys), self._touched)
        began = time.perf_counter()
        self._run(keys, is_over=is_over)
        return (time.perf_counter() - began) * 1000

    def _base(self) -> tuple[float, float]:
        """Run epochs until a base is taken; return its seconds, and its new MiB."""
        paths = {item.path for item in objects_of(self._sealed)}
        bases = {ref.path for ref in self._sealed.files if ref.is_base}
        while self._sealed.making is None:
            self._timed(is_over=True)
        began = time.perf_counter()
        while bases == {ref.path for ref in self._sealed.files if ref.is_base}:
            self.found.beside_ms.append(self._timed())
        seconds = time.perf_counter() - began
        new = [
            item.byte_count
            for ref in self._sealed.files
            if ref.is_base
            for item in ref.objects
            if item.path not in paths
        ]
        return seconds, sum(new) / MIB

    def _restart(self) -> float:
        began = time.perf_counter()
        subtask = Subtask(self._backend, self._place)
        if subtask.read(self._sealed, 7) < 1:
            raise WrongOutputError("a total is missing")
        seconds = time.perf_counter() - began
        subtask.store.close()
        return seconds

    def _rescale(self) -> None:
        ranges = (self._sealed,)
        for parallelism in PARALLELISMS:
            state = OperatorState(scope="key_groups", group_count=GROUPS, ranges=ranges)
            ranges = restore_ranges(
                state, scope=StateScope.KEY_GROUPS, group_count=GROUPS, parallelism=parallelism,
                owner=("job", "op"),
            )  # fmt: skip
            slowest, ranges = self._moved(ranges)
            self.found.rescale_s[f"to {parallelism}"] = slowest

    def _moved(self, ranges: tuple[RangeState, ...]) -> tuple[float, tuple[RangeState, ...]]:
        """Open new ranges one by one, and give each a base of its own."""
        slowest, after = 0.0, []
        for sealed in ranges:
            began = time.perf_counter()
            subtask = Subtask(self._backend, self._place)
            subtask.read(sealed, sealed.first_group)
            slowest = max(slowest, time.perf_counter() - began)
            after.append(self._based(subtask, sealed))
            subtask.store.close()
        return slowest, tuple(after)

    def _based(self, subtask: Subtask, sealed: RangeState) -> RangeState:
        """Change a third of all keys of a range, and let it have a base of its own."""
        owned = range(sealed.first_group, sealed.end_group)
        keys = [key for key in range(0, self._keys, 3) if key % GROUPS in owned]
        for touched in (keys, keys[:1], keys[:1], keys[:1]):
            self._epoch += 1
            sealed = subtask.epoch(sealed, touched, self._epoch, is_over=True)
            subtask.store.at(sealed)
            subtask.store.bases.wait()
        return sealed


def main() -> None:
    """Measure both backends and tell."""
    options = arguments(__doc__, repeats=1, add=_add_options)
    keys, touched, epochs = options.keys, options.touched, options.epochs
    if options.quick:
        keys, touched, epochs = 20_000, 500, 5
    found = []
    for backend in options.backends:
        with scratch("bases") as place:
            run = Run(backend, place, keys=keys, touched=touched)
            found.append(run.measure(epochs=epochs))
    report = Report(
        name="state-bases",
        claim="A base is written in parallel with epochs, contains only changes, and is "
        "restored in seconds.",
        payload=f"{keys:,} running totals in one subtask; epochs that touch {touched:,} of them",
        method=f"one process without Spark, one run; {epochs} epochs without a base compared "
        "with all epochs during two bases; files are not flushed to the disk; times "
        "until the first entry is read",
        tables=[_epoch_table(found), _size_table(found), _restart_table(found)],
        targets=_targets(found, keys),
    )
    report.tell(options)


def _row(found: list[Found], cells: Callable[[Found], list[str]]) -> list[list[str]]:
    return [[one.backend, *cells(one)] for one in found]


def _epoch_table(found: list[Found]) -> Table:
    columns = ["epoch ms", "alone: median", "p99", "beside a base: median", "p99", "epochs beside"]
    rows = _row(
        found,
        lambda one: [
            f"{statistics.median(one.quiet_ms):.1f}", f"{percentile(one.quiet_ms, 0.99):.1f}",
            f"{statistics.median(one.beside_ms):.1f}", f"{percentile(one.beside_ms, 0.99):.1f}",
            str(len(one.beside_ms)),
        ],
    )  # fmt: skip
    return Table(title="What epochs notice", columns=columns, rows=rows)


def _size_table(found: list[Found]) -> Table:
    columns = ["base", "first: seconds", "MiB written", "next: seconds", "MiB written"]
    rows = _row(found, lambda one: [f"{n:.2f}" for n in (*one.full, *one.incremental)])
    return Table(title="What is written", columns=columns, rows=rows)


def _restart_table(found: list[Found]) -> Table:
    columns = ["seconds", "from the storage", "from the local folder", *found[0].rescale_s]
    rows = _row(
        found,
        lambda one: [f"{s:.2f}" for s in (one.cold_s, one.warm_s, *one.rescale_s.values())],
    )
    return Table(title="Until the first entry is read", columns=columns, rows=rows)


def _targets(found: list[Found], keys: int) -> list[Target]:
    targets = []
    is_large = keys >= 1_000_000  # Else what is paid once would be multiplied.
    for one in found:
        name, million = one.backend, keys / 1e6
        median = statistics.median(one.quiet_ms)
        targets += [
            Target(
                name=f"{name}: p99 of epochs beside a base ÷ median alone",
                value=percentile(one.beside_ms, 0.99) / median, unit="x",
            ),
            Target(name=f"{name}: from the storage, per 10 M keys", value=one.cold_s * 10 / million,
                   unit="s", high=60 if is_large else None),
            Target(name=f"{name}: slowest change of parallelism, per 10 M keys",
                   value=max(one.rescale_s.values()) * 10 / million, unit="s",
                   high=10 if is_large else None),
        ]  # fmt: skip
        if name == "rocksdb":
            targets += [
                Target(name=f"{name}: from the local folder", value=one.warm_s, unit="s", high=10),
                Target(name=f"{name}: next base ÷ first, MiB",
                       value=one.incremental[1] / one.full[1], unit="x"),
            ]  # fmt: skip
    return targets


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=1_000_000, help="all keys")
    parser.add_argument("--touched", type=int, default=5_000, help="keys touched per epoch")
    parser.add_argument("--epochs", type=int, default=40, help="epochs without a base")
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=BACKENDS)


if __name__ == "__main__":
    main()
