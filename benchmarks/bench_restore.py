"""Restoring state from object storage: until the first output, and how loading scales.

A job keeps a profile of each user; its checkpoints lie in an S3 server behind a proxy that makes it
as slow as one far away. Then it is started again, each time in a new Java process, and asked for
users that it knows: with empty local folders, and with what the run before left there, which state
in memory does not use. What comes out shows that the state is there.

Loading alone is measured in processes of its own, each with a part of the ranges, over connections
so slow that waiting is what takes the time: more processes then stand for more hosts, though they
share the cores of one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmark_jobs import profile_of
from bicycle_runs import CORES, Engine, job, spark_engine
from far_storage import FarStorage, Limits, far_storage
from measuring import Report, Table, Target, WrongOutputError, arguments
from workloads import Keys, scratch

from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.layouts.manifest import OperatorState
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.records.keys import encode_key, key_group
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for

BACKENDS = ("memory", "rocksdb")
PROCESSES = (1, 2, 4)
AS_IT_IS = Limits()
FAR = Limits(latency_ms=50, mb_per_s=20)
FAR_AND_NARROW = Limits(latency_ms=50, mb_per_s=3)
ASKED = 1_000
COLD_S_MAX, WARM_S_MAX, SCALING_MIN = 60, 10, 3
_PATIENCE_S = 600
_EPOCH_RECORDS = 250_000
_GROUP_COUNT = 128  # What a job has that asks for no other number.
_LOAD_BEFORE = os.getloadavg()[0]
MIB = 1 << 20


@dataclass(slots=True)
class Found:
    """What was measured with one backend; seconds, by what they are of."""

    state_mib: float = 0
    cold_s: list[float] = field(default_factory=list)
    warm_s: list[float] = field(default_factory=list)
    ready_s: list[float] = field(default_factory=list)
    load_s: dict[int, list[float]] = field(default_factory=dict)
    loaded_mib: float = 0

    @property
    def scaling(self) -> float:
        """How many times the pace of one process the most processes have, in the median."""
        first, last = (statistics.median(self.load_s[count]) for count in (1, max(PROCESSES)))
        return first / last


class KeptJob:
    """The job with one backend, its folders and its bucket.

    Args:
        place: An empty folder.
        far: Where its checkpoints lie.
        backend: Of its state.
        keys: Its users.
        parallelism: Of each operator.
    """

    def __init__(
        self, place: Path, far: FarStorage, *, backend: str, keys: Keys, parallelism: int
    ) -> None:
        self._place, self._keys, self._parallelism = place, keys, parallelism
        self.backend = backend
        self.url = f"{far.url}/{backend}-{keys.count}-{parallelism}"
        self._asked = 0
        shutil.copytree(keys.folder(), place / "input", copy_function=os.link)

    @property
    def has_local(self) -> bool:
        """Whether state is kept in a local folder."""
        return self.backend != "memory"

    def build(self) -> OperatorState:
        """Read all users; return the state that is sealed then."""
        # Large epochs at once: how the state came about is nothing that is measured here.
        batch = EngineOptions(mode="batch", max_records_per_epoch=_EPOCH_RECORDS)
        with spark_engine() as engine, self._loop(engine, batch) as loop:
            while not loop.step().is_finished:
                pass
            loop.settle()
            return loop.manifest.states["keep"]

    def ask(self) -> tuple[float, float]:
        """Start again and ask for users; return seconds until it is recovered, and to the output.

        Raises:
            WrongOutputError: what comes out is not what was kept.
        """
        first = self._asked * ASKED
        users = [
            f"user-{number:08}" for number in range(first, min(first + ASKED, self._keys.count))
        ]
        self._asked += 1
        name = f"asked-{self._asked}.txt"
        (self._place / "input" / name).write_text("".join(f"{user}\n" for user in users))
        began = time.monotonic()
        with spark_engine() as engine, self._loop(engine) as loop:
            ready_s = time.monotonic() - began
            if not loop.step().has_run:
                raise WrongOutputError(f"{name} is not read")
            loop.settle()
            spent_s = time.monotonic() - began
        self._check(users)
        return ready_s, spent_s

    def forget_local(self) -> None:
        """Remove the local folders."""
        shutil.rmtree(self._place / "local", ignore_errors=True)

    def _loop(self, engine: Engine, options: EngineOptions | None = None) -> EpochLoop:
        params = {"input": self._place / "input", "output": self._place / "output"}
        setup = job("profiles_kept", params, storage=self.url, parallelism=self._parallelism)
        options = replace(
            options or EngineOptions(), state_backend=self.backend,
            state_dir=str(self._place / "local"),
            state_cache_entries=max(1_000, self._keys.count // 20),
        )  # fmt: skip
        return engine.loop(setup, options=options)

    def _check(self, users: Sequence[str]) -> None:
        output = self._place / "output"
        texts = "".join(path.read_text() for path in output.glob("*.jsonl"))
        missing = [user for user in users if f"{profile_of(user)}!" not in texts]
        if missing:
            raise WrongOutputError(f"{len(missing)} of {len(users)} users come out wrong")


def main() -> None:
    """Measure each backend and tell."""
    options = arguments(__doc__, repeats=1, add=_add_options)
    keys, load_keys = (20_000, 8_000) if options.quick else (options.keys, options.load_keys)
    found = {name: Found() for name in options.backends}
    with scratch("bucket") as folder, far_storage(folder) as far:
        for name, one in found.items():
            with scratch("restore") as place:
                kept = KeptJob(place, far, backend=name, keys=Keys(count=keys), parallelism=CORES)
                _restarts(far, kept, one, options.repeats)
            with scratch("loads") as place:
                parallelism = max(PROCESSES)
                kept = KeptJob(
                    place, far, backend=name, keys=Keys(count=load_keys), parallelism=parallelism
                )
                _loads(far, kept, one, options.repeats)
    sizes, loaded = (
        " and ".join(f"{mib:,.0f} MiB ({name})" for name, mib in each)
        for each in (
            [(name, one.state_mib) for name, one in found.items()],
            [(name, one.loaded_mib) for name, one in found.items()],
        )
    )
    report = Report(
        name="restore",
        claim="State is restored from object storage within a minute, and from the local "
        "folder within ten seconds; four processes load three times as fast as one.",
        payload=f"{keys:,} profiles of 102 characters by user, {sizes} in {CORES} subtasks; for "
        f"loading alone {load_keys:,}, {loaded} in {max(PROCESSES)}",
        method=f"{options.repeats} rounds; S3Proxy on the same machine behind a proxy with "
        f"{FAR}; each start has a new Java process ({CORES} cores); loading alone: "
        f"processes without Spark, {FAR_AND_NARROW}, so that the cores are not the "
        f"limit; load before {_LOAD_BEFORE:.1f}; {ASKED:,} profiles compared with the "
        "expected results in each run",
        tables=[_restart_table(found), _load_table(found)],
        targets=_targets(found),
    )
    report.tell(options)


def _restarts(far: FarStorage, kept: KeptJob, found: Found, rounds: int) -> None:
    far.limit(AS_IT_IS)
    found.state_mib = _mib(kept.build())
    far.limit(FAR)
    for _ in range(rounds):
        kept.forget_local()
        ready_s, cold_s = kept.ask()
        found.ready_s.append(ready_s)
        found.cold_s.append(cold_s)
        if kept.has_local:
            found.warm_s.append(kept.ask()[1])


def _loads(far: FarStorage, kept: KeptJob, found: Found, rounds: int) -> None:
    far.limit(AS_IT_IS)
    state = kept.build()
    found.loaded_mib = _mib(state)
    far.limit(FAR_AND_NARROW)
    for _ in range(rounds):
        for count in PROCESSES:
            seconds = _load_in(count, kept.url, kept.backend, state.ranges)
            found.load_s.setdefault(count, []).append(seconds)


def _load_in(count: int, url: str, backend: str, ranges: Sequence[RangeState]) -> float:
    """Load ranges in so many processes at a time; return the seconds of the slowest.

    Raises:
        WrongOutputError: a profile is missing.
    """
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(count + 1), context.Queue()
    with scratch("loaded") as place:
        loaders = [
            context.Process(
                target=_load,
                args=(start, answers, url, backend, ranges[number::count], place / str(number)),
            )
            for number in range(count)
        ]
        for loader in loaders:
            loader.start()
        start.wait(_PATIENCE_S)
        began = time.monotonic()
        for _ in loaders:  # Each says when it has loaded, and then what.
            answers.get(timeout=_PATIENCE_S)
        seconds = time.monotonic() - began
        start.wait(_PATIENCE_S)
        right_count = sum(answers.get(timeout=_PATIENCE_S) for _ in loaders)
        for loader in loaders:
            loader.join(_PATIENCE_S)
    if right_count != ASKED:
        raise WrongOutputError(f"{right_count:,} of {ASKED:,} profiles are there")
    return seconds


def _load(
    start: Any, answers: Any, url: str, backend: str, ranges: Sequence[RangeState], place: Path
) -> None:
    """Be a process that loads some ranges, one after another, as a worker does."""
    storage = open_storage(url)
    storage.exists("nothing")  # Opens the client, which a worker has done before.
    stores = []
    for number in range(len(ranges)):
        settings = StateSettings(backend=backend, folder=str(place / str(number)))
        tables = tables_for(settings, job_url=url)
        stores.append(tables.store("keep", storage, lambda made=tables: made.accumulators(str)))
    start.wait(_PATIENCE_S)
    loaded = [store.at(state) for store, state in zip(stores, ranges, strict=True)]
    answers.put(0)
    start.wait(_PATIENCE_S)  # So that nobody checks while another loads.
    answers.put(
        sum(_right_in(table.groups, state) for table, state in zip(loaded, ranges, strict=True))
    )
    for store in stores:
        store.close()


def _right_in(groups: Any, state: RangeState) -> int:
    """Return how many of the asked profiles a table has, of those that are its own."""
    count = 0
    for number in range(ASKED):
        user = f"user-{number:08}"
        group = key_group(encode_key(user), group_count=_GROUP_COUNT)
        if state.first_group <= group < state.end_group:
            count += groups[group].get(user) == profile_of(user)
    return count


def _mib(state: OperatorState) -> float:
    return sum(part.byte_count for part in state.ranges) / MIB


def _restart_table(found: dict[str, Found]) -> Table:
    steps = {
        "recovered, before state is loaded": [one.ready_s for one in found.values()],
        "first output, local folders empty": [one.cold_s for one in found.values()],
        "first output, local folders kept": [one.warm_s for one in found.values()],
    }
    rows = [[step, *map(_median, spent)] for step, spent in steps.items()]
    title = "From the start of the engine: seconds"
    return Table(title=title, columns=["until", *found], rows=rows)


def _load_table(found: dict[str, Found]) -> Table:
    rows = []
    for count in PROCESSES:
        cells = []
        for one in found.values():
            spent = one.load_s[count]
            cells += [_median(spent), f"{one.loaded_mib / statistics.median(spent):.0f}"]
        rows.append([str(count), *cells])
    columns = [text for name in found for text in (f"{name}: seconds", "MiB/s")]
    return Table(title="Loading alone", columns=["processes", *columns], rows=rows)


def _targets(found: dict[str, Found]) -> list[Target]:
    targets = []
    for name, one in found.items():
        for folders, spent, high in (
            ("empty", one.cold_s, COLD_S_MAX),
            ("kept", one.warm_s, WARM_S_MAX),
        ):
            if spent:
                value, best = statistics.median(spent), min(spent)
                title = f"{name}: first output, local folders {folders}"
                targets.append(Target(name=title, value=value, best=best, high=high, unit="s"))
        title = f"{name}: throughput of loading, {max(PROCESSES)} processes ÷ one"
        targets.append(Target(name=title, value=one.scaling, low=SCALING_MIN, unit="x"))
    return targets


def _median(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f}" if seconds else "-"


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keys", type=int, default=10_000_000, help="users of the job (default %(default)s)"
    )
    parser.add_argument(
        "--load-keys", type=int, default=2_000_000,
        help="users where loading is measured alone (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=BACKENDS)


if __name__ == "__main__":
    main()
