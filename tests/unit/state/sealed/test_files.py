"""State files: merging, tiers, catching up, damage."""

import threading
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.state import BASE_INDEX, RangeState, StateRef
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.state.memory.tables import AccumulatorTable
from bicycle_runtime.state.sealed.changes import (
    decode_change_sets,
    encode_change_sets,
    frame,
    make_change_set,
    merge_change_sets,
)
from bicycle_runtime.state.sealed.refs import TIER_FILES, fold_start, merge_start, with_commit
from bicycle_runtime.state.sealed.sealed_files import SealedFiles
from bicycle_runtime.state.stores.store import StateStore

CODEC = AnyCodec()
KEYS = st.sampled_from(["a", "b", 1, True, 1.0, ("a", 1), frozenset("xy"), None])
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.booleans(),
        st.dictionaries(KEYS, st.integers(), max_size=3),
        st.sets(KEYS, max_size=2),
    ),
    max_size=4,
)


def change_set(group, is_full, puts, gone):
    gone = [key for key in gone if key not in puts]
    return make_change_set(
        group,
        "counts",
        CODEC.encode_list(list(puts)),
        CODEC.encode_list(list(puts.values())),
        deleted=CODEC.encode_list(gone),
        is_full=is_full,
    )


def applied(tables, change_sets):
    for one in change_sets:
        table = tables.setdefault(one.group, {})
        if one.is_full:
            table.clear()
        keys, values = CODEC.decode_list(bytes(one.keys)), CODEC.decode_list(bytes(one.values))
        table.update(zip(keys, values, strict=True))
        for key in CODEC.decode_list(bytes(one.deleted)):
            table.pop(key, None)
    return tables


@given(st.lists(CHANGES, max_size=5), st.integers(0, 5))
def test_merged_changes_have_the_effect_of_all_in_turn(files, first_count):
    change_sets = [[change_set(*change) for change in changes] for changes in files]
    before, after = change_sets[:first_count], change_sets[first_count:]
    one_by_one, at_once = {}, {}
    for file in change_sets:
        applied(one_by_one, file)
    for file in before:
        applied(at_once, file)
    applied(at_once, merge_change_sets(after))

    assert without_empty(at_once) == without_empty(one_by_one)


def without_empty(tables):
    return {group: table for group, table in tables.items() if table}


@given(CHANGES, st.sets(st.integers(0, 2)))
def test_a_file_gives_back_the_change_sets_of_the_groups_asked_for(changes, groups):
    change_sets = [change_set(*change) for change in changes]
    data = encode_change_sets(change_sets)

    assert decode_change_sets(data, path="p", operator="o") == change_sets
    found = decode_change_sets(data, path="p", operator="o", groups=groups)
    assert found == [one for one in change_sets if one.group in groups]


@given(CHANGES, st.data())
def test_a_flipped_or_missing_byte_is_noticed(changes, data):
    whole = encode_change_sets([change_set(*change) for change in changes])
    position = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[position] ^= 1 << data.draw(st.integers(0, 7))

    for damaged in (bytes(flipped), whole[:position]):
        with pytest.raises(StateFileError):
            decode_change_sets(damaged, path="p", operator="o")


def ref(epoch, *, tier=0, is_base=False, size=100, first=None):
    return StateRef(
        path=f"{epoch}", is_base=is_base, tier=tier, first_epoch=first or epoch, last_epoch=epoch,
        byte_count=size, crc32=0,
    )  # fmt: skip


def test_the_list_of_files_stays_logarithmic():
    state, longest = RangeState(first_group=0, end_group=8), 0
    for epoch in range(1, 3_000):
        start = merge_start(state.files)
        folded = state.files[start:]
        tier = max((old.tier for old in folded), default=-1) + 1 if folded else 0
        state = with_commit(state, ref(epoch, tier=tier), state.files[:start])
        longest = max(longest, len(state.files))

    assert longest <= (TIER_FILES - 1) * 4
    assert [old.tier for old in state.files] == sorted((o.tier for o in state.files), reverse=True)


def test_a_base_is_never_merged_with_a_delta():
    files = (ref(1, is_base=True), *(ref(epoch) for epoch in range(2, 20)))

    assert merge_start(files) >= 1


@pytest.mark.parametrize(
    ("base", "deltas", "is_over", "expected"),
    [
        (0, 0, True, False),
        (0, 10, False, False),
        (0, 10, True, True),
        (100, 10, True, False),
        (100, 30, True, True),
        (0, 5 << 20, False, True),
        (8 << 20, 5 << 20, False, False),
        (4 << 20, 5 << 20, False, True),
    ],
)
def test_a_base_is_written_when_it_pays(base, deltas, is_over, expected):
    files = [ref(1, is_base=True, size=base)] if base else []
    files += [ref(2, size=deltas)] if deltas else []

    assert fold_start(files, is_interval_over=is_over) is expected


