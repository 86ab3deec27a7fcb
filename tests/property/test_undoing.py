"""Undoing attempts: whatever they do to dicts, states and timers, these are as they were before."""

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.state.disk.dicts import DiskDict
from bicycle_runtime.state.memory.keyed import KeyedTable
from bicycle_runtime.state.memory.tracked import Tracking, tracked_dict
from bicycle_runtime.state.memory.undoing import UndoTimers, undoing_entries
from bicycle_runtime.state.undo import Attempts, begin_attempt, undo
from bicycle_sdk.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtl,
    ValueStateDescriptor,
)
from bicycle_sdk.state.handles import make_handle
from bicycle_sdk.state.timers import TimerQueue
from tests.examples import examples
from tests.unit.state.disk_workers import BLANK, Worker

PARTS = st.integers(0, 3)
TTL = StateTtl(5, update="on_access")


# --- dicts ---------------------------------------------------------------------------------------

DICT_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "set",
                "set",
                "add",
                "del",
                "pop",
                "popitem",
                "default",
                "update",
                "or",
                "all",
                "clear",
            ]
        ),
        PARTS,
        st.integers(0, 9),
    ),
    max_size=8,
)


def change(entries, step):  # noqa: PLR0912  # one branch for each way to change a dict
    action, key, number = step
    match action:
        case "set":
            entries[key] = [number]
        case "add":
            entries.get(key, []).append(number)
        case "del":
            if key in entries:
                del entries[key]
        case "pop":
            entries.pop(key, []).append(number)
        case "popitem":
            if entries:
                entries.popitem()[1].append(number)
        case "default":
            entries.setdefault(key, []).append(number)
        case "update":
            entries.update({key: [number], 9: []})
        case "or":
            entries |= {key: [number]}
        case "all":
            for found in entries.values():
                found.append(number)
            for _key, found in list(entries.items()):
                found.append(number)
        case "clear":
            entries.clear()


NAMED_VALUES = Tracking(undoes=True, copies=True)


@given(st.sampled_from([Tracking(touches=True).undoing(), NAMED_VALUES]), DICT_STEPS, DICT_STEPS)
def test_a_dict_of_lists_is_as_it_was(tracking, before, attempt):
    entries, model = tracked_dict({}, tracking), {}
    for step in before:
        change(entries, step)
        change(model, step)
    log = begin_attempt()
    for step in attempt:
        change(entries, step)
    undo(log)

    assert dict(dict.items(entries)) == model
    assert {k for k, v in entries.touched.items() if k in model} >= set(model)


@settings(max_examples=examples(20), deadline=None)
@given(DICT_STEPS, DICT_STEPS, DICT_STEPS)
def test_a_dict_on_disk_is_as_it_was(tmp_path_factory, sealed_steps, before, attempt):
    worker = Worker(tmp_path_factory.mktemp("state"), cache_entries=2)
    worker.tables.undoes = True
    model = {}

    def write(function):
        for step in sealed_steps:
            change(function(0).lists, step)
            change(model, step)

    sealed = worker.epoch(BLANK, 1, write)
    worker.store.close()
    lists = worker.store.at(sealed).group(0).instance.lists
    assert isinstance(lists, DiskDict)
    for step in before:
        change(lists, step)
        change(model, step)
    log = begin_attempt()
    for step in attempt:
        change(lists, step)
    undo(log)

    assert lists == model
    sealed = worker.store.commit(sealed, epoch=2, attempt="a", is_interval_over=False)
    worker.store.close()
    assert worker.store.at(sealed).group(0).instance.lists == model
    worker.store.close()


@given(
    st.dictionaries(PARTS, st.integers()),
    st.lists(st.tuples(st.sampled_from(["set", "pop", "clear", "update"]), PARTS, st.integers())),
)
def test_a_dict_of_numbers_is_as_it_was(before, attempt):
    entries = tracked_dict(before, Tracking().undoing())
    log = begin_attempt()
    for action, key, number in attempt:
        match action:
            case "set":
                entries[key] = number
            case "pop":
                entries.pop(key, None)
            case "clear":
                entries.clear()
            case "update":
                entries.update({key: number})
    undo(log)

    assert entries == before


# --- keyed states --------------------------------------------------------------------------------

