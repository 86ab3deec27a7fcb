"""Keyed state against small models: whatever is done to it, and wherever it is sealed and restored.

The models are written from the description alone: dicts that hold what was written last and when.
"""

from collections import namedtuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.records.keys import GroupCache, range_of
from bicycle_runtime.state.memory.composite import CompositeTable
from bicycle_runtime.state.memory.keyed import BROADCAST, BroadcastTable, KeyedTable
from bicycle_runtime.state.memory.timers import TimerTable
from bicycle_runtime.state.sealed.refs import groups_in
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from bicycle_sdk.contexts import OnTimerContext
from bicycle_sdk.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtl,
    ValueStateDescriptor,
)
from bicycle_sdk.state.handles import make_handle
from tests.examples import examples

GROUPS = 8
KEYS = ["ada", "bob", 1, ("eve", 2), 2.5]
MAP_KEYS = st.one_of(
    st.text(max_size=3), st.integers(-3, 3), st.tuples(st.text(max_size=2), st.integers(-2, 2))
)
FILES = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


# --- scans ---------------------------------------------------------------------------------------


def in_order(keys):
    """Numbers behind tuples behind texts, each kind as Python sorts it."""
    kinds = {str: 0, tuple: 1, int: 2}
    return sorted(keys, key=lambda key: (kinds[type(key)], key))


@given(
    st.lists(st.tuples(st.sampled_from("pdg"), MAP_KEYS), max_size=40),
    MAP_KEYS,
    MAP_KEYS,
    st.text(max_size=2),
)
def test_scans_give_what_a_sorted_dict_has(steps, start, end, prefix):
    state = OnTimerContext.standalone().get_map_state("m")
    model = {}
    for number, (action, key) in enumerate(steps):
        if action == "p":
            state.put(key, number)
            model[key] = number
        elif action == "d":
            assert state.remove(key) == model.pop(key, None)
        else:
            assert list(state.keys()) == in_order(model)
    ordered = in_order(model)
    places = {key: place for place, key in enumerate(in_order({*model, start, end}))}

    assert list(state.entries()) == [(key, model[key]) for key in ordered]
    assert [key for key, _ in state.range(start, end)] == [
        key for key in ordered if places[start] <= places[key] < places[end]
    ]
    assert [key for key, _ in state.prefix(prefix)] == [
        key for key in ordered if isinstance(key, str) and key.startswith(prefix)
    ]
    assert [key for key, _ in state.prefix((prefix,))] == [
        key for key in ordered if isinstance(key, tuple) and key[0] == prefix
    ]


# --- time to live --------------------------------------------------------------------------------

Kept = namedtuple("Kept", "value used")


@given(
    ttl_ms=st.integers(1, 40),
    is_on_access=st.booleans(),
    is_frozen=st.booleans(),
    steps=st.lists(
        st.tuples(st.sampled_from("wwrdtts"), st.sampled_from(KEYS[:3]), st.integers(0, 15)),
        max_size=60,
    ),
)
def test_expired_values_are_never_returned_and_leave_in_time(
    ttl_ms, is_on_access, is_frozen, steps
):
    now = [0]
    ttl = StateTtl(ttl_ms, update="on_access" if is_on_access else "on_write")
    descriptor = ValueStateDescriptor("n", int if is_frozen else None, ttl=ttl)

    def restored(files):
        table = KeyedTable(GroupCache(GROUPS), lambda _: now[0])
        for change_sets in files:
            table.apply(change_sets)
        return table, table.entries_of(descriptor)

    files, model = [], {}
    table, entries = restored(files)
    for action, key, number in steps:
        kept = model.get(key)
        is_live = kept is not None and now[0] < kept.used + ttl_ms
        match action:
            case "w":
                entries.put(key, number)
                model[key] = Kept(number, now[0])
            case "r":
                assert entries.get(key) == (kept.value if is_live else None)
                if is_live and is_on_access:
                    model[key] = Kept(kept.value, now[0])
            case "d":
                entries.delete(key)
                model.pop(key, None)
            case "t":
                now[0] += number
            case "s":
                files.append(table.changes())
                if number % 2:
                    table, entries = restored(files)
                stale = [key for key in entries.entries if now[0] >= model[key].used + 2 * ttl_ms]
                assert stale == []


