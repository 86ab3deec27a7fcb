"""Another parallelism: every key group is read once, as its last owner left it."""

import itertools
import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.manifest import OperatorState
from bicycle_runtime.layouts.state import RangeState, StateRef
from bicycle_runtime.operators.spec import StateScope
from bicycle_runtime.records.keys import range_of
from bicycle_runtime.recovery.errors import STATE_LOST
from bicycle_runtime.recovery.rescale import restore_ranges
from bicycle_runtime.state.memory.tables import AccumulatorTable
from bicycle_runtime.state.sealed.refs import with_commit, with_lists
from bicycle_runtime.state.stores.store import StateStore
from tests.examples import examples
from tests.raising import raises

GROUPS = 16
OWNER = ("job", "op")


def planned(state, parallelism, *, groups=GROUPS, scope=StateScope.KEY_GROUPS):
    ranges = restore_ranges(
        state, scope=scope, group_count=groups, parallelism=parallelism, owner=OWNER
    )
    return OperatorState(scope=scope.value, group_count=groups, ranges=ranges)


@pytest.mark.parametrize(
    ("groups", "sizes"),
    [(g, s) for g in (1, 5, 16) for s in itertools.product((1, 2, 3, 5), repeat=2)],
)
def test_every_group_has_exactly_one_owner(groups, sizes):
    state = None
    for size in sizes:
        size = min(size, groups)  # noqa: PLW2901  # a size that can be
        state = planned(state, size, groups=groups)
        owned = [range(part.first_group, part.end_group) for part in state.ranges]

        assert [group for part in owned for group in part] == list(range(groups))
        assert owned == [range_of(t, group_count=groups, parallelism=size) for t in range(size)]


STEPS = st.lists(
    st.tuples(
        st.integers(1, 5),  # parallelism
        st.dictionaries(st.integers(0, 40), st.integers(), max_size=5),
        st.sets(st.integers(0, 4)),  # subtasks whose interval is over: they write a base
    ),
    max_size=25,
)


@settings(deadline=None)
@given(STEPS)
def test_no_entry_is_lost_or_old_after_any_sequence_of_sizes(tmp_path_factory, steps):
    storage = LocalStorage(str(tmp_path_factory.mktemp("state")), is_synced=False)
    state, model = None, {}
    for epoch, (parallelism, entries, over) in enumerate(steps, start=1):
        state = planned(state, parallelism)
        ranges = []
        for task, part in enumerate(state.ranges):
            store = StateStore("op", storage, AccumulatorTable)
            table = store.at(part)
            found = {key: value for group in table.groups.values() for key, value in group.items()}
            groups = range(part.first_group, part.end_group)
            assert found == {k: v for k, v in model.items() if k % GROUPS in groups}
            for key, value in entries.items():
                if key % GROUPS in groups:
                    table.groups.setdefault(key % GROUPS, {})[key] = value
                    table.touched[(key % GROUPS, key)] = None
            ranges.append(
                store.commit(part, epoch=epoch, attempt=f"{task}", is_interval_over=task in over)
            )
            store.close()
        model |= entries
        state = OperatorState(scope="key_groups", group_count=GROUPS, ranges=tuple(ranges))


@pytest.mark.parametrize("groups", [1, 2, 16, 128])
def test_the_key_groups_of_subtasks_differ_by_one_at_most(groups):
    for size in range(1, groups + 1):
        sizes = [len(range_of(task, group_count=groups, parallelism=size)) for task in range(size)]
        assert sum(sizes) == groups
        assert max(sizes) - min(sizes) <= 1


def count(table, group, key):
    entries = table.groups.setdefault(group, {})
    entries[key] = entries.get(key, 0) + 1
    table.touched[(group, key)] = None