STATES = {
    "int": ValueStateDescriptor("int", int),
    "any": ValueStateDescriptor("any"),
    "short": ValueStateDescriptor("short", int, ttl=TTL),
    "list": ListStateDescriptor("list", int),
    "lists": ListStateDescriptor("lists", list[int], ttl=TTL),
    "map": MapStateDescriptor("map", int, int, ttl=TTL),
    "maps": MapStateDescriptor("maps", int, list[int]),
}
STATE_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "read", "remove", "clear", "update", "wait"]),
        st.sampled_from(sorted(STATES)),
        PARTS,
        st.integers(0, 9),
    ),
    max_size=10,
)


class Scope:
    def state_key(self):
        return "key"


def act(handles, step, now):
    """Do something with a state; values that can be changed are changed when they are read."""
    action, name, part, number = step
    if action == "wait":
        now[0] += number
        return
    value = [number] if name in ("any", "lists", "maps") else number
    handle = handles[name]
    match name:
        case "int" | "any" | "short":
            act_on_value(handle, action, value)
        case "list" | "lists":
            act_on_list(handle, action, value)
        case "map" | "maps":
            act_on_map(handle, action, part, value)


def act_on_value(handle, action, value):
    if action == "put":
        handle.update(value)
    elif action == "read":
        spoil([handle.value()])
    else:
        handle.clear()


def act_on_list(handle, action, value):
    match action:
        case "put":
            handle.add_all([value, copy.copy(value)])
        case "read" | "remove":
            spoil(handle.get())
        case "update":
            handle.update([*handle.get(), value])
        case "clear":
            handle.clear()


def act_on_map(handle, action, part, value):
    match action:
        case "put" | "update":
            handle.put(part, value)
        case "read":
            spoil(found for _, found in handle.range(part))
            handle.contains(part)
        case "remove":
            spoil([handle.get(part), handle.remove(part)])
        case "clear":
            handle.clear()


def spoil(values):
    for value in values:
        if isinstance(value, list):
            value.append("spoilt")


def content(table):
    """Return all that the states hold, with the times from which it lives."""
    found = {}
    for name, descriptor in STATES.items():
        entries = table.entries_of(descriptor)
        stamps = {} if entries.expiry is None else dict(entries.expiry.stamps)
        # The order of a list counts, that of a map does not.
        held = [(entry_key, entries.peek(entry_key)) for entry_key in entries.entry_keys()]
        found[name] = (held if "list" in name else dict(held), stamps)
    return copy.deepcopy(found)


@given(STATE_STEPS, STATE_STEPS, st.booleans())
def test_states_are_as_they_were_with_their_times_to_live(before, attempt, one_by_one):
    now = [0]
    table = KeyedTable(GroupCache(4), lambda _: now[0])
    attempts = Attempts(one_by_one=one_by_one)
    handles = {
        name: make_handle(one, undoing_entries(table.entries_of(one), one, attempts), Scope())
        for name, one in STATES.items()
    }
    for step in before:
        act(handles, step, now)
    files = [table.changes()]
    known = content(table)
    attempts.begin_batch()
    log = begin_attempt() if attempts.log is None else attempts.log
    log.clear()
    for step in attempt:
        if step[0] != "wait":  # An attempt sees one time.
            act(handles, step, now)
    undo(log)

    assert content(table) == known
    files.append(table.changes())
    restored = KeyedTable(GroupCache(4), lambda _: now[0])
    for change_sets in files:
        restored.apply(change_sets)
    assert content(restored) == content(table)


# --- timers --------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), PARTS), max_size=8),
    st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), PARTS), max_size=8),
)
def test_timers_fire_as_if_there_had_been_no_attempt(before, attempt):
    queue, model = TimerQueue("event"), TimerQueue("event")
    for is_set, key, time_ms in before:
        for each in (queue, model):
            (each.set if is_set else each.delete)(key, time_ms)
    log = begin_attempt()
    for is_set, key, time_ms in attempt:
        (UndoTimers(queue).set if is_set else UndoTimers(queue).delete)(key, time_ms)
    undo(log)

    assert [queue.pop_due(9) for _ in range(9)] == [model.pop_due(9) for _ in range(9)]