# --- sealing, restoring, rescaling ---------------------------------------------------------------

STATES = {
    "value": ValueStateDescriptor("value", int),
    "loose": ValueStateDescriptor("loose"),
    "list": ListStateDescriptor("list", int),
    "map": MapStateDescriptor("map", str, int),
    "rows": MapStateDescriptor("rows", tuple[int, int], int),
    "sum": ReducingStateDescriptor("sum", int, lambda a, b: a + b),
}
WRITES = st.one_of(
    st.tuples(
        st.sampled_from(["put", "put", "put", "clear"]),
        st.sampled_from(sorted(STATES)),
        st.sampled_from(KEYS),
        st.integers(0, 4),
    ),
    st.tuples(st.sampled_from(["set", "drop"]), st.sampled_from(KEYS), st.integers(0, 3)),
    st.tuples(st.sampled_from(["scan", "remove"]), st.sampled_from(KEYS), st.integers(0, 4)),
)
ENDS = st.one_of(
    st.tuples(st.just("seal"), st.booleans()),
    st.sampled_from([("seal", False), ("seal", True), ("crash",), ("lose",)]),
    st.tuples(st.just("rescale"), st.integers(1, 4)),
)
EPOCHS = st.lists(st.tuples(st.lists(WRITES, min_size=1, max_size=8), ENDS), max_size=25)


class Scope:
    key = None

    def state_key(self):
        return self.key


class Job:
    """All subtasks of one operator, with their stores, as epochs and rescales leave them."""

    def __init__(self, folder, backend):
        self.storage = LocalStorage(str(folder / "sealed"), is_synced=False)
        local = str(folder / "local")
        self.settings = StateSettings(backend=backend, folder=local, cache_entries=4)
        self.subtasks = []
        self.epoch = 0
        self.attempt = 0
        self.start([])

    def start(self, olds, parallelism=2):
        self.owned = [
            range_of(task, group_count=GROUPS, parallelism=parallelism)
            for task in range(parallelism)
        ]
        self.ranges = [overlapping(olds, groups) for groups in self.owned]
        self.lose()

    def lose(self):
        """New processes: nothing is in memory."""
        self.close()
        self.subtasks = [Subtask(self.storage, self.settings) for _ in self.owned]
        self.restore()

    def close(self):
        for subtask in self.subtasks:
            subtask.store.close()

    def restore(self):
        for subtask, sealed in zip(self.subtasks, self.ranges, strict=True):
            subtask.store.at(sealed)

    def seal(self, is_interval_over):
        self.epoch += 1
        self.attempt += 1
        self.ranges = [
            subtask.store.commit(
                sealed,
                epoch=self.epoch,
                attempt=f"a{self.attempt}",
                is_interval_over=is_interval_over,
            )
            for subtask, sealed in zip(self.subtasks, self.ranges, strict=True)
        ]
        self.restore()

    def of(self, key):
        group = GroupCache(GROUPS)[key]
        return next(
            subtask
            for subtask, groups in zip(self.subtasks, self.owned, strict=True)
            if group in groups
        )


class Subtask:
    def __init__(self, storage, settings):
        groups = GroupCache(GROUPS)
        self.tables = tables_for(settings, job_url=storage.url)
        self.keyed = self.tables.keyed(groups, lambda _: 0)
        self.timers = self.tables.timers(groups)
        self.broadcast = BroadcastTable(lambda _: 0)
        self.scope = Scope()
        self.rules = make_handle(MAP_RULES, self.broadcast.entries_of(MAP_RULES), BROADCAST)
        self.store = self.tables.store("op", storage, self.new_table)

    def new_table(self):
        for table in (self.keyed, self.timers, self.broadcast):
            table.reset()
        return CompositeTable(self.keyed, self.timers, self.broadcast)

    def handle(self, name):
        self.tables.space.trim()
        return make_handle(STATES[name], self.keyed.entries_of(STATES[name]), self.scope)


