"""The manager: which events make a checkpoint, what is in it, and how a stream goes on from one."""

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.recovery import (
    Capture,
    CheckpointId,
    CheckpointManager,
    CheckpointState,
    DurableCheckpointStore,
    InMemoryCheckpointStore,
)
from bicycle_runtime.recovery.errors import CHECKPOINT_VALUE_UNFIT, NO_CHECKPOINT_READABLE
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.errors import OptionError
from tests.raising import raises


def manager_of(interval, *, store=None, **options):
    return CheckpointManager(store or InMemoryCheckpointStore(10), interval, **options)


def feed(manager, sequences, stream="orders"):
    """Return the events that made a checkpoint."""
    return [n for n in sequences if manager.on_event(stream, n, watermark_ns=n * 1_000)]


def test_the_event_at_the_interval_makes_a_checkpoint_and_none_before():
    manager = manager_of(100)

    assert feed(manager, range(99)) == []
    assert manager.total_checkpoints == 0
    assert feed(manager, [100]) == [100]
    assert manager.total_checkpoints == 1


def test_every_interval_makes_one():
    manager = manager_of(10)

    assert feed(manager, range(51)) == [10, 20, 30, 40, 50]
    assert manager.total_checkpoints == 5
    assert manager.store.checkpoint_count("orders") == 5


def test_an_interval_of_one_makes_one_for_each_event():
    assert feed(manager_of(1), range(4)) == [1, 2, 3]


def test_a_jump_over_several_intervals_makes_one_and_the_next_is_an_interval_behind_it():
    assert feed(manager_of(10), [5, 37, 40, 46, 47]) == [37, 47]


def test_a_stream_does_not_delay_another():
    manager = manager_of(10)

    assert feed(manager, [100], "a") == [100]
    assert feed(manager, [9, 10, 11], "b") == [10]
    assert manager.total_checkpoints == 2


def test_recover_gives_the_last_checkpoint_and_none_before_the_first():
    manager = manager_of(50)

    assert manager.recover("orders") is None
    assert feed(manager, [49]) == []
    assert manager.recover("orders") is None
    assert feed(manager, [50, 100]) == [50, 100]
    assert manager.recover("orders") == 100


def test_a_checkpoint_at_sequence_0_is_a_checkpoint():
    store = InMemoryCheckpointStore(1)
    store.save(CheckpointState(CheckpointId("orders", 0)))
    manager = manager_of(10, store=store)

    assert manager.recover("orders") == 0
    assert feed(manager, [9, 10]) == [10]


def test_a_new_manager_goes_on_behind_the_checkpoints_of_its_store():
    store = InMemoryCheckpointStore(10)
    feed(manager_of(100, store=store), range(151))

    assert feed(manager_of(100, store=store), range(101, 201)) == [200]


def test_a_stream_that_went_back_gets_its_checkpoints_again():
    manager = manager_of(10)
    feed(manager, range(36))

    assert manager.recover("orders") == 30
    assert feed(manager, range(31, 51)) == [40, 50]


def test_a_checkpoint_holds_what_was_captured_and_where_the_stream_was():
    asked = []

    def capture(stream_id):
        asked.append(stream_id)
        return Capture(
            operator_states={"sum": b"%d" % len(asked)},
            source_offsets={"file": 7},
            metadata={"by": "test"},
        )

    clock = ManualClock(start_ms=5)
    manager = manager_of(10, capture=capture, clock=clock)
    feed(manager, range(25))

    latest = manager.store.latest("orders")
    assert asked == ["orders", "orders"]
    assert (latest.id.sequence, latest.id.created_at_ms) == (20, 5)
    assert (latest.event_count, latest.watermark_ns) == (20, 20_000)
    assert latest.operator_states == {"sum": b"2"}
    assert latest.source_offsets == {"file": 7}
    assert latest.metadata == {"by": "test"}


def test_a_checkpoint_that_failed_is_tried_again_by_the_next_event():
    is_broken = True

    def capture(stream_id):
        if is_broken:
            raise OSError("not now")
        return Capture()

    manager = manager_of(10, capture=capture)
    for sequence in (10, 11):
        with pytest.raises(OSError, match="not now"):
            manager.on_event("orders", sequence, 0)
    assert (manager.total_checkpoints, manager.recover("orders")) == (0, None)

    is_broken = False
    assert feed(manager, [12, 13]) == [12]


def test_a_watermark_out_of_bounds_is_refused_and_nothing_is_saved():
    manager = manager_of(1)

    with raises(CHECKPOINT_VALUE_UNFIT):
        manager.on_event("orders", 1, -1)

    assert manager.store.latest("orders") is None


@pytest.mark.parametrize("interval", [0, -1])
def test_an_interval_that_is_not_positive_is_refused(interval):
    with pytest.raises(OptionError) as caught:
        manager_of(interval)

    assert (caught.value.facts["name"], caught.value.facts["found"]) == ("interval", interval)


def test_a_restarted_program_ends_where_an_undisturbed_one_does(tmp_path):
    """A sum over numbers, stopped anywhere: the rest is fed again from the last checkpoint."""
    for stop in range(1, 60, 7):
        folder = str(tmp_path / str(stop))
        with pytest.raises(KeyboardInterrupt):
            run_sum(folder, stop=stop)

        assert run_sum(folder) == sum(range(1, 61))


def run_sum(folder, *, stop=None):
    store = DurableCheckpointStore(LocalStorage(folder, is_synced=False), 2)
    total = 0
    manager = manager_of(
        10, store=store, capture=lambda _: Capture(operator_states={"sum": b"%d" % total})
    )
    first = manager.recover("numbers") or 0
    if first:
        total = int(store.latest("numbers").operator_states["sum"])
    for number in range(first + 1, 61):
        if number == stop:
            raise KeyboardInterrupt
        total += number
        manager.on_event("numbers", number, watermark_ns=0)
    return total


def test_a_stream_whose_checkpoints_are_all_damaged_is_refused_at_its_first_event(tmp_path):
    storage = LocalStorage(str(tmp_path), is_synced=False)
    feed(manager_of(1, store=DurableCheckpointStore(storage, 2)), [1])
    (path,) = storage.list("")
    storage.write(path, b"")

    with raises(NO_CHECKPOINT_READABLE):
        manager_of(1, store=DurableCheckpointStore(storage, 2)).on_event("orders", 2, 0)

    assert storage.list("") == [path]
