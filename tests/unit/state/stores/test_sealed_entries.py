"""Entries read from files without types are what a table makes of the same files."""

import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.state.memory.keyed import KeyedTable
from bicycle_runtime.state.stores.sealed_entries import infer_kind, sealed_entries
from bicycle_runtime.state.stores.store import StateStore
from bicycle_sdk.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from bicycle_sdk.state.handles import make_handle
from tests.examples import examples

GROUPS = 4
KEYS = st.sampled_from(["a", "b", 1, 2.5, ("a", 1), None])
VALUES = st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
WRITES = st.tuples(
    st.sampled_from(["value", "list", "map", "clear value", "clear list", "clear map"]),
    KEYS,
    KEYS,
    VALUES,
)
STATES = {
    "value": ValueStateDescriptor("value"),
    "list": ListStateDescriptor("list"),
    "map": MapStateDescriptor("map"),
}


class Subtask:
    """A keyed table with its files, and a model of what it holds."""

    def __init__(self, folder):
        self.storage = LocalStorage(folder, is_synced=False)
        self.store = StateStore("op", self.storage, self.new_table)
        self.state = RangeState(first_group=0, end_group=GROUPS)
        self.model = {}
        self.key = None

    def new_table(self):
        return KeyedTable(GroupCache(GROUPS), lambda _domain: 0)

    def state_key(self):
        return self.key

    def run_epoch(self, epoch, writes):
        table = self.store.at(self.state)
        for what, key, part, value in writes:
            self.key = key
            *clear, kind = what.split()
            handle = make_handle(STATES[kind], table.entries_of(STATES[kind]), self)
            if clear:
                handle.clear()
                self.model = {at: kept for at, kept in self.model.items() if at[:2] != (kind, key)}
            elif kind == "value":
                handle.update(value)
                self.model[kind, key, None] = value
            elif kind == "list":
                handle.add(value)
                self.model.setdefault((kind, key, None), []).append(value)
            else:
                handle.put(part, value)
                self.model[kind, key, part] = value
        self.state = self.store.commit(
            self.state, epoch=epoch, attempt="a", is_interval_over=epoch % 5 == 0
        )


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.lists(WRITES, max_size=5), max_size=12))
def test_entries_are_what_was_written(epochs):
    with tempfile.TemporaryDirectory() as folder:
        subtask = Subtask(folder)
        for epoch, writes in enumerate(epochs, start=1):
            subtask.run_epoch(epoch, writes)

        found = {}
        for group in range(GROUPS):
            found_here = sealed_entries(
                subtask.storage,
                subtask.state,
                operator="op",
                groups=range(group, group + 1),
                is_window=False,
            )
            entries = list(found_here)
            assert all(entry.group == group for entry in entries)
            found |= {(e.state, e.key, e.part): e.value() for e in entries}
        subtask.store.close()
        assert found == subtask.model


def test_an_attribute_that_is_called_like_a_change_set_of_windows_is_none_beside_others():
    assert infer_kind(["c1", "counts"]) == "Process"
    assert infer_kind(["c-60000", "v0", "r0#3", "$state.value.x"]) == "Window"
    assert infer_kind([]) == "Process"