MAP_RULES = MapStateDescriptor("rules", str, int)


def overlapping(olds, groups):
    files = [
        ref.__class__(
            **{
                **{name: getattr(ref, name) for name in ref.__struct_fields__},
                "first_group": groups_in(ref, both).start,
                "end_group": groups_in(ref, both).stop,
            }
        )
        for old in olds
        if (both := range(max(old.first_group, groups.start), min(old.end_group, groups.stop)))
        for ref in old.files
    ]
    newest = max((ref.last_epoch for ref in files), default=0)
    recent = ((newest, f"rescaled:{newest}"),) if files else ()
    return RangeState(
        first_group=groups.start, end_group=groups.stop, files=tuple(files), recent=recent
    )


def written(old, name, number):
    """What a put makes of what a key has."""
    match name:
        case "value":
            return number
        case "loose" | "list":
            return [*(old or []), number]
        case "map":
            return {**(old or {}), f"k{number}": number}
        case "rows":
            return {**(old or {}), (number, number % 2): number}
        case _:
            return (old or 0) + number


def write(handle, name, number):
    match name:
        case "value":
            handle.update(number)
        case "loose":
            # Values of unknown type may be changed in place, as a careless function does.
            if handle.value() is None:
                handle.update([])
            handle.value().append(number)
        case "map":
            handle.put(f"k{number}", number)
        case "rows":
            handle.put((number, number % 2), number)
        case _:
            handle.add(number)


def read(handle, name):
    match name:
        case "value" | "loose":
            return handle.value()
        case "map" | "rows":
            return dict(handle.entries()) or None
        case "list":
            return handle.get() or None
        case _:
            return handle.get()


class Play:
    """A job and its model, step by step."""

    def __init__(self, folder, backend):
        self.job = Job(folder, backend)
        self.model = {}
        self.sealed = {}

    def step(self, word, *parts):
        getattr(self, word)(*parts)

    def put(self, name, key, number):
        subtask = self.job.of(key)
        subtask.scope.key = key
        write(subtask.handle(name), name, number)
        self.model[name, key] = written(self.model.get((name, key)), name, number)
        for each in self.job.subtasks:
            each.rules.put(f"r{number}", number)
        self.model["rules", f"r{number}"] = number

    def clear(self, name, key, number):
        subtask = self.job.of(key)
        subtask.scope.key = key
        subtask.handle(name).clear()
        self.model.pop((name, key), None)
        for each in self.job.subtasks:
            each.rules.remove(f"r{number}")
        self.model.pop(("rules", f"r{number}"), None)

    def rows(self, key):
        subtask = self.job.of(key)
        subtask.scope.key = key
        return subtask.handle("rows"), self.model.get(("rows", key), {})

    def scan(self, key, number):
        handle, model = self.rows(key)
        assert list(handle.entries()) == sorted(model.items())
        found = [row for row in sorted(model) if (number,) <= row < (number + 2,)]
        assert [row for row, _ in handle.range((number,), (number + 2,))] == found
        assert [row for row, _ in handle.prefix((number,))] == [
            row for row in found if row[0] == number
        ]

    def remove(self, key, number):
        handle, model = self.rows(key)
        handle.remove((number, number % 2))
        left = {row: value for row, value in model.items() if row[0] != number}
        self.model["rows", key] = left
        if not left:
            del self.model["rows", key]

    def set(self, key, time_ms):
        self.job.of(key).timers.event.set(key, time_ms)
        self.model["timer", key, time_ms] = True

    def drop(self, key, time_ms):
        self.job.of(key).timers.event.delete(key, time_ms)
        self.model.pop(("timer", key, time_ms), None)

    def seal(self, is_interval_over):
        self.job.seal(is_interval_over)
        self.sealed = dict(self.model)

    def crash(self):
        self.job.restore()
        self.model = dict(self.sealed)

    def lose(self):
        self.job.lose()
        self.model = dict(self.sealed)

    def rescale(self, parallelism):
        self.job.start(self.job.ranges, parallelism)
        self.model = dict(self.sealed)


