"""When windows are due: the index on disk tells what one in memory tells."""

from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.records.keys import encode_key
from bicycle_runtime.state.disk import timers
from bicycle_runtime.state.memory.due import DueTimes
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from tests.examples import examples

GROUPS = 2
BLANK = RangeState(first_group=0, end_group=GROUPS)
TIMES = st.integers(-3, 300)
WINDOW_KEYS = st.tuples(
    st.integers(-300, 1), st.integers(0, GROUPS - 1), st.sampled_from(["a", "b", 1, (2, "x"), None])
)
# Times that a window asks for again when it is due, by its time modulo 5: sooner, then, or later.
AGAIN = {1: -2, 2: 0, 3: 7}
STEPS = st.one_of(
    st.tuples(st.just("add"), TIMES, WINDOW_KEYS),
    st.tuples(st.just("add"), TIMES, WINDOW_KEYS),
    st.tuples(st.just("due"), TIMES),
    st.tuples(st.just("first"), TIMES),
)
ENDS = st.sampled_from(["seal", "seal", "base", "fail", "lose", "other rules"])
PATIENT = settings(
    max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck)
)


class Process:
    """A worker process with entries that are lists of the times for which they wait."""

    def __init__(self, folder, *, backend="rocksdb", rules="one"):
        settings = StateSettings(backend=backend, folder=str(folder / "local"), cache_entries=4)
        self.tables = tables_for(settings, job_url="job")
        self.times = self.tables.windows.due_times("event")
        self.rules = rules
        storage = LocalStorage(str(folder / "sealed"), is_synced=False)
        self.store = self.tables.store("op", storage, self.new_table)

    def new_table(self):
        windows = self.tables.windows
        entries = windows.entries("s", list[int])
        windows.keep_due_times(entries, moments, self.rules)
        return windows.table(entries, windows.records(None, is_by_key=True))

    def at(self, sealed):
        table = self.store.at(sealed)
        table.begin()
        self.store.bases.wait()
        self.entries = table.entries
        self.times.reset()


def moments(entry_key):
    return [("event", time_ms) for time_ms in entry_key]


@pytest.fixture
def opened(tmp_path):
    """Due times on disk, of a process that has just begun."""
    process = Process(tmp_path)
    process.at(BLANK)
    yield process.times
    process.store.close()


@PATIENT
@given(steps=st.lists(STEPS, max_size=30))
def test_what_is_added_while_others_are_taken_comes_in_the_same_order(opened, steps):
    opened.reset()
    both = DueTimes(), opened
    asked = set()
    for word, *what in steps:
        if word == "add":
            for times in both:
                times.add(*what)
        elif word == "first":
            only = what[0]
            found = [times.first(lambda time_ms, _, only=only: time_ms >= only) for times in both]
            assert found[0] == found[1]
        else:
            one, other = (taken(times, what[0], set(asked)) for times in both)
            assert one[0] == other[0]
            asked = one[1]


def taken(times, until, asked):
    """Take out what is due, and ask for some of it again, once each."""
    found = []
    for time_ms, window_key in times.due(until):
        found.append((time_ms, window_key))
        if time_ms % 5 in AGAIN and (time_ms, window_key) not in asked:
            asked.add((time_ms, window_key))
            times.add(time_ms + AGAIN[time_ms % 5], window_key)
    return found, asked


@PATIENT
@given(epochs=st.lists(st.tuples(st.lists(STEPS, max_size=6), ENDS), max_size=12))
def test_times_of_sealed_entries_are_due_whatever_happens(tmp_path_factory, epochs):
    folder = tmp_path_factory.mktemp("due")
    process, rules, sealed, number = Process(folder), "one", BLANK, 1
    waiting, was = set(), set()
    process.at(sealed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(timers, "_CHUNK", 3)
        for steps, end in epochs:
            for word, *what in steps:
                if word == "add":
                    wait(process, *what)
                    waiting.add(tuple(what))
                elif word == "due":
                    due = in_order(each for each in waiting if each[0] <= what[0])
                    assert fired(process, what[0]) == due
                    waiting -= set(due)
                else:
                    least = min((time_ms for time_ms, _ in waiting), default=None)
                    assert process.times.first(partial(is_set, process)) == least
            if end in ("seal", "base"):
                sealed = process.store.commit(
                    sealed, epoch=number, attempt=f"a{number}", is_interval_over=end == "base"
                )
                was = waiting
            else:
                process.times.reset()
            number += 1
            if end in ("lose", "other rules"):
                rules = rules if end == "lose" else f"{number}"
                process.store.close()
                process = Process(folder, rules=rules)
            if end in ("seal", "base"):
                process.store.at(sealed)
            else:
                process.at(sealed)
            waiting = set(was)
        assert fired(process, 300) == in_order(waiting)
    process.store.close()


def wait(process, time_ms, window_key):
    place, group, key = window_key
    kept = process.entries.group(place, group).setdefault(key, [])
    process.entries.touch(place, group, (key,))
    if time_ms not in kept:
        kept.append(time_ms)
        process.times.add(time_ms, window_key)


def is_set(process, time_ms, window_key):
    return time_ms in (process.entries.find(*window_key) or ())


def fired(process, until):
    found = []
    for time_ms, window_key in process.times.due(until):
        if is_set(process, time_ms, window_key):
            found.append((time_ms, window_key))
            process.entries.find(*window_key).remove(time_ms)
            process.entries.touch(window_key[0], window_key[1], (window_key[2],))
    return found


def in_order(waiting):
    return sorted(waiting, key=lambda one: (one[0], one[1][0], one[1][1], encode_key(one[1][2])))
