"""How many keys have state: counted by each kind of state, and shown by the status."""

import pytest

from bicycle_runtime.state.memory.composite import CompositeTable
from bicycle_runtime.state.memory.timers import TimerTable
from bicycle_runtime.state.memory.windows import Records, WindowEntries, WindowTable
from tests.unit.jobs.running.light_jobs import LightJob

PLUGIN = """
from datetime import timedelta

from bicycle_sdk import (
    KeyedProcessFunction, RichAsyncFunction, StreamEnvironment, WatermarkStrategy, bicycle_plugin,
)

class Kept(KeyedProcessFunction[int, int, int]):
    def open(self, ctx):
        self.last = ctx.get_value_state("last", int, default=0)
        self.seen = ctx.get_map_state("seen", int, int)

    def process_element(self, value, ctx):
        self.last.update(value)
        self.seen.put(value, 1)
        if value % 10 == 9:
            self.last.clear()
        return [value]

class Dicts(RichAsyncFunction[int, int]):
    def __init__(self):
        self.counts: dict[int, int] = {}

    def process(self, value, ctx):
        self.counts[value] = 1
        return [value]

@bicycle_plugin
def keys(env: StreamEnvironment) -> None:
    numbers = env.from_collection(list(range(40)))
    by_ten = numbers.key_by(lambda number: number % 10)
    by_ten.count().uid("counted").collect("a")
    by_ten.process(Kept()).uid("kept").collect("b")
    by_ten.process(Dicts()).uid("dicts").collect("c")
    timed = numbers.assign_timestamps(lambda number: number * 1_000)
    by_two = timed.key_by(lambda number: number % 2)
    by_two.tumbling_window(timedelta(hours=1)).count().uid("windows").collect("d")
"""


@pytest.mark.parametrize(
    ("backend", "expected"),
    [("memory", {"counted": 10, "kept": 19, "dicts": 40, "windows": 0}), ("rocksdb", None)],
)
def test_keys_with_state_are_counted_by_operator(tmp_path, backend, expected):
    (tmp_path / "keys.py").write_text(PLUGIN)
    engine = {"state_backend": backend, "max_records_per_epoch": 20}
    job = LightJob(tmp_path, str(tmp_path / "keys.py"), {}, engine, {})

    job.run()

    found = {uid: each.state_keys for uid, each in job.status.operators.items()}
    kept = {uid: count for uid, count in found.items() if count is not None}
    if expected is not None:
        assert kept == expected
    else:  # The database estimates; what was put again may count twice, and entries of maps do.
        assert 10 <= kept["counted"] <= 40
        assert 49 <= kept["kept"] <= 200
        assert 40 <= kept["dicts"] <= 160


def test_keys_in_windows_count_once_for_each_window_that_is_open():
    table = WindowTable(WindowEntries("s"), Records())
    for namespace, key in ((0, "ada"), (0, "bob"), (60_000, "ada")):
        table.entries.group(namespace, 3)[key] = 1
    table.records.add(0, 3, "eve", ([1], [2]))

    assert CompositeTable(table, TimerTable({})).key_count() == 4