GROUPS = 4
EPOCHS = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 40), st.integers(), max_size=4),
        st.booleans(),  # whether the checkpoint interval is over
        st.booleans(),  # whether the second worker runs the epoch
    ),
    max_size=30,
)


def put(table, entries):
    for key, value in entries.items():
        table.groups.setdefault(key % GROUPS, {})[key] = value
        table.touched[(key % GROUPS, key)] = None


def entries_of(table):
    return {key: value for group in table.groups.values() for key, value in group.items()}


@given(EPOCHS)
def test_a_worker_that_was_away_catches_up_to_what_a_new_one_reads(tmp_path_factory, epochs):
    storage = LocalStorage(str(tmp_path_factory.mktemp("state")), is_synced=False)
    workers = [StateStore("op", storage, AccumulatorTable) for _ in range(2)]
    state, model = RangeState(first_group=0, end_group=GROUPS), {}
    for epoch, (entries, is_over, second) in enumerate(epochs, start=1):
        worker = workers[second]
        put(worker.at(state), entries)
        model |= entries
        state = worker.commit(state, epoch=epoch, attempt="a", is_interval_over=is_over)
        assert entries_of(StateStore("op", storage, AccumulatorTable).at(state)) == model
    for worker in workers:
        assert entries_of(worker.at(state)) == model


def test_what_an_unsealed_attempt_left_in_memory_is_forgotten(tmp_path):
    storage = LocalStorage(str(tmp_path), is_synced=False)
    worker = StateStore("op", storage, AccumulatorTable)
    blank = RangeState(first_group=0, end_group=GROUPS)
    put(worker.at(blank), {1: 1})
    sealed = worker.commit(blank, epoch=1, attempt="a", is_interval_over=False)
    put(worker.at(sealed), {1: 2, 2: 2})  # an epoch that is never sealed
    worker.commit(sealed, epoch=2, attempt="b", is_interval_over=False)

    assert entries_of(worker.at(sealed)) == {1: 1}
    put(worker.at(sealed), {3: 3})  # one that dies before its commit
    assert entries_of(worker.at(sealed)) == {1: 1}


def test_an_epoch_that_changed_nothing_writes_no_file(tmp_path):
    storage = LocalStorage(str(tmp_path), is_synced=False)
    worker = StateStore("op", storage, AccumulatorTable)
    state = RangeState(first_group=0, end_group=GROUPS)
    worker.at(state)

    assert worker.commit(state, epoch=1, attempt="a", is_interval_over=True) == state
    assert storage.list("") == []


class Together(LocalStorage):
    """Gives nothing before three objects are asked for at a time."""

    barrier = threading.Barrier(3, timeout=20)

    def read(self, path):
        self.barrier.wait()
        return super().read(path)


def test_a_store_asks_for_several_files_at_a_time_and_applies_them_in_their_order(tmp_path):
    worker = StateStore("op", LocalStorage(str(tmp_path), is_synced=False), AccumulatorTable)
    state = RangeState(first_group=0, end_group=GROUPS)
    for epoch in range(1, 7):
        put(worker.at(state), {0: epoch, epoch: epoch})
        state = worker.commit(state, epoch=epoch, attempt="a", is_interval_over=False)
    fresh = StateStore("op", Together(str(tmp_path), is_synced=False), AccumulatorTable)

    assert len(state.files) == 6
    assert entries_of(fresh.at(state)) == {0: 6} | {epoch: epoch for epoch in range(1, 7)}


@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_a_damaged_file_is_noticed_by_the_store(tmp_path, damage):
    storage = LocalStorage(str(tmp_path), is_synced=False)
    worker = StateStore("op", storage, AccumulatorTable)
    state = RangeState(first_group=0, end_group=GROUPS)
    put(worker.at(state), {1: 1})
    state = worker.commit(state, epoch=1, attempt="a", is_interval_over=False)
    path = state.files[0].path
    data = storage.read(path)
    storage.delete(path)
    if damage != "remove":
        storage.write(path, data[:-1] if damage == "cut" else data[:-1] + b"\x00")

    with pytest.raises(StateFileError) as caught:
        StateStore("op", storage, AccumulatorTable).at(state)
    assert (caught.value.facts["path"], caught.value.facts["operator"]) == (path, "op")


def test_a_database_is_not_read_as_change_sets(tmp_path):
    storage, path, index = LocalStorage(tmp_path), f"state/a.base/{BASE_INDEX}", b"\x80"
    data = frame(b"BICX", 1, index)
    storage.write(path, data)
    ref = StateRef(
        path=path, is_base=True, tier=0, first_epoch=0, last_epoch=1,
        byte_count=len(data), crc32=crc32(data),
    )  # fmt: skip

    with pytest.raises(StateFileError) as caught:
        SealedFiles("op", storage).read(ref, range(4))

    assert ref.is_database
    assert caught.value.facts["path"] == path
