"""Another parallelism: every key group is read once, as its last owner left it."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.operators.spec import StateScope
from bicycle_runtime.records.keys import range_of
from bicycle_runtime.recovery.errors import StateLostError
from bicycle_runtime.recovery.manifest import OperatorState
from bicycle_runtime.recovery.rescale import restore_ranges
from bicycle_runtime.state.store import StateStore
from bicycle_runtime.state.tables import AccumulatorTable

GROUPS = 16
PLACE = ("job", "op")


def planned(state, parallelism, *, groups=GROUPS, scope=StateScope.KEY_GROUPS):
    ranges = restore_ranges(
        state, scope=scope, group_count=groups, parallelism=parallelism, place=PLACE
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
        model |= entries
        state = OperatorState(scope="key_groups", group_count=GROUPS, ranges=tuple(ranges))


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
    with pytest.raises(StateLostError):
        planned(planned(None, 2), 2, **change)
