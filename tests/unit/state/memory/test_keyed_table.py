"""Keyed states in their files: types, kinds, states that nobody asks for, time to live, space."""

import itertools
from dataclasses import dataclass

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.records.errors import KeyEncodingError
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.state.errors import STATE_KIND_CHANGED
from bicycle_runtime.state.memory.composite import CompositeTable
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.errors import StateDefinitionError
from bicycle_sdk.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtl,
    ValueStateDescriptor,
)
from bicycle_sdk.state.entries import MISSING
from tests.raising import raises
from tests.waiting import until

GROUPS = GroupCache(16)
ALL = RangeState(first_group=0, end_group=16)
COUNT = ValueStateDescriptor("count", int)


@dataclass
class Order:
    user: str
    items: list[int]


class Incomparable:
    """A value that refuses a comparison, as an array of numpy does."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        raise ValueError("ambiguous")

    __hash__ = None


class Clock:
    now_ms = 0

    def __call__(self, domain):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "rocksdb"])
def process(request, tmp_path, clock):
    """Starts a new worker process: a table and its store, over the same files."""
    settings = StateSettings(backend=request.param, folder=str(tmp_path / "local"), cache_entries=8)
    started = []

    def start():
        storage = LocalStorage(str(tmp_path / "sealed"), is_synced=False)
        for former in started:
            former.store.close()
        started.append(Process(storage, clock, tables_for(settings, job_url="job")))
        return started[-1]

    yield start
    for former in started:
        former.store.close()


class Process:
    def __init__(self, storage, clock, tables):
        self.keyed = tables.keyed(GROUPS, clock)
        self.timers = tables.timers(GROUPS)
        self.store = tables.store("op", storage, self.new_table)

    def new_table(self):
        self.keyed.reset()
        self.timers.reset()
        return CompositeTable(self.keyed, self.timers)

    def epoch(self, sealed, number, write=lambda keyed: None, *, is_interval_over=False):
        self.store.at(sealed)
        self.store.bases.wait()
        write(self.keyed)
        return self.store.commit(
            sealed, epoch=number, attempt=f"a{number}", is_interval_over=is_interval_over
        )


def put(descriptor, key, value):
    return lambda keyed: keyed.entries_of(descriptor).put(key, value)


def test_values_come_back_as_their_declared_type(process):
    orders = ValueStateDescriptor("orders", Order)
    sealed = process().epoch(ALL, 1, put(orders, "ada", Order("ada", [1, 2])))
    after = process()
    after.store.at(sealed)

    assert after.keyed.entries_of(orders).get("ada") == Order("ada", [1, 2])


def test_an_epoch_writes_only_what_it_touched(process):
    worker = process()

    def many(keyed):
        for number in range(1_000):
            keyed.entries_of(COUNT).put(number, number)

    sealed = worker.epoch(ALL, 1, many)
    sealed = worker.epoch(sealed, 2, put(COUNT, 7, 8))
    unchanged = worker.epoch(sealed, 3, lambda keyed: keyed.entries_of(COUNT).get(9))

    first, second = sealed.files
    assert second.byte_count < 100 < first.byte_count
    assert unchanged is sealed


def test_a_state_that_nobody_asks_for_is_carried_into_the_next_base(process):
    other = ValueStateDescriptor("other", int)
    sealed = process().epoch(ALL, 1, put(COUNT, "ada", 5))
    for number in range(2, 6):
        sealed = process().epoch(
            sealed, number, put(other, f"key{number}", number), is_interval_over=True
        )
    after = process()
    after.store.at(sealed)

    assert sealed.files[0].is_base
    assert after.keyed.names() == {"count": "value", "other": "value"}
    assert after.keyed.entries_of(COUNT).get("ada") == 5


def test_a_sealed_state_cannot_be_asked_for_as_another_kind(process):
    sealed = process().epoch(ALL, 1, put(COUNT, "ada", 5))
    after = process()
    after.store.at(sealed)

    with raises(STATE_KIND_CHANGED) as caught:
        after.keyed.entries_of(ListStateDescriptor("count", int))
    assert caught.value.facts == {"state": "count", "sealed": "value", "asked": "list"}


def test_a_state_has_one_descriptor(process):
    worker = process()
    entries = worker.keyed.entries_of(COUNT)

    assert worker.keyed.entries_of(ValueStateDescriptor("count", int, 9)) is entries
    with pytest.raises(StateDefinitionError):
        worker.keyed.entries_of(ValueStateDescriptor("count", str))


def test_a_value_of_another_type_than_declared_comes_back_as_it_was(process):
    sealed = process().epoch(ALL, 1, put(COUNT, "ada", "five"))
    after = process()
    after.store.at(sealed)

    assert after.keyed.entries_of(COUNT).get("ada") == "five"


def test_values_that_refuse_to_be_compared_are_stored(process):
    things = ValueStateDescriptor("things")
    sealed = process().epoch(ALL, 1, put(things, "ada", Incomparable(5)))

    def replace(keyed):
        keyed.entries_of(things).delete("ada")
        keyed.entries_of(things).put("bob", Incomparable(6))

    sealed = process().epoch(sealed, 2, replace)
    after = process()
    after.store.at(sealed)

    assert after.keyed.entries_of(things).get("ada") is None
    assert after.keyed.entries_of(things).get("bob").number == 6


def test_map_keys_must_have_an_order(process):
    with pytest.raises(KeyEncodingError):
        process().keyed.entries_of(MapStateDescriptor("m")).put("ada", object(), 1)


def test_handles_stay_good_when_the_table_is_built_anew(process):
    worker = process()
    entries = worker.keyed.entries_of(COUNT)
    sealed = worker.epoch(ALL, 1, put(COUNT, "ada", 1))
    entries.put("ada", 99)
    worker.store.at(sealed)
    worker.store.at(sealed)

    assert entries.get("ada") == 1


def test_a_ttl_may_be_added_and_taken_away(process, clock):
    brief = ValueStateDescriptor("count", int, ttl=StateTtl(1_000))
    sealed = process().epoch(ALL, 1, put(COUNT, "ada", 5))
    clock.now_ms = 10_000
    with_ttl = process()
    sealed = with_ttl.epoch(sealed, 2, lambda keyed: keyed.entries_of(brief))
    clock.now_ms = 10_999
    again = process()
    again.store.at(sealed)
    assert again.keyed.entries_of(brief).get("ada") == 5
    without = process()
    without.store.at(sealed)
    assert without.keyed.entries_of(COUNT).get("ada") == 5
    clock.now_ms = 11_000
    assert again.keyed.entries_of(brief).get("ada") is None


def test_the_time_of_an_entry_that_was_deleted_while_there_was_no_ttl_is_forgotten(process, clock):
    stock = MapStateDescriptor("stock", str, int)
    brief = MapStateDescriptor("stock", str, int, ttl=StateTtl(1_000))
    sealed = process().epoch(ALL, 1, put_part(brief, "ada", "pear", 5))
    sealed = process().epoch(sealed, 2, lambda keyed: keyed.entries_of(stock).clear("ada"))
    clock.now_ms = 100_000
    worker = process()
    worker.epoch(sealed, 3, lambda keyed: keyed.entries_of(brief))

    assert worker.keyed.next_due_ms() is None
    assert ("ada", "pear") not in worker.keyed.entries_of(brief).expiry.stamps


def test_a_ttl_that_is_added_counts_for_entries_that_nobody_reads(process, clock):
    brief = ValueStateDescriptor("count", int, ttl=StateTtl(1_000))
    sealed = process().epoch(ALL, 1, put(COUNT, "ada", 5))
    worker = process()
    entries = worker.keyed.entries_of(brief)
    clock.now_ms = 10_000
    sealed = worker.epoch(sealed, 2)
    assert entries.get("ada") == 5
    clock.now_ms = 12_000
    sealed = worker.epoch(sealed, 3)

    assert entries.entries == {}
    assert len(sealed.files) == 3


@pytest.mark.parametrize("update", ["on_write", "on_access"])
def test_the_times_of_entries_survive_a_restart(process, clock, update):
    brief = ValueStateDescriptor("count", int, ttl=StateTtl(1_000, update=update))
    sealed = process().epoch(ALL, 1, put(brief, "ada", 5))
    clock.now_ms = 900
    sealed = process().epoch(sealed, 2, lambda keyed: keyed.entries_of(brief).get("ada"))
    clock.now_ms = 1_800
    after = process()
    after.store.at(sealed)

    assert after.keyed.entries_of(brief).get("ada") == (5 if update == "on_access" else None)


@pytest.mark.parametrize(
    "look",
    [
        lambda entries: entries.get("ada", "pear"),
        lambda entries: entries.has("ada", "pear"),
        lambda entries: list(entries.scan("ada")),
    ],
    ids=["get", "has", "scan"],
)
def test_the_one_who_looks_at_an_entry_of_a_map_renews_it_where_access_counts(process, clock, look):
    ttl = StateTtl(1_000, update="on_access")
    brief = MapStateDescriptor("stock", str, int, ttl=ttl)
    worker = process()
    sealed = worker.epoch(ALL, 1, lambda keyed: keyed.entries_of(brief).put("ada", "pear", 5))
    clock.now_ms += 900
    sealed = worker.epoch(sealed, 2, lambda keyed: look(keyed.entries_of(brief)))
    clock.now_ms += 900
    after = process()
    after.store.at(sealed)

    assert after.keyed.entries_of(brief).has("ada", "pear")
    clock.now_ms += 1_000
    assert not after.keyed.entries_of(brief).has("ada", "pear")


def test_space_does_not_grow_where_entries_expire(process, clock):
    brief = ValueStateDescriptor("seen", int, ttl=StateTtl(1_000))
    worker, sizes, sealed = process(), [], [ALL]
    numbers = itertools.count(1)

    def run_epoch():
        number = next(numbers)
        clock.now_ms += 100

        def some_new_keys(keyed):
            for index in range(20):
                keyed.entries_of(brief).put(f"{number:04}-{index:02}", number)

        is_over = number % 10 == 0
        sealed.append(worker.epoch(sealed[-1], number, some_new_keys, is_interval_over=is_over))
        assert len(worker.keyed.entries_of(brief).entries) <= 2 * 20 * 10
        sizes.append(sealed[-1].byte_count)

    def is_bounded():
        """What grows with each epoch is a third larger in the last quarter than ever before."""
        run_epoch()
        last = len(sizes) * 3 // 4
        return max(sizes[last:]) <= 1.1 * max(sizes[:last])

    for _ in range(120):
        run_epoch()
    # RocksDB gives space back when it compacts, which it does in its own time.
    until(is_bounded, lambda: f"{sizes[::100]} to stop growing")
    assert worker.keyed.next_due_ms() > clock.now_ms


def test_what_was_sealed_before_event_time_is_known_leaves_in_its_time_too(process, clock):
    by_event = ValueStateDescriptor("seen", int, ttl=StateTtl(1_000, time="event"))
    clock.now_ms = WATERMARK_MIN
    sealed = process().epoch(ALL, 1, put(by_event, "ada", 1))
    clock.now_ms = 5_000
    sealed = process().epoch(sealed, 2, lambda keyed: keyed.entries_of(by_event))
    clock.now_ms = 5_999
    after = process()
    after.store.at(sealed)
    assert after.keyed.entries_of(by_event).get("ada") == 1
    clock.now_ms = 7_000
    after.keyed.changes()

    assert after.keyed.entries_of(by_event).entries == {}


def test_a_state_that_expires_by_event_time_asks_for_no_time_of_day(process):
    worker = process()
    by_event = ValueStateDescriptor("seen", int, ttl=StateTtl(1_000, time="event"))
    worker.store.at(ALL)
    put(by_event, "ada", 1)(worker.keyed)

    assert worker.keyed.next_due_ms() is None


def test_entries_of_a_key_are_told_from_those_of_a_key_that_goes_on_with_a_nul(process):
    visits, notes = MapStateDescriptor("visits", str, int), ListStateDescriptor("notes", int)

    def write(keyed):
        for number, key in enumerate(["a", "a\x00", "a\x00b"]):
            keyed.entries_of(visits).put(key, "page", number)
            keyed.entries_of(notes).append(key, [number] * (number + 1))

    sealed = process().epoch(ALL, 1, write)
    after = process()
    after.store.at(sealed)
    keyed = after.keyed

    assert [keyed.entries_of(visits).items(key) for key in ("a", "a\x00")] == [
        [("page", 0)], [("page", 1)],
    ]  # fmt: skip
    keyed.entries_of(notes).append("a", [7])
    assert keyed.entries_of(notes).items("a") == [(0, 0), (1, 7)]


def test_deleted_timers_leave_the_heap(process):
    worker = process()
    worker.store.at(ALL)
    queue = worker.timers.event
    for time_ms in range(10_000):
        queue.set("ada", time_ms)
        queue.delete("ada", time_ms)

    assert len(getattr(queue, "_time_queue", queue._times)) < 200
    assert queue.next_time_ms() is None


def test_what_comes_and_goes_within_an_epoch_is_not_written(process):
    rows = MapStateDescriptor("rows", int, str)
    worker = process()

    def come_and_go(keyed):
        entries = keyed.entries_of(rows)
        entries.items("ada")  # Now it is known what the key has.
        for part in (1, 2, 3):
            entries.put("ada", part, "new")
            worker.timers.event.set("ada", part)
        entries.delete("ada", 1)
        assert next(entries.take(["ada"], 3)) == ("ada", [(2, "new")], 3)
        assert [*entries.take(["ada"], 4)] == [("ada", [(3, "new")], MISSING)]
        assert [timer.time_ms for timer in worker.timers.event.take_due(3)] == [1, 2, 3]

    empty = worker.epoch(ALL, 1, come_and_go)
    sealed = worker.epoch(empty, 2, put_part(rows, "ada", 1, "kept"))
    unchanged = worker.epoch(sealed, 3, come_and_go_of_another(rows))

    assert empty == ALL
    assert unchanged == sealed


def test_what_is_sealed_goes_however_often_it_came_back(process):
    rows = MapStateDescriptor("rows", int, str)
    sealed = process().epoch(ALL, 1, put_part(rows, "ada", 1, "old"))

    def come_back(keyed):
        entries = keyed.entries_of(rows)
        entries.items("ada")
        entries.delete("ada", 1)
        entries.put("ada", 1, "new")
        entries.delete("ada", 1)

    sealed = process().epoch(sealed, 2, come_back)
    after = process()
    after.store.at(sealed)

    assert after.keyed.entries_of(rows).items("ada") == []


def put_part(descriptor, key, part, value):
    return lambda keyed: keyed.entries_of(descriptor).put(key, part, value)


def come_and_go_of_another(descriptor):
    def write(keyed):
        entries = keyed.entries_of(descriptor)
        entries.items("ada")
        entries.put("ada", 9, "new")
        entries.delete("ada", 9)

    return write