@settings(deadline=None, max_examples=examples(5))
@given(seed=st.integers(0, 2**32), is_quiet=st.booleans())
def test_fifty_rescales_leave_few_files_and_little_storage(tmp_path_factory, seed, is_quiet):
    """Keys are counted between rescales, or (quiet) only at every tenth; a base now and then.

    A base is made while the parallelism stays as it is for two epochs.
    """
    source = random.Random(seed)
    folder = tmp_path_factory.mktemp("state")
    storage = LocalStorage(str(folder), is_synced=False)
    state, model, entry_count = planned(None, 1), Counter(), 1_000
    for epoch in range(1, 51):
        if epoch % 5 != 1:
            state = planned(state, source.randrange(1, GROUPS + 1))
        keys = source.choices(range(entry_count), k=100)
        if epoch == 1:
            keys = list(range(entry_count))
        elif is_quiet and epoch % 10 > 1:
            keys = []
        model.update(keys)
        ranges = []
        for task, part in enumerate(state.ranges):
            store = StateStore("op", storage, AccumulatorTable)
            table = store.at(part)
            store.bases.wait()
            for key in keys:
                if part.first_group <= key % GROUPS < part.end_group:
                    count(table, key % GROUPS, key)
            ranges.append(
                store.commit(part, epoch=epoch, attempt=f"{task}", is_interval_over=epoch % 5 == 0)
            )
            store.close()
        state = OperatorState(scope="key_groups", group_count=GROUPS, ranges=tuple(ranges))
        paths = {ref.path: ref.byte_count for part in state.ranges for ref in part.files}

        assert max(len(part.files) for part in state.ranges) <= 6 * GROUPS
        assert sum(paths.values()) <= 4 * 12_000
    found = Counter()
    for part in planned(state, 3).ranges:
        for entries in StateStore("op", storage, AccumulatorTable).at(part).groups.values():
            found.update(entries)
    assert found == model


def test_parts_of_a_file_that_meet_again_are_one_entry_again():
    state = planned(None, 1)
    ref = StateRef(
        path="a", is_base=True, tier=0, first_epoch=1, last_epoch=1, byte_count=1_600, crc32=0
    )
    [part] = state.ranges
    state = OperatorState(
        scope="key_groups", group_count=GROUPS, ranges=(with_commit(part, ref, ()),)
    )
    for size in (3, 7, 16, 5, 2):
        state = planned(state, size)
        assert [len(part.files) for part in state.ranges] == [1] * size
        assert sum(part.files[0].counted_bytes for part in state.ranges) == 1_600
    [whole] = planned(state, 1).ranges[0].files
    assert (whole.first_group, whole.end_group) == (0, GROUPS)


def test_states_without_keys_that_were_handed_over_twice_are_not_lost():
    """As when no task has run between two restarts at other widths."""
    scope = StateScope.SUBTASK
    ref = StateRef(
        path="", is_base=False, tier=0, first_epoch=1, last_epoch=1, byte_count=1, crc32=0
    )
    for sizes in itertools.product((1, 2, 3, 8), repeat=4):
        ranges = tuple(
            RangeState(
                first_group=task, end_group=task + 1,
                files=(msgspec.structs.replace(ref, path=str(task)),),
            )
            for task in range(sizes[0])
        )  # fmt: skip
        state = OperatorState(scope=scope.value, group_count=GROUPS, ranges=ranges)
        for size in sizes[1:]:
            state = planned(state, size, scope=scope)
        read = [
            int(file.path)
            for part in state.ranges
            for file in part.files
            if int(file.path) in range(part.first_group, part.end_group)
        ]
        assert sorted(read) == list(range(sizes[0])), sizes


@pytest.mark.parametrize("sizes", list(itertools.product((1, 2, 3, 4), repeat=2)))
def test_states_without_keys_are_handed_over_once_each(sizes):
    old, new = sizes
    scope = StateScope.SUBTASK
    before = planned(None, old, scope=scope)
    after = planned(before, new, scope=scope)

    assert len(after.ranges) == new
    assert all(part.files == () for part in after.ranges)


@pytest.mark.parametrize(
    "change", [{"groups": 8}, {"scope": StateScope.SUBTASK}], ids=["groups", "scope"]
)
def test_another_division_of_the_state_is_refused(change):
    with raises(STATE_LOST):
        planned(planned(None, 2), 2, **change)


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_where_lists_are_divided_each_subtask_is_told_the_files_of_all(parallelism):
    def ref(subtask):
        return StateRef(
            path=f"s/{subtask}", is_base=False, tier=0, first_epoch=1, last_epoch=1,
            byte_count=1, crc32=0,
        )  # fmt: skip

    olds = tuple(
        RangeState(first_group=task, end_group=task + 1, files=(ref(task),)) for task in range(3)
    )
    state = OperatorState(scope="subtask", group_count=GROUPS, ranges=olds)
    options = {
        "scope": StateScope.SUBTASK, "group_count": GROUPS, "parallelism": parallelism,
        "owner": OWNER,
    }  # fmt: skip

    divided = restore_ranges(state, **options, divides_lists=True)
    assert [[ref.path for ref in part.lists] for part in divided] == [
        ["s/0", "s/1", "s/2"]
    ] * parallelism
    assert [with_lists(part, ()) for part in divided] == list(restore_ranges(state, **options))
    assert b"lists" not in msgspec.json.encode(with_lists(divided[0], ()))
