"""The values of a batch's keys are read from disk at once, and are those in memory."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.state.disk.cache import BatchKeys
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from bicycle_sdk.state import ListStateDescriptor, StateTtl, ValueStateDescriptor
from tests.examples import examples

GROUPS = 4
COUNT = ValueStateDescriptor("count", int)
NAMES = ValueStateDescriptor("names", list)
SHORT = ValueStateDescriptor("short", int, ttl=StateTtl(1_000, update="on_access"))
ROWS = ListStateDescriptor("rows", int)
KEYS = st.sampled_from(["", "a", "b\x00", "é", 1, -7, 1.5, ("a", 1), True])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.lists(st.tuples(KEYS, st.booleans()), max_size=8)),
        st.tuples(st.sampled_from(["seal", "seal", "lose", "wait"]), st.none()),
    ),
    max_size=25,
)


class Process:
    """A worker process with states of each kind that batches are read for."""

    def __init__(self, folder, backend="rocksdb", local="local"):
        bounds = StateSettings(backend=backend, folder=str(folder / local), cache_entries=4)
        self.tables = tables_for(bounds, job_url="job")
        self.groups, self.now_ms, self.epoch = GroupCache(GROUPS), 0, 0
        self.keyed = self.tables.keyed(self.groups, lambda _: self.now_ms)
        self.storage = LocalStorage(str(folder / backend), is_synced=False)
        self.store = self.tables.store("op", self.storage, self.new_table)
        self.sealed = RangeState(first_group=0, end_group=GROUPS)
        self.states = [self.keyed.entries_of(one) for one in (COUNT, NAMES, SHORT)]
        self.begin()

    def new_table(self):
        self.keyed.reset()
        return self.keyed

    def begin(self):
        self.store.at(self.sealed)
        self.store.bases.wait()

    def seal(self, _=None):
        self.epoch += 1
        self.sealed = self.store.commit(
            self.sealed, epoch=self.epoch, attempt="a", is_interval_over=self.epoch % 3 == 0
        )
        self.begin()

    def lose(self, _):
        """Lose the process at the start of an epoch; another one opens the folder."""
        self.seal()
        self.store.close()
        self.begin()

    def wait(self, _):
        self.now_ms += 400

    def batch(self, calls):
        """Read and write the states of some keys, and return the values that were read."""
        self.tables.space.trim()
        self.expect([key for key, _ in calls])
        count, names, short = self.states
        found = []
        for key, is_removed in calls:
            found.append((count.get(key, 0), list(names.get(key, ())), short.get(key)))
            if is_removed:
                for one in self.states:
                    one.delete(key)
                continue
            count.put(key, count.get(key, 0) + 1)
            if names.get(key) is None:
                names.put(key, [])
            names.get(key).append(self.epoch)
            short.put(key, self.epoch)
        return found

    def expect(self, keys):
        self.tables.space.expect(lambda: keys, self.groups)

    def reads(self, monkeypatch):
        """Return a list that gets the database keys of each read from now on."""
        cache, made = self.tables.space.cache, []
        get = cache.get
        monkeypatch.setattr(cache, "get", lambda where: made.append(where) or get(where))
        return made


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_batches_on_disk_are_those_in_memory(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("state")
    both = [Process(folder, backend) for backend in ("memory", "rocksdb")]
    try:
        for word, calls in steps:
            in_memory, on_disk = (getattr(one, word)(calls) for one in both)
            assert in_memory == on_disk
    finally:
        for one in both:
            one.store.close()


@pytest.fixture
def process(tmp_path):
    """A process with sealed counts of ten keys, none of them in memory."""
    process = Process(tmp_path)
    for number in range(10):
        process.states[0].put(f"key-{number}", number)
    process.seal()
    process.states[0].stored.forget()
    yield process
    process.store.close()


def test_the_first_miss_reads_all_keys_of_a_batch_in_order(process, monkeypatch):
    count = process.states[0]
    count.put("key-1", 11)
    process.expect([f"key-{number}" for number in (7, 1, 3, 7, 5)] + ["new"])
    made = process.reads(monkeypatch)

    assert [count.get(key) for key in ("key-3", "key-7", "key-5", "new")] == [3, 7, 5, None]
    assert count.get("key-1") == 11
    assert len(made) == 1
    assert made[0] == sorted(made[0])
    assert len(made[0]) == 4


def test_keys_are_not_asked_for_before_a_miss(process):
    def refuse():
        raise AssertionError("no value is missing in memory")

    process.states[0].put("key-1", 11)
    process.tables.space.expect(refuse, process.groups)

    assert process.states[0].get("key-1") == 11


def test_a_function_that_uses_few_keys_reads_them_alone_until_the_next_epoch(process, monkeypatch):
    count = process.states[0]
    made = process.reads(monkeypatch)
    for first in (0, 4, 7):
        process.expect([f"key-{number}" for number in range(first, first + 3)])
        assert count.get(f"key-{first}") == first
    assert [type(one) for one in made] == [list, bytes, bytes]

    count.put("new", 1)
    process.seal()
    process.expect(["key-8", "key-9"])
    made = process.reads(monkeypatch)
    assert count.get("key-8") == 8
    assert [type(one) for one in made] == [list]


def test_new_keys_are_read_alone_after_a_batch_of_them(process, monkeypatch):
    count = process.states[0]
    made = process.reads(monkeypatch)
    for batch in ("abc", "def"):
        process.expect(batch)
        assert [count.get(key) for key in batch] == [None, None, None]
    assert [type(one) for one in made] == [list, bytes, bytes, bytes]


class Picky:
    """A codec that refuses the value of one key, and so each list with it."""

    def decode_one(self, item, key=None):
        if key == "key-2":
            raise UnicodeError("refused")
        return item[0]

    def decode_list(self, data):
        raise UnicodeError("refused")


def test_a_value_that_cannot_be_read_fails_only_its_own_key(process):
    count = process.states[0]
    count.stored._sealed_entries._codec = Picky()
    process.expect(["key-1", "key-2", "key-3"])

    assert count.get("key-1") == 1
    with pytest.raises(UnicodeError):
        count.get("key-2")
    assert count.get("key-3") == 3


def test_values_that_another_process_sealed_are_read_again(process, tmp_path):
    other = Process(tmp_path, local="elsewhere")
    other.sealed, other.epoch = process.sealed, process.epoch
    other.begin()
    count = process.states[0]
    process.expect(["key-1", "key-2"])
    assert count.get("key-1") == 1

    other.states[0].put("key-2", 22)
    other.seal()
    process.store.at(other.sealed)
    other.store.close()

    assert count.get("key-2") == 22


def test_the_parts_of_a_list_are_not_keys_of_records(process, monkeypatch):
    rows = process.keyed.entries_of(ROWS)
    rows.append("key-1", [1, 2])
    process.seal()
    rows.reset()
    process.expect([("key-1", 0), ("key-1", 1)])
    made = process.reads(monkeypatch)

    assert rows.get("key-1", 0) == 1
    assert [type(one) for one in made] == [bytes]


def test_the_keys_of_a_batch_are_divided_by_key_group():
    calls = []
    keys = BatchKeys(lambda: calls.append(1) or ["a", "b", "c", "a"], {"a": 1, "b": 2, "c": 1})

    assert list(keys.of(1)) == ["a", "c"]
    assert list(keys.of(2)) == ["b"]
    assert list(keys.of(3)) == []
    assert list(keys.of(None)) == ["a", "b", "c"]
    assert calls == [1]
