"""Windows on disk give what windows in memory give, however little of them is held."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.state.sealed.refs import RangeState
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from tests.examples import examples

GROUPS = 2
BLANK = RangeState(first_group=0, end_group=GROUPS)
KEYS = st.sampled_from(["a", "a\x00", "b", 1, ("x", 2)])
PLACES = st.integers(-2, 1)
AT = (PLACES, st.integers(0, GROUPS - 1), KEYS, st.integers(0, 9))
CELL_STEPS = st.sampled_from(["put", "put", "put", "read", "remove", "drop"])
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
        cells = windows.cells("s", list[int]) if self.is_by_key else windows.cells("c", int)
        return windows.table(cells, windows.records(int, is_by_key=self.is_by_key))

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
        self.cells, self.rows = {}, {}
        self.was = {}, {}
        self.process = None
        self.lose()

    def lose(self):
        if self.process is not None:
            self.process.store.close()
        self.process = Process(self.folder, self.backend, is_by_key=self.is_by_key)
        self.begin()

    def begin(self):
        self.cells = dict(self.was[0])
        self.rows = {spot: (list(row[0]), list(row[1])) for spot, row in self.was[1].items()}
        self.process.at(self.sealed, self.epoch)
        self.table = self.process.table

    def step(self, word, place, group, key, number):
        spot = (place, group, key)
        match word:
            case "put":
                self.table.cells.group(place, group)[key] = number
                self.table.cells.touch(place, group, (key,))
                self.cells[spot] = number
            case "remove":
                self.table.cells.remove(place, group, key)
                self.cells.pop(spot, None)
            case "drop":
                self.table.cells.drop(place)
                self.cells = {s: value for s, value in self.cells.items() if s[0] != place}
            case "read":
                assert self.table.cells.find(*spot) == self.cells.get(spot)
                if self.is_by_key:
                    assert self.table.records.row(*spot) == self.rows.get(spot, ([], []))
            case "add":
                self.table.records.add(*spot, ([number], [number + 1]))
                times, values = self.rows.setdefault(spot, ([], []))
                times.append(number)
                values.append(number + 1)
            case "replace":
                row = ([], []) if number < 4 else ([number, 0], [number, 1])
                self.table.records.replace(*spot, row)
                self.rows.pop(spot, None)
                if row[0]:
                    self.rows[spot] = row
            case "clear":
                self.table.records.drop(place)
                self.rows = {s: row for s, row in self.rows.items() if s[0] != place}

    def end(self, word):
        if word == "move":  # Another backend goes on with it.
            self.backend = "memory" if self.backend == "rocksdb" else "rocksdb"
        if word in ("seal", "base"):
            self.sealed = self.process.store.commit(
                self.sealed, epoch=self.epoch, attempt=f"a{self.epoch}",
                is_interval_over=word == "base",
            )  # fmt: skip
            self.was = self.cells, self.rows
        self.epoch += 1
        (self.lose if word in ("lose", "move") else self.begin)()

    def compare(self):
        cells, records = self.table.cells, self.table.records
        assert self.cells == {
            (place, group, key): value
            for place, groups in cells.places.items()
            for group in groups
            for key, value in cells.contents(place, group).items()
        }
        for spot, value in self.cells.items():
            assert cells.find(*spot) == value
            assert cells.contents(*spot[:2], {spot[2], "none"})[spot[2]] == value
        for spot, row in self.rows.items():
            assert records.row(*spot) == row
        if not self.is_by_key:
            assert self.rows == {
                (place, group, key): row
                for place, groups in records.places.items()
                for group in groups
                for key, row in records.rows(place, group).items()
            }


FEW = settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))


@FEW
@given(epochs=epochs_of(st.one_of(CELL_STEPS, PLACE_STEPS)))
def test_windows_that_share_places_come_back_whatever_happens(tmp_path_factory, epochs):
    play_and_compare(Play(tmp_path_factory.mktemp("windows"), is_by_key=False), epochs)


@FEW
@given(epochs=epochs_of(st.one_of(CELL_STEPS, KEY_STEPS)))
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


def held_cells(process):
    return sum(
        dict.__len__(values) + values.warm_count() for values in process.table.cells._open.values()
    )


def test_of_cells_that_are_sealed_only_the_bound_stays_in_memory(process):
    worker, sealed = process(is_by_key=False, cache_entries=100), BLANK
    for epoch in range(1, 11):
        worker.at(sealed, epoch)
        kept = worker.table.cells.group(0, 0)
        kept.update({f"{epoch}-{number}": number for number in range(200)})
        worker.table.cells.touch(0, 0, [f"{epoch}-{number}" for number in range(200)])
        sealed = worker.store.commit(
            sealed, epoch=epoch, attempt=f"a{epoch}", is_interval_over=False
        )
    worker.at(sealed, 11)

    assert held_cells(worker) <= 100
    assert len(worker.table.cells.contents(0, 0)) == 2_000
    assert held_cells(worker) <= 100
    assert worker.table.cells.find(0, 0, "1-7") == 7


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
    worker.table.cells.group(5, 0).update(a=1, b=2)
    worker.table.cells.touch(5, 0, "ab")
    worker.table.records.add(5, 0, "a", ([1], [2]))
    sealed = worker.store.commit(BLANK, epoch=1, attempt="a1", is_interval_over=False)
    worker = process(is_by_key=False)
    worker.at(sealed, 2)
    worker.tables.space.cache.get = None
    worker.table.cells.drop(5)
    worker.table.records.drop(5)

    assert [(section.name, section.is_full) for section in worker.table.changes()] == [
        ("c5", True), ("r5#1", True),
    ]  # fmt: skip
    assert (worker.table.cells.places, worker.table.records.places) == ({}, {})


@pytest.mark.parametrize("is_by_key", [False, True])
def test_what_comes_and_goes_in_one_epoch_is_never_written(process, is_by_key):
    worker = process(is_by_key=is_by_key)
    worker.at(BLANK, 1)
    table = worker.table
    table.cells.group(5, 0)["a"] = 1
    table.cells.touch(5, 0, "a")
    table.cells.remove(5, 0, "a")
    table.records.add(5, 0, "a", ([1], [2]))
    if is_by_key:
        table.records.replace(5, 0, "a", ([], []))
    else:
        table.records.drop(5)

    assert table.changes() == []
