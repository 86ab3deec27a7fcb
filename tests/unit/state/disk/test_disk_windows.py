"""Windows on disk give what windows in memory give, however little of them is held."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from tests.examples import examples

GROUPS = 2
BLANK = RangeState(first_group=0, end_group=GROUPS)
KEYS = st.sampled_from(["a", "a\x00", "b", 1, ("x", 2)])
PLACES = st.integers(-2, 1)
AT = (PLACES, st.integers(0, GROUPS - 1), KEYS, st.integers(0, 9))
ENTRY_STEPS = st.sampled_from(["put", "put", "put", "read", "remove", "drop"])
PLACE_STEPS = st.sampled_from(["add", "add", "clear"])
KEY_STEPS = st.sampled_from(["add", "add", "read", "replace"])
ENDS = st.sampled_from(["seal", "seal", "seal", "base", "fail", "lose", "move"])


def epochs_of(steps):
    return st.lists(st.tuples(st.lists(st.tuples(steps, *AT), max_size=6), ENDS), max_size=14)


class Process:
    """A worker process with the table of a window, over sealed files that outlive it."""

    def __init__(self, folder, backend, *, is_by_key, cache_entries=4):
        self.tables = tables_for(
            StateSettings(
                backend=backend, folder=str(folder / "local"), cache_entries=cache_entries
            ),
            job_url="job",
        )
        self.is_by_key = is_by_key
        storage = LocalStorage(str(folder / "sealed"), is_synced=False)
        self.store = self.tables.store("op", storage, self.new_table)

    def new_table(self):
        windows = self.tables.windows
        entries = windows.entries("s", list[int]) if self.is_by_key else windows.entries("c", int)
        return windows.table(entries, windows.records(int, is_by_key=self.is_by_key))

    def at(self, sealed, epoch):
        self.table = self.store.at(sealed)
        self.table.begin()
        self.table.records.epoch = epoch
        self.store.bases.wait()


class Play:
    """A window's table and its model, epoch by epoch."""

    def __init__(self, folder, *, is_by_key):
        self.folder, self.is_by_key = folder, is_by_key
        self.backend, self.sealed, self.epoch = "rocksdb", BLANK, 1
        self.entries, self.rows = {}, {}
        self.was = {}, {}
        self.process = None
        self.lose()

    def lose(self):
        if self.process is not None:
            self.process.store.close()
        self.process = Process(self.folder, self.backend, is_by_key=self.is_by_key)
        self.begin()

    def begin(self):
        self.entries = dict(self.was[0])
        self.rows = {
            window_key: (list(row[0]), list(row[1])) for window_key, row in self.was[1].items()
        }
        self.process.at(self.sealed, self.epoch)
        self.table = self.process.table

    def step(self, word, namespace, group, key, number):
        window_key = (namespace, group, key)
        match word:
            case "put":
                self.table.entries.group(namespace, group)[key] = number
                self.table.entries.touch(namespace, group, (key,))
                self.entries[window_key] = number
            case "remove":
                self.table.entries.remove(namespace, group, key)
                self.entries.pop(window_key, None)
            case "drop":
                self.table.entries.drop(namespace)
                self.entries = {s: value for s, value in self.entries.items() if s[0] != namespace}
            case "read":
                assert self.table.entries.find(*window_key) == self.entries.get(window_key)
                if self.is_by_key:
                    assert self.table.records.row(*window_key) == self.rows.get(
                        window_key, ([], [])
                    )
            case "add":
                self.table.records.add(*window_key, ([number], [number + 1]))
                times, values = self.rows.setdefault(window_key, ([], []))
                times.append(number)
                values.append(number + 1)
            case "replace":
                row = ([], []) if number < 4 else ([number, 0], [number, 1])
                self.table.records.replace(*window_key, row)
                self.rows.pop(window_key, None)
                if row[0]:
                    self.rows[window_key] = row
            case "clear":
                self.table.records.drop(namespace)
                self.rows = {s: row for s, row in self.rows.items() if s[0] != namespace}

    def end(self, word):
        if word == "move":  # Another backend goes on with it.
            self.backend = "memory" if self.backend == "rocksdb" else "rocksdb"
        if word in ("seal", "base"):
            self.sealed = self.process.store.commit(
                self.sealed, epoch=self.epoch, attempt=f"a{self.epoch}",
                is_interval_over=word == "base",
            )  # fmt: skip
            self.was = self.entries, self.rows
        self.epoch += 1
        (self.lose if word in ("lose", "move") else self.begin)()

    def compare(self):
        entries, records = self.table.entries, self.table.records
        assert self.entries == {
            (namespace, group, key): value
            for namespace, groups in entries.namespaces.items()
            for group in groups
            for key, value in entries.contents(namespace, group).items()
        }
        for window_key, value in self.entries.items():
            assert entries.find(*window_key) == value
            assert (
                entries.contents(*window_key[:2], {window_key[2], "none"})[window_key[2]] == value
            )
        for window_key, row in self.rows.items():
            assert records.row(*window_key) == row
        if not self.is_by_key:
            assert self.rows == {
                (namespace, group, key): row
                for namespace, groups in records.namespaces.items()
                for group in groups
                for key, row in records.rows(namespace, group).items()
            }


