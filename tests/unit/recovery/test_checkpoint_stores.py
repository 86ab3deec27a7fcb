"""What every store of checkpoints holds, run against each: in memory, on a disk, behind a URL."""

import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.base.remote_storage import FsspecStorage
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.recovery import (
    CheckpointId,
    CheckpointState,
    DurableCheckpointStore,
    InMemoryCheckpointStore,
)
from bicycle_sdk.errors import OptionError


def in_memory(folder, max_per_stream):
    return InMemoryCheckpointStore(max_per_stream)


def on_disk(folder, max_per_stream):
    return DurableCheckpointStore(LocalStorage(str(folder), is_synced=False), max_per_stream)


def behind_url(folder, max_per_stream):
    return DurableCheckpointStore(FsspecStorage(f"memory://{folder.name}"), max_per_stream)


STORES = [in_memory, on_disk, behind_url]


@pytest.fixture(params=STORES, ids=lambda make: make.__name__)
def make_store(request, tmp_path):
    return lambda max_per_stream=3: request.param(tmp_path, max_per_stream)


def checkpoint(sequence, stream="orders", **fields):
    return CheckpointState(CheckpointId(stream, sequence, created_at_ms=1), **fields)


def sequences(store, stream="orders"):
    return [entry.sequence for entry in store.list(stream)]


def test_what_was_saved_is_the_latest_with_all_it_has(make_store):
    store = make_store()
    saved = checkpoint(
        7, operator_states={"op": b"x"}, source_offsets={"s": 5}, watermark_ns=8, event_count=9,
        metadata={"by": "test"},
    )  # fmt: skip

    store.save(saved)

    assert store.latest("orders") == saved
    assert [entry.state for entry in store.list("orders")] == [saved]
    assert store.list("orders")[0].damage is None


def test_what_is_set_later_changes_no_checkpoint_that_was_saved(make_store):
    store, saved = make_store(), checkpoint(7, operator_states={"op": b"x"})
    store.save(saved)
    saved.set_operator_state("op", b"y")
    read = [store.latest("orders"), store.list("orders")[0].state]
    for state in read:
        state.set_source_offset("s", 1)

    assert store.latest("orders") == checkpoint(7, operator_states={"op": b"x"})


def test_a_stream_without_checkpoints_has_no_latest_and_an_empty_list(make_store):
    store = make_store()

    assert store.latest("orders") is None
    assert store.list("orders") == []
    assert store.checkpoint_count("orders") == 0
    assert store.delete_before("orders", 100) == 0


def test_beyond_the_maximum_the_lowest_sequences_go(make_store):
    store = make_store(3)

    for sequence in range(6):
        store.save(checkpoint(sequence))

    assert sequences(store) == [3, 4, 5]
    assert store.checkpoint_count("orders") == 3
    assert store.latest("orders").id.sequence == 5


def test_a_new_checkpoint_goes_itself_when_it_is_the_lowest(make_store):
    store = make_store(2)

    for sequence in (20, 30, 10):
        store.save(checkpoint(sequence))

    assert sequences(store) == [20, 30]


def test_a_sequence_that_is_saved_again_takes_the_place_of_the_old_one(make_store):
    store = make_store(2)

    for event_count in (1, 2, 3):
        store.save(checkpoint(7, event_count=event_count))

    assert [entry.state.event_count for entry in store.list("orders")] == [3]


def test_checkpoints_are_listed_by_sequence_whatever_the_order_of_saving(make_store):
    store = make_store(5)

    for sequence in (100, 9, 2**64 - 1, 0, 10):
        store.save(checkpoint(sequence))

    assert sequences(store) == [0, 9, 10, 100, 2**64 - 1]


def test_delete_before_keeps_the_sequence_itself(make_store):
    store = make_store(9)
    for sequence in (0, 10, 20, 30, 40):
        store.save(checkpoint(sequence))

    assert store.delete_before("orders", 20) == 2
    assert sequences(store) == [20, 30, 40]
    assert store.delete_before("orders", 41) == 3
    assert store.latest("orders") is None


def test_streams_do_not_touch_each_other(make_store):
    store = make_store(3)
    for sequence in range(5):
        store.save(checkpoint(sequence, "a"))
        store.save(checkpoint(sequence * 10, "b"))

    assert store.delete_before("a", 4) == 2

    assert (sequences(store, "a"), sequences(store, "b")) == ([4], [20, 30, 40])
    assert store.latest("a").id.stream_id == "a"


@pytest.mark.parametrize(
    "names",
    [("", ".", "..", "/", "a/b", "a", "a%2Fb"), ("x" * 300, "x" * 301), ("ä", "A", "a\x00")],
)
def test_any_text_names_a_stream_of_its_own(make_store, names):
    store = make_store()

    for sequence, name in enumerate(names):
        store.save(checkpoint(sequence, name))

    assert [sequences(store, name) for name in names] == [[n] for n in range(len(names))]
    assert [store.latest(name).id.stream_id for name in names] == [*names]


@pytest.mark.parametrize("make", STORES)
def test_a_store_that_may_keep_nothing_is_refused(make, tmp_path):
    with pytest.raises(OptionError) as caught:
        make(tmp_path, 0)

    assert caught.value.facts["name"] == "max_per_stream"
    assert caught.value.facts["found"] == 0


def test_writers_and_readers_at_once_see_whole_checkpoints_only(make_store):
    store = make_store(2)
    store.save(checkpoint(0, operator_states={"op": b"0" * 5_000}))
    failures = []
    is_over = threading.Event()

    def write(writer):
        for sequence in range(40):
            content = str(writer).encode() * 5_000
            store.save(checkpoint(sequence, operator_states={"op": content}))

    def read():
        while not is_over.is_set():
            entries = store.list("orders")
            latest = store.latest("orders")
            content = set(latest.operator_states["op"])
            if len(content) != 1 or any(entry.damage for entry in entries):
                failures.append((latest, entries))

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    is_over.set()
    reader.join()

    assert failures == []
    assert sequences(store) == [38, 39]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("save"), st.sampled_from("ab"), st.integers(0, 9)),
        st.tuples(st.just("delete"), st.sampled_from("ab"), st.integers(0, 9)),
    ),
    max_size=12,
)


@pytest.mark.parametrize("make", [in_memory, on_disk])
@given(actions=ACTIONS, max_per_stream=st.integers(1, 3))
def test_a_store_is_the_highest_sequences_of_what_was_saved_and_not_deleted(
    make, actions, max_per_stream
):
    model = {"a": set(), "b": set()}
    with tempfile.TemporaryDirectory() as folder:
        store = make(Path(folder), max_per_stream)
        for action, stream, sequence in actions:
            if action == "save":
                store.save(checkpoint(sequence, stream))
                model[stream] = set(sorted(model[stream] | {sequence})[-max_per_stream:])
            else:
                store.delete_before(stream, sequence)
                model[stream] = {kept for kept in model[stream] if kept >= sequence}
            for each, kept in model.items():
                assert sequences(store, each) == sorted(kept)
                assert store.checkpoint_count(each) == len(kept)
                latest = store.latest(each)
                assert (latest.id.sequence if latest else None) == max(kept, default=None)
