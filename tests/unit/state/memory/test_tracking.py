"""Dicts that know what changed: they are dicts in every respect, and miss no change."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.layouts.state import ChangeSet
from bicycle_runtime.state.errors import STATE_TYPE_CHANGED
from bicycle_runtime.state.memory.attributes import Attribute, describe_attributes
from bicycle_runtime.state.memory.tables import DictState, FunctionTable
from bicycle_runtime.state.memory.tracked import TrackedDict, Tracking, tracked_dict
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_sdk import RichAsyncFunction
from tests.raising import raises

KEYS = st.sampled_from(["a", "b", "c", 1, 1.0, True, ("a", 1)])
CALLS = st.one_of(
    st.tuples(st.just("set"), KEYS, st.integers()),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("pop"), KEYS),
    st.tuples(st.just("pop default"), KEYS),
    st.tuples(st.just("popitem")),
    st.tuples(st.just("setdefault"), KEYS, st.integers()),
    st.tuples(st.just("update"), st.dictionaries(KEYS, st.integers(), max_size=3)),
    st.tuples(st.just("or"), st.dictionaries(KEYS, st.integers(), max_size=3)),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("clear")),
)


def call(target, how, *arguments):  # noqa: PLR0911  # one way to call a dict per line
    """Do one thing to a dict; return what it gave or raised."""
    try:
        match how:
            case "set":
                target[arguments[0]] = arguments[1]
            case "delete":
                del target[arguments[0]]
            case "pop":
                return target.pop(arguments[0])
            case "pop default":
                return target.pop(arguments[0], "default")
            case "popitem":
                return target.popitem()
            case "setdefault":
                return target.setdefault(*arguments)
            case "update":
                target.update(arguments[0])
            case "or":
                target |= arguments[0]
            case "get":
                return target.get(arguments[0])
            case "clear":
                target.clear()
    except KeyError:
        return KeyError
    return None


IMMUTABLE, MUTABLE = Tracking(), Tracking(touches=True)


def attribute():
    return Attribute("counts", ValueCodec(int), IMMUTABLE, dict[str, int])


def filled(tracking, entries):
    tracked = tracked_dict(entries, tracking)
    tracked.touched.clear()
    return tracked


@pytest.mark.parametrize(
    "tracking", [IMMUTABLE, MUTABLE, IMMUTABLE.undoing(), MUTABLE.undoing()], ids=str
)
def test_a_tracked_dict_does_what_a_dict_does_and_notes_each_change(tracking):
    @given(st.dictionaries(KEYS, st.integers(), max_size=4), st.lists(CALLS, max_size=12))
    def check(entries, calls):
        tracked, model = filled(tracking, entries), dict(entries)
        for one in calls:
            assert call(tracked, *one) == call(model, *one)
        assert tracked == model
        assert list(tracked) == list(model)
        changed = {
            key for key in entries.keys() | model.keys() if entries.get(key) != model.get(key)
        }
        assert changed <= set(tracked.touched)

    check()


HANDS_OUT = {
    "item": lambda d: d["a"].append(1),
    "get": lambda d: d.get("a").append(1),
    "setdefault": lambda d: d.setdefault("a", []).append(1),
    "values": lambda d: [v.append(1) for v in d.values()],
    "items": lambda d: [v.append(1) for _, v in d.items()],
    "dict": lambda d: dict(d)["a"].append(1),
    "spread": lambda d: {**d}["a"].append(1),
    "copy": lambda d: d.copy()["a"].append(1),
    "copy.copy": lambda d: copy.copy(d)["a"].append(1),
    "or": lambda d: (d | {})["a"].append(1),
    "ror": lambda d: ({} | d)["a"].append(1),
}


@pytest.mark.parametrize("how", HANDS_OUT)
def test_a_value_that_may_be_changed_in_place_counts_as_touched_when_handed_out(how):
    tracked = filled(MUTABLE, {"a": []})
    HANDS_OUT[how](tracked)

    assert tracked == {"a": [1]}
    assert "a" in tracked.touched


def test_reading_immutable_values_touches_nothing():
    tracked = filled(IMMUTABLE, {"a": 1})
    assert [tracked["a"], tracked.get("a"), *tracked.values()] == [1, 1, 1]
    assert not tracked.touched


def test_copies_of_a_tracked_dict_are_plain_dicts():
    tracked = TrackedDict({"a": [1]})

    assert [type(c) for c in (copy.copy(tracked), copy.deepcopy(tracked), tracked.copy())] == [
        dict
    ] * 3
    assert copy.deepcopy(tracked) == tracked


REPLACED = st.tuples(st.just("replace"), st.dictionaries(KEYS, st.integers(), max_size=3))
# Of each epoch: whether it compares, and what happens to the dict.
EPOCHS = st.lists(st.tuples(st.booleans(), st.lists(CALLS | REPLACED, max_size=6)), max_size=6)


@given(EPOCHS)
def test_the_change_sets_of_all_epochs_rebuild_the_dict(epochs):
    state, model = DictState(attribute(), TrackedDict()), {}
    rebuilt = DictState(attribute(), TrackedDict())
    for compares, calls in epochs:
        current = state.begin(compares=compares)
        for how, *arguments in calls:
            if how == "replace":
                current, model = dict(arguments[0]), dict(arguments[0])
            else:
                call(current, how, *arguments)
                call(model, how, *arguments)
        change_set = state.change_set(3, current)
        if change_set is not None:
            assert isinstance(change_set, ChangeSet)
            rebuilt.apply(change_set)
        assert state.entries == model
        assert rebuilt.entries == model


@given(st.dictionaries(KEYS, st.integers(), max_size=5), st.booleans())
def test_an_epoch_that_changed_nothing_writes_nothing(entries, compares):
    state = DictState(attribute(), TrackedDict())
    current = state.begin(compares=False)
    current.update(entries)
    state.change_set(0, current)

    assert state.change_set(0, state.begin(compares=compares)) is None


class Counting(RichAsyncFunction):
    def __init__(self):
        self.counts: dict[str, int] = {}

    def process(self, value, ctx):
        return []


class Saving(Counting):
    """A function whose snapshots are saved, except with three entries."""

    def snapshot_state(self):
        return {"counts": dict(self.counts)} if len(self.counts) != 3 else None


def restored(function, files):
    table = FunctionTable(function, describe_attributes(function), lambda hook, *a: hook(*a))
    for change_sets in files:
        table.apply(change_sets)
    table.restore_snapshots()
    return table


def test_notes_of_changes_are_not_kept_when_a_snapshot_is_saved():
    table = restored(Saving(), [])
    for name in "abab":
        table.group(0).instance.counts[name] = 1
        table.changes()

    assert table.groups[0].dicts["counts"].entries.touched == {}


@pytest.mark.parametrize("later", [Saving, Counting])
@pytest.mark.parametrize("record_count", [1, 100])
def test_entries_of_a_snapshot_are_there_when_the_dict_itself_is_saved(later, record_count):
    table, files = restored(Saving(), []), []
    for name in "abcd":
        table.group(0).instance.counts[name] = 1
        files.append(table.changes())
        table.expect(record_count)
        if later is Counting:
            table = restored(later(), files)

        counts = restored(later(), files).groups[0].instance.counts
        assert counts == table.groups[0].instance.counts


def test_something_else_in_the_place_of_a_dict_is_refused():
    state = DictState(attribute(), TrackedDict())

    with raises(STATE_TYPE_CHANGED):
        state.change_set(0, [1])


class Annotated:
    shared = 3
    numbers: dict[str, int]
    lists: dict[str, list[int]]
    pairs: dict[str, tuple[int, str]]

    def __init__(self):
        self.numbers, self.lists, self.pairs = {}, {}, {}
        self.plain = {}
        self.total = 0


def test_attributes_are_stored_as_their_annotations_allow():
    found = {item.name: item.tracked for item in describe_attributes(Annotated())}

    assert found == {
        "lists": MUTABLE, "numbers": IMMUTABLE, "pairs": IMMUTABLE,
        "plain": MUTABLE, "total": None,
    }  # fmt: skip
