"""Tables of windows: what is written is what changed, and reading it back gives the same."""

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.state.memory.windows import Records, WindowEntries, WindowTable
from bicycle_runtime.state.sealed.changes import full_change_sets, merge_change_sets

KEYS = st.sampled_from(["a", "b", 1, ("x", 2)])
PLACES = st.integers(-2, 2)
GROUPS = st.integers(0, 1)
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "drop", "add", "replace", "purge", "clear"]),
              PLACES, GROUPS, KEYS, st.integers()),
    max_size=12,
)  # fmt: skip


def new_table():
    return WindowTable(WindowEntries("c", int), Records(int))


def carry_out(table, steps):
    for action, namespace, group, key, value in steps:
        match action:
            case "put":
                table.entries.group(namespace, group)[key] = value
                table.entries.touch(namespace, group, (key,))
            case "remove":
                table.entries.remove(namespace, group, key)
            case "drop":
                table.entries.drop(namespace)
            case "add":
                table.records.add(namespace, group, key, ([value], [value]))
            case "replace":
                table.records.replace(namespace, group, key, ([value, 0], [value, 1]))
            case "purge":
                table.records.replace(namespace, group, key, ([], []))
            case "clear":
                table.records.drop(namespace)


def contents(table):
    entries = {
        (namespace, group, key): value
        for namespace, groups in table.entries.namespaces.items()
        for group, values in groups.items()
        for key, value in values.items()
    }
    rows = {
        (namespace, group, key): table.records.row(namespace, group, key)
        for namespace, groups in table.records.namespaces.items()
        for group, kept in groups.items()
        for key in kept
    }
    return entries, rows


def chunks(records):
    """Return how many keys have records, by place and epoch."""
    found = {}
    for namespace, groups in records.namespaces.items():
        for group, kept in groups.items():
            found[namespace, group] = dict(Counter(chain.from_iterable(kept.values())))
    return found


@given(
    epochs=st.lists(st.tuples(STEPS, st.booleans()), max_size=6),
    cut=st.integers(0, 6),
    is_merged=st.booleans(),
)
def test_the_changes_of_all_epochs_give_the_table_again(epochs, cut, is_merged):
    table, files = new_table(), []
    for number, (steps, is_base) in enumerate(epochs):
        table.records.epoch = number
        carry_out(table, steps)
        changes = table.changes()
        files.append(changes)
        if is_base:
            files = [full_change_sets(merge_change_sets(files))]
    if is_merged and files:
        cut = min(cut, len(files) - 1)
        files = [*files[:cut], merge_change_sets(files[cut:])]

    restored = new_table()
    for change_sets in files:
        restored.apply(change_sets)

    assert contents(restored) == contents(table)
    assert restored.records._sealed == table.records._sealed == chunks(table.records)


@given(epochs=st.lists(STEPS, min_size=1, max_size=5), start=st.integers(0, 4))
def test_applying_changes_again_changes_nothing(epochs, start):
    table, restored, files = new_table(), new_table(), []
    for number, steps in enumerate(epochs):
        table.records.epoch = number
        carry_out(table, steps)
        files.append(table.changes())
        restored.apply(files[-1])
    restored.apply(merge_change_sets(files[start:]))

    assert contents(restored) == contents(table)
    assert restored.records._sealed == table.records._sealed == chunks(table.records)


@pytest.mark.parametrize("part", ["cells", "records"])
def test_what_comes_and_goes_in_one_epoch_is_never_written(part):
    table = new_table()
    steps = {"cells": ["put", "drop"], "records": ["add", "clear"]}[part]
    carry_out(table, [(step, 5, 0, "a", 1) for step in steps])

    assert table.changes() == []


def test_an_epoch_writes_only_the_records_that_it_added():
    table = new_table()
    table.records.epoch = 1
    table.records.add(0, 0, "a", ([1], [10]))
    table.changes()
    table.records.epoch = 2
    table.records.add(0, 0, "a", ([2], [20]))

    (change_set,) = table.changes()
    assert (change_set.name, bytes(change_set.values)) == ("r0#2", b"\x91\x92\x91\x02\x91\x14")


def test_an_epoch_of_which_no_record_is_left_is_forgotten():
    table = new_table()
    for table.records.epoch in range(1, 50):
        table.records.replace(0, 3, "a", ([1], [10]))
        table.changes()
    assert table.records._sealed == {(0, 3): {49: 1}}

    table.records.replace(0, 3, "a", ([], []))
    table.changes()
    assert (table.records._sealed, table.records.namespaces) == ({}, {})


def test_all_is_gone_when_the_last_place_is():
    table = new_table()
    carry_out(table, [("put", 3, 0, "a", 1), ("add", 3, 1, "b", 2)])
    table.changes()
    carry_out(table, [("drop", 3, 0, "a", 1), ("clear", 3, 0, "a", 1)])
    changes = table.changes()

    assert full_change_sets(merge_change_sets([changes])) == []
    assert (table.entries.namespaces, table.records.namespaces) == ({}, {})