@FILES
@given(epochs=EPOCHS)
def test_what_is_sealed_comes_back_whatever_happens(tmp_path_factory, epochs):
    play_and_compare(tmp_path_factory.mktemp("state"), "memory", epochs)


@settings(FILES, max_examples=examples(20))
@given(epochs=EPOCHS)
def test_what_is_sealed_comes_back_from_disk_whatever_happens(tmp_path_factory, epochs):
    play_and_compare(tmp_path_factory.mktemp("state"), "rocksdb", epochs)


def play_and_compare(folder, backend, epochs):
    play = Play(folder, backend)
    for writes, end in epochs:
        for write_step in writes:
            play.step(*write_step)
        play.step(*end)

    for key in KEYS:
        subtask = play.job.of(key)
        subtask.scope.key = key
        for name in STATES:
            found = read(subtask.handle(name), name)
            assert found == play.model.get((name, key)), (name, key)
        times = sorted(place[2] for place in play.model if place[:2] == ("timer", key))
        assert subtask.timers.event.times_of(key) == times
    rules = {place[1]: number for place, number in play.model.items() if place[0] == "rules"}
    for subtask in play.job.subtasks:
        assert dict(subtask.rules.entries()) == rules
    play.job.close()


def test_scans_of_a_map_on_disk_are_right_however_many_map_keys_it_has(tmp_path):
    settings = StateSettings(backend="rocksdb", folder=str(tmp_path / "local"), cache_entries=50)
    subtask = Subtask(LocalStorage(str(tmp_path / "sealed"), is_synced=False), settings)
    subtask.store.at(RangeState(first_group=0, end_group=GROUPS))
    subtask.scope.key, model = "ada", {}
    state = RangeState(first_group=0, end_group=GROUPS)
    for epoch in range(1, 7):
        rows = subtask.handle("rows")
        for number in range(40 * epoch):  # 840 in the end: more than the first scans look through.
            rows.put((epoch, number), number)
            model[epoch, number] = number
        for start in range(1, epoch + 1):
            assert dict(rows.range((start,), (start, 3))) == {(start, n): n for n in range(3)}
        assert list(rows.entries()) == sorted(model.items())
        rows.remove((epoch, 7))
        del model[epoch, 7]
        assert [row for row, _ in rows.range((epoch, 5), (epoch, 9))] == [
            (epoch, 5), (epoch, 6), (epoch, 8)
        ]  # fmt: skip
        state = subtask.store.commit(state, epoch=epoch, attempt=f"a{epoch}", is_interval_over=True)
        subtask.store.at(state)
        assert list(subtask.handle("rows").entries()) == sorted(model.items())
    subtask.handle("rows").clear()
    assert list(subtask.handle("rows").entries()) == []
    subtask.store.close()


@given(
    st.lists(
        st.tuples(st.sampled_from("sdp"), st.sampled_from(KEYS), st.integers(0, 20)), max_size=120
    )
)
def test_a_queue_of_timers_is_a_sorted_set(steps):
    queue = TimerTable(GroupCache(GROUPS)).event
    model = set()
    for action, key, number in steps:
        match action:
            case "s":
                queue.set(key, number)
                model.add((number, KEYS.index(key)))
            case "d":
                queue.delete(key, number)
                model.discard((number, KEYS.index(key)))
            case "p":
                due = [timer for timer in model if timer[0] <= number]
                popped = queue.pop_due(number)
                if not due:
                    assert popped is None
                    continue
                assert popped.time_ms == min(due)[0]
                model.remove((popped.time_ms, KEYS.index(popped.key)))
        assert queue.next_time_ms() == min((time for time, _ in model), default=None)