FEW = settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))


@FEW
@given(epochs=epochs_of(st.one_of(ENTRY_STEPS, PLACE_STEPS)))
def test_windows_that_share_places_come_back_whatever_happens(tmp_path_factory, epochs):
    play_and_compare(Play(tmp_path_factory.mktemp("windows"), is_by_key=False), epochs)


@FEW
@given(epochs=epochs_of(st.one_of(ENTRY_STEPS, KEY_STEPS)))
def test_windows_of_single_keys_come_back_whatever_happens(tmp_path_factory, epochs):
    play_and_compare(Play(tmp_path_factory.mktemp("windows"), is_by_key=True), epochs)


def play_and_compare(play, epochs):
    for steps, end in epochs:
        for step in steps:
            play.step(*step)
        play.compare()
        play.end(end)
        play.compare()
    play.process.store.close()


@pytest.fixture
def process(tmp_path):
    """Starts a process with few entries in memory; several over the same files."""
    started = []

    def start(**options):
        started.append(Process(tmp_path, "rocksdb", **options))
        return started[-1]

    yield start
    for each in started:
        each.store.close()


def held_entries(process):
    return sum(
        dict.__len__(values) + len(values._warm) for values in process.table.entries._open.values()
    )


def test_of_entries_that_are_sealed_only_the_bound_stays_in_memory(process):
    worker, sealed = process(is_by_key=False, cache_entries=100), BLANK
    for epoch in range(1, 11):
        worker.at(sealed, epoch)
        kept = worker.table.entries.group(0, 0)
        kept.update({f"{epoch}-{number}": number for number in range(200)})
        worker.table.entries.touch(0, 0, [f"{epoch}-{number}" for number in range(200)])
        sealed = worker.store.commit(
            sealed, epoch=epoch, attempt=f"a{epoch}", is_interval_over=False
        )
    worker.at(sealed, 11)

    assert held_entries(worker) <= 100
    assert len(worker.table.entries.contents(0, 0)) == 2_000
    assert held_entries(worker) <= 100
    assert worker.table.entries.find(0, 0, "1-7") == 7


def test_of_records_that_are_sealed_only_the_bound_stays_in_memory(process):
    worker, sealed = process(is_by_key=True, cache_entries=100), BLANK
    for epoch in range(1, 11):
        worker.at(sealed, epoch)
        for number in range(50):
            worker.table.records.add(0, 0, number, ([epoch], [epoch]))
            worker.table.records.row(0, 0, number)
        sealed = worker.store.commit(
            sealed, epoch=epoch, attempt=f"a{epoch}", is_interval_over=False
        )
    worker.at(sealed, 11)
    records = worker.table.records

    assert sum(map(len, (records._hot, records._warm))) <= 10
    assert records.row(0, 0, 49) == (list(range(1, 11)), list(range(1, 11)))


def test_a_place_that_is_dropped_is_dropped_without_being_read(process):
    worker = process(is_by_key=False)
    worker.at(BLANK, 1)
    worker.table.entries.group(5, 0).update(a=1, b=2)
    worker.table.entries.touch(5, 0, "ab")
    worker.table.records.add(5, 0, "a", ([1], [2]))
    sealed = worker.store.commit(BLANK, epoch=1, attempt="a1", is_interval_over=False)
    worker = process(is_by_key=False)
    worker.at(sealed, 2)
    worker.tables.space.cache.get = None
    worker.table.entries.drop(5)
    worker.table.records.drop(5)

    assert [(change_set.name, change_set.is_full) for change_set in worker.table.changes()] == [
        ("c5", True), ("r5#1", True),
    ]  # fmt: skip
    assert (worker.table.entries.namespaces, worker.table.records.namespaces) == ({}, {})


@pytest.mark.parametrize("is_by_key", [False, True])
def test_what_comes_and_goes_in_one_epoch_is_never_written(process, is_by_key):
    worker = process(is_by_key=is_by_key)
    worker.at(BLANK, 1)
    table = worker.table
    table.entries.group(5, 0)["a"] = 1
    table.entries.touch(5, 0, "a")
    table.entries.remove(5, 0, "a")
    table.records.add(5, 0, "a", ([1], [2]))
    if is_by_key:
        table.records.replace(5, 0, "a", ([], []))
    else:
        table.records.drop(5)

    assert table.changes() == []
