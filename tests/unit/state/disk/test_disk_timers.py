"""Timers on disk are a sorted set, however little of them is held, and whatever befalls them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.records.keys import GroupCache, encode_key
from bicycle_runtime.state.disk import timers
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from tests.examples import examples

GROUPS = GroupCache(4)
BLANK = RangeState(first_group=0, end_group=4)
KEYS = st.sampled_from(["a", "a\x00", "b", 1, -300, ("x", 2), None])
TIMES = st.integers(-5, 300)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["set", "set", "set", "delete"]), KEYS, TIMES),
    st.tuples(st.sampled_from(["fire", "fire at once"]), TIMES),
)
ENDS = st.sampled_from(["seal", "seal", "seal", "base", "fail", "lose", "move", "follow"])


class Process:
    """A worker process with timers, over sealed files that outlive it."""

    def __init__(self, folder, backend="rocksdb", *, cache_entries=4, local="local"):
        self.tables = tables_for(
            StateSettings(backend=backend, folder=str(folder / local), cache_entries=cache_entries),
            job_url="job",
        )
        self.timers = self.tables.timers(GROUPS)
        storage = LocalStorage(str(folder / "sealed"), is_synced=False)
        self.store = self.tables.store("op", storage, self.new_table)

    def new_table(self):
        self.timers.reset()
        return self.timers

    def at(self, sealed):
        self.store.at(sealed)
        self.store.bases.wait()

    def seal(self, sealed, epoch, *, is_interval_over=False):
        return self.store.commit(
            sealed, epoch=epoch, attempt=f"a{epoch}", is_interval_over=is_interval_over
        )


class Play:
    """Timers of two processes, of which one runs the epochs, and what they should be."""

    def __init__(self, folder):
        self.folder, self.backend = folder, "rocksdb"
        self.sealed, self.epoch = BLANK, 1
        self.model, self.was = set(), set()
        self.process = self.other = None
        self.lose()

    def lose(self):
        self.close()
        self.process = Process(self.folder, self.backend)
        self.begin()

    def close(self):
        for each in (self.process, self.other):
            if each is not None:
                each.store.close()
        self.other = None

    def begin(self):
        self.model = set(self.was)
        self.process.at(self.sealed)

    def step(self, word, *what):
        queue = self.process.timers.event
        match word:
            case "set":
                queue.set(*what)
                self.model.add(what)
            case "delete":
                queue.delete(*what)
                self.model.discard(what)
            case "fire" | "fire at once":
                due = in_order(timer for timer in self.model if timer[1] <= what[0])
                if word == "fire":
                    fired = iter(lambda: queue.pop_due(*what), None)
                else:
                    fired = queue.take_due(*what)
                assert [(timer.key, timer.time_ms) for timer in fired] == due
                self.model -= set(due)
        first = min((time_ms for _, time_ms in self.model), default=None)
        assert queue.next_time_ms() == first

    def end(self, word):
        if word == "move":
            self.backend = "memory" if self.backend == "rocksdb" else "rocksdb"
        if word in ("seal", "base", "follow"):
            self.sealed = self.process.seal(
                self.sealed, self.epoch, is_interval_over=word == "base"
            )
            self.was = self.model
        if word == "follow":  # Another process goes on, which stood at an earlier epoch.
            self.process, self.other = self.other or Process(
                self.folder, local="another"
            ), self.process  # fmt: skip
        self.epoch += 1
        (self.lose if word in ("lose", "move") else self.begin)()

    def compare(self):
        queue = self.process.timers.event
        for key in {key for key, _ in self.model} | {"a"}:
            assert queue.times_of(key) == sorted(t for owner, t in self.model if owner == key)


def in_order(timers):
    return sorted(timers, key=lambda timer: (timer[1], encode_key(timer[0])))


@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(epochs=st.lists(st.tuples(st.lists(STEPS, max_size=8), ENDS), max_size=14))
def test_timers_fire_in_order_whatever_happens(tmp_path_factory, epochs):
    play = Play(tmp_path_factory.mktemp("timers"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(timers, "_CHUNK", 3)
        patched.setattr(timers, "_FEW", 2)
        for steps, end in epochs:
            for step in steps:
                play.step(*step)
            play.compare()
            play.end(end)
        play.compare()
        play.step("fire", 300)
    play.close()


@pytest.fixture
def process(tmp_path):
    """Starts processes with few entries in memory, over the same files."""
    started = []

    def start(backend="rocksdb", **options):
        started.append(Process(tmp_path, backend, **options))
        return started[-1]

    yield start
    for each in started:
        each.store.close()


def filled(worker, count, *, epoch=1, sealed=BLANK):
    worker.at(sealed)
    for number in range(count):
        worker.timers.event.set(f"{number % 100}", number)
    assert worker.timers.event.next_time_ms() == 0
    return worker.seal(sealed, epoch)


def held(queue):
    return dict.__len__(queue.stored) + len(queue.stored._warm), len(queue._time_queue)


def test_timers_that_are_due_are_taken_at_once_and_others_left(process):
    """Those that are sealed and those of the epoch, of which one was deleted and set again."""
    worker = process(cache_entries=100)
    worker.at(filled(worker, 300))
    queue = worker.timers.event
    for time_ms in (250, 7, 999):
        queue.set("late", time_ms)
    queue.delete("late", 7)
    queue.set("late", 7)
    queue.delete("3", 3)

    due = [(timer.time_ms, timer.key) for timer in queue.take_due(250)]

    expected = [(number, f"{number % 100}") for number in range(251) if number != 3]
    assert due == sorted([*expected, (7, "late"), (250, "late")])
    assert [timer.time_ms for timer in queue.take_due(1_000)] == [*range(251, 300), 999]


def test_of_timers_that_are_sealed_only_the_bound_stays_in_memory(process):
    worker = process(cache_entries=100)
    sealed = filled(worker, 3_000)
    worker.at(sealed)
    queue = worker.timers.event

    assert max(held(queue)) <= 100
    assert queue.next_time_ms() == 0
    assert [queue.pop_due(5_000).time_ms for _ in range(3_000)] == list(range(3_000))
    assert queue.pop_due(5_000) is None


def test_timers_of_either_backend_are_those_of_the_other(process):
    sealed = filled(process("memory"), 50)
    worker = process()
    worker.at(sealed)
    for _ in range(20):
        worker.timers.event.pop_due(100)
    sealed = worker.seal(sealed, 2)
    after = process("memory")
    after.at(sealed)

    assert [time_ms for _, time_ms in in_order(after.timers.event.waiting)] == list(range(20, 50))


def test_a_timer_that_is_set_already_is_not_written_again(process):
    worker = process()
    sealed = filled(worker, 50)
    worker.at(sealed)
    for number in range(50):
        worker.timers.event.set(f"{number}", number)
        worker.timers.event.delete(f"{number}", number + 1)

    assert worker.timers.changes() == []


def test_timers_of_keys_that_nobody_asked_for_are_forgotten(process):
    worker = process()
    sealed = filled(worker, 300)
    worker.at(sealed)
    queue = worker.timers.event
    queue.keep_only(["7"])

    assert [timer.time_ms for timer in iter(lambda: queue.pop_due(250), None)] == [7, 107, 207]
    assert {
        entry_key[0] for change_set in worker.timers.changes() for entry_key in entries(change_set)
    } == {"7"}


def entries(change_set):
    return AnyCodec().decode_list(bytes(change_set.deleted))
