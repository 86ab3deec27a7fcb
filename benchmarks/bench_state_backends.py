"""State in memory against state on disk: single accesses, and a word count over a million words.

The word count is the plugin on Spark, each word one record, with a cache that holds a fraction of
the words. Accesses are those of keyed state in this process: reads of what is not in the cache,
writes, and scans of maps; their time holds the seal, so that what is put off counts too.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bicycle_runs import Engine, job, spark_engine
from measuring import Report, Table, Target, WrongOutputError, arguments, in_turns, millions, ratios
from workloads import WORDS_PER_LINE, Words, check_counts, scratch

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from bicycle_sdk.state import MapStateDescriptor, ValueStateDescriptor

BACKENDS = ("memory", "rocksdb")
GROUPS = 128
CACHE_PART = 5  # The cache holds this part of all keys.
MAP_ENTRIES = 1_000
COUNT = ValueStateDescriptor("count", int)
VISITS = MapStateDescriptor("visits", int, int)
ACCESSES = ("get", "put", "get and put", "scan")


class Accesses:
    """Keyed state of one backend over some keys, sealed."""

    def __init__(self, backend: str, place: Path, key_count: int) -> None:
        settings = StateSettings(
            backend=backend, folder=str(place / "local"), cache_entries=key_count // CACHE_PART
        )
        self._tables = tables_for(settings, job_url="benchmark")
        self._keyed = self._tables.keyed(GroupCache(GROUPS), lambda _: 0)
        storage = LocalStorage(str(place / "sealed"), is_synced=False)
        self.store = self._tables.store("op", storage, self._new_table)
        self._state = RangeState(first_group=0, end_group=GROUPS)
        self._epoch = 0
        self._keys = [f"user-{number:07}" for number in range(key_count)]
        self._random = random.Random(3)
        self.store.at(self._state)
        for number, key in enumerate(self._keys):
            self._keyed.entries_of(COUNT).put(key, number)
        for number in range(key_count // MAP_ENTRIES):
            for part in range(MAP_ENTRIES):
                self._keyed.entries_of(VISITS).put(number, part, part)
        self._seal()

    def measure(self, access: str, count: int) -> float:
        """Return nanoseconds of processor time per access, a seal included."""
        values, maps = self._keyed.entries_of(COUNT), self._keyed.entries_of(VISITS)
        keys = self._random.choices(self._keys, k=count)
        began = time.process_time()
        for start in range(0, count, 4_096):
            for key in keys[start : start + 4_096]:
                if access == "get":
                    values.get(key)
                elif access == "put":
                    values.put(key, start)
                elif access == "get and put":
                    values.put(key, values.get(key) + 1)
            self._tables.space.trim()
        if access == "scan":
            map_count = len(self._keys) // MAP_ENTRIES
            found = sum(
                1
                for number in range(count // MAP_ENTRIES)
                for _ in maps.scan(number % map_count, 0, MAP_ENTRIES)
            )
            if found != count // MAP_ENTRIES * MAP_ENTRIES:
                raise WrongOutputError(f"scans gave {found} entries")
        self._seal()
        return (time.process_time() - began) * 1e9 / count

    def _seal(self) -> None:
        self._epoch += 1
        self._state = self.store.commit(
            self._state, epoch=self._epoch, attempt="a", is_interval_over=False
        )
        self.store.at(self._state)

    def _new_table(self) -> object:
        self._keyed.reset()
        return self._keyed


def main() -> None:
    """Measure both and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options)
    words = Words(count=20_000, distinct=10_000)
    key_count, access_count = 10_000, 4_000
    if not options.quick:
        words = Words(count=options.words, distinct=options.distinct)
        key_count, access_count = options.keys, options.accesses
    report = Report(
        name="state-backends",
        claim="A word count over a million distinct words keeps half of its throughput if four "
        "fifths of its state are on disk.",
        payload=f"{words.text}; {key_count:,} keys for single accesses, {access_count:,} at a time",
        method=f"{options.repeats} rounds in turns; rocksdb with a cache for a fifth of the "
        "keys; the rate of the whole run, all counts compared with the expected "
        "results",
    )
    report.tables.append(_access_table(key_count, access_count))
    with spark_engine() as engine:
        contenders = {name: partial(_count, engine, words, name) for name in BACKENDS}
        for run in contenders.values() if not options.quick else ():
            run()
        rates = in_turns(contenders, rounds=options.repeats)
    rows = [[name, *millions(found)] for name, found in rates.items()]
    report.tables.append(
        Table(title=words.text, columns=["M words/s", "median", "best"], rows=rows)
    )
    value, best = ratios(rates["rocksdb"], rates["memory"])
    report.targets.append(
        Target(name="rocksdb ÷ memory, words", value=value, best=best, unit="x", low=0.5)
    )
    report.tell(options)


def _access_table(key_count: int, count: int) -> Table:
    with _both(key_count) as accesses:
        costs = {
            access: {
                name: statistics.median(one.measure(access, count) for _ in range(3))
                for name, one in accesses.items()
            }
            for access in ACCESSES
        }
    rows = [
        [access, *(f"{cost[name]:,.0f}" for name in BACKENDS)] for access, cost in costs.items()
    ]
    title = "Processor time of an access to keyed state, nanoseconds, its seal included"
    return Table(title=title, columns=["access", *BACKENDS], rows=rows)


@contextmanager
def _both(key_count: int) -> Iterator[dict[str, Accesses]]:
    with tempfile.TemporaryDirectory() as folder:
        found = {name: Accesses(name, Path(folder) / name, key_count) for name in BACKENDS}
        yield found
        for one in found.values():
            one.store.close()


def _count(engine: Engine, words: Words, backend: str) -> float:
    """Run the word count and return its words per second."""
    with scratch("backends") as place:
        params = {"input": words.folder(), "output": place / "output"}
        options = EngineOptions(
            state_backend=backend,
            # Two tasks, each with half of the words.
            state_cache_entries=max(1_000, words.distinct // 2 // CACHE_PART),
        )
        setup = job("wordcount", params, storage=place / "checkpoints")
        run = engine.run(setup, options=options)
        check_counts(place / "output", words)
    return run.whole_rate * WORDS_PER_LINE


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--words", type=int, default=2_000_000, help="words to count")
    parser.add_argument("--distinct", type=int, default=1_000_000, help="different words")
    parser.add_argument("--keys", type=int, default=200_000, help="keys for single accesses")
    parser.add_argument("--accesses", type=int, default=50_000, help="single accesses at a time")


if __name__ == "__main__":
    main()
