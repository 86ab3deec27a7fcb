"""A backend is one space: tables of every kind, and their store, go by the one they are given."""

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.state.disk.space import DiskSpace
from bicycle_runtime.state.memory.attributes import describe_attributes
from bicycle_runtime.state.memory.composite import CompositeTable
from bicycle_runtime.state.memory.space import MemorySpace
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import Tables, space_for
from bicycle_sdk.state import ValueStateDescriptor
from tests.unit.state.disk_workers import BLANK, Function, call

GROUPS = GroupCache(4)


class OtherSpace(MemorySpace):
    """A third backend, which notes what it is asked for."""

    def __init__(self):
        self.asked = set()

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if callable(found):
            self.asked.add(name)
        return found


@pytest.mark.parametrize(("name", "kind"), [("memory", MemorySpace), ("rocksdb", DiskSpace)])
def test_a_backend_is_chosen_by_its_name(tmp_path, name, kind):
    settings = StateSettings(backend=name, folder=str(tmp_path))

    assert type(space_for(settings, job_url="job")) is kind


def test_tables_of_every_kind_go_by_the_space_that_they_are_given(tmp_path):
    space, function = OtherSpace(), Function()
    tables = Tables(space=space)
    keyed, timers = tables.keyed(GROUPS, lambda _: 0), tables.timers(GROUPS)
    attributes = tables.attributes(function, describe_attributes(function), call)
    accumulators = tables.accumulators(int)
    windows = tables.windows
    records = windows.records(int, is_by_key=True)
    window = windows.table(windows.entries("s", list[int]), records)
    windows.due_times("event")
    storage = LocalStorage(str(tmp_path), is_synced=False)
    store = tables.store("op", storage, lambda: CompositeTable(attributes, keyed, timers))
    store.at(BLANK).main.group(0).instance.counts["ada"] = 1
    keyed.entries_of(ValueStateDescriptor("count", int)).put("ada", 2)
    sealed = store.commit(BLANK, epoch=1, attempt="a", is_interval_over=False)
    store.close()

    assert sealed.epoch == 1
    assert (accumulators.groups, window.changes()) == ({}, [])
    assert space.asked >= {
        "attribute_dict", "entries", "close", "dicts", "due_times", "keyed_entries", "records",
        "stand_at", "timers",
    }  # fmt: skip
