"""The durable store: what survives its process, what a crash leaves, what is done about damage."""

import signal
import subprocess
import sys

import pytest

from bicycle_runtime.base.storage import LocalStorage, ObjectMissingError, StorageError
from bicycle_runtime.recovery import CheckpointId, CheckpointState, DurableCheckpointStore
from bicycle_runtime.recovery.errors import CHECKPOINT_VALUE_UNFIT, NO_CHECKPOINT_READABLE
from tests.raising import raises

# Saves checkpoint 2 and is killed where the point says: before the file gets its name, between
# that and the removal of older checkpoints, or before the first of two removals.
KILLED = """
import os, signal, sys
from pathlib import Path
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.recovery import CheckpointId, CheckpointState, DurableCheckpointStore

folder, point = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

class Deadly(LocalStorage):
    def delete(self, path):
        die()

if point == "rename":
    Path.replace = die
storage = (Deadly if point == "removal" else LocalStorage)(folder)
DurableCheckpointStore(storage, 1).save(CheckpointState(CheckpointId("orders", 2), event_count=2))
"""


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path / "root"), is_synced=False)


def saved(storage, *sequences, max_per_stream=3):
    store = DurableCheckpointStore(storage, max_per_stream)
    for sequence in sequences:
        store.save(checkpoint(sequence))
    return store


def checkpoint(sequence):
    return CheckpointState(CheckpointId("orders", sequence), operator_states={"op": b"12345"})


def path_of(sequence):
    return f"checkpoints/stream-orders/{sequence:020}.checkpoint"


def damage(storage, *sequences):
    for sequence in sequences:
        content = storage.read(path_of(sequence))
        storage.write(path_of(sequence), content[:-20])


def sequences(store):
    return [entry.sequence for entry in store.list("orders")]


def test_checkpoints_survive_their_store(storage):
    saved(storage, 1, 2)

    store = DurableCheckpointStore(storage, 3)

    assert store.latest("orders").id.sequence == 2
    assert store.checkpoint_count("orders") == 2


def test_a_smaller_maximum_holds_from_the_next_save_on(storage):
    saved(storage, 1, 2, 3)

    store = saved(storage, 4, max_per_stream=2)

    assert sequences(store) == [3, 4]
    assert storage.list("") == [path_of(3), path_of(4)]


def test_a_damaged_checkpoint_is_passed_over_listed_and_logged_once(storage, caplog):
    store = saved(storage, 1, 2, 3)
    damage(storage, 3)

    assert store.latest("orders").id.sequence == 2
    assert store.latest("orders").id.sequence == 2
    assert store.checkpoint_count("orders") == 2

    entries = store.list("orders")
    assert [(e.sequence, e.state is None, e.damage is None) for e in entries] == [
        (1, False, True),
        (2, False, True),
        (3, True, False),
    ]
    facts = entries[-1].damage.facts
    assert (facts["path"], facts["stream"]) == (path_of(3), "orders")
    logged = [record for record in caplog.records if record.message == "checkpoint_damaged"]
    assert [record.bicycle_fields["sequence"] for record in logged] == [3]
    assert logged[0].bicycle_fields["error"]["code"] == "BIC-1511"


def test_a_checkpoint_under_the_name_of_another_is_damaged(storage):
    store = saved(storage, 1, 2)
    storage.write(path_of(9), storage.read(path_of(1)))
    foreign = storage.read(path_of(2))
    storage.write("checkpoints/stream-payments/00000000000000000002.checkpoint", foreign)

    assert store.latest("orders").id.sequence == 2
    assert [e.sequence for e in store.list("orders") if e.damage] == [9]
    assert [e.sequence for e in store.list("payments") if e.damage] == [2]


def test_a_checkpoint_of_a_later_version_is_passed_over(storage):
    store = saved(storage, 1, 2)
    content = bytearray(storage.read(path_of(2)))
    content[-12] = 2
    storage.write(path_of(2), bytes(content))

    assert store.latest("orders").id.sequence == 1
    assert "version 2" in store.list("orders")[1].damage.facts["reason"]


def test_a_stream_of_which_nothing_is_whole_does_not_start_empty_by_itself(storage):
    store = saved(storage, 1, 2)
    damage(storage, 1, 2)

    with raises(NO_CHECKPOINT_READABLE) as caught:
        store.latest("orders")
    assert (caught.value.facts["count"], caught.value.facts["stream"]) == (2, "orders")
    assert caught.value.facts["url"] == storage.url

    assert store.delete_before("orders", 3) == 2
    assert store.latest("orders") is None


def test_damage_drives_no_whole_checkpoint_out(storage):
    saved(storage, 10, 20, 30)
    damage(storage, 20, 30)
    store = DurableCheckpointStore(storage, 2)
    assert store.latest("orders").id.sequence == 10

    store.save(checkpoint(15))

    assert store.latest("orders").id.sequence == 15
    assert sequences(store) == [10, 15, 20, 30]


def test_damage_goes_when_enough_whole_checkpoints_lie_above_it(storage):
    store = saved(storage, 1, 2, max_per_stream=2)
    damage(storage, 2)
    assert store.checkpoint_count("orders") == 1

    store.save(checkpoint(3))
    assert sequences(store) == [1, 2, 3]
    store.save(checkpoint(4))
    assert sequences(store) == [3, 4]


def test_a_damaged_checkpoint_that_is_saved_again_is_whole_and_counts(storage):
    store = saved(storage, 1, 2, max_per_stream=2)
    damage(storage, 2)
    assert store.latest("orders").id.sequence == 1

    store.save(checkpoint(2))
    store.save(checkpoint(3))

    assert sequences(store) == [2, 3]
    assert store.checkpoint_count("orders") == 2


def test_other_files_in_the_folder_are_none_of_its_checkpoints(storage):
    store = saved(storage, 1)
    storage.write("checkpoints/stream-orders/readme.txt", b"")
    storage.write("checkpoints/stream-orders/5.checkpoint", b"")

    assert sequences(store) == [1]
    assert store.delete_before("orders", 9) == 1
    assert len(storage.list("checkpoints")) == 2


@pytest.mark.parametrize(("point", "found"), [("rename", 1), ("removal", 2)])
def test_a_killed_writer_leaves_the_checkpoints_of_before_or_of_after(storage, point, found):
    saved(storage, 1, max_per_stream=1)

    killed = subprocess.run([sys.executable, "-c", KILLED, storage.root, point], check=False)
    assert killed.returncode == -signal.SIGKILL

    store = DurableCheckpointStore(storage, 1)
    assert store.latest("orders").id.sequence == found
    assert [entry.damage for entry in store.list("orders")] == [None] * found
    assert store.discard_unfinished() == (1 if point == "rename" else 0)
    store.save(checkpoint(3))
    assert sequences(store) == [3]
    assert storage.list("") == [path_of(3)]


class Busy(LocalStorage):
    """Gives every listing as it was before a writer replaced all that is in it."""

    def read(self, path):
        raise ObjectMissingError(url=self.root, path=path)


class Overtaken(LocalStorage):
    """A writer replaces everything between the first listing and the first reading."""

    def list(self, prefix):
        found = super().list(prefix)
        if found == [path_of(1)]:
            saved(LocalStorage(self.root), 2, max_per_stream=1)
        return found


def test_a_reader_that_a_writer_overtakes_looks_again(storage):
    saved(storage, 1)

    store = DurableCheckpointStore(Overtaken(storage.root), 1)

    assert store.latest("orders").id.sequence == 2


def test_a_reader_that_is_overtaken_for_ever_says_what_it_misses(storage):
    saved(storage, 1)

    with pytest.raises(ObjectMissingError) as caught:
        DurableCheckpointStore(Busy(storage.root), 1).latest("orders")

    assert caught.value.facts["path"] == path_of(1)


def test_what_cannot_be_saved_changes_nothing(storage):
    store = saved(storage, 1)
    storage.write("checkpoints/stream-file", b"")

    with raises(CHECKPOINT_VALUE_UNFIT):
        store.save(CheckpointState(CheckpointId("\ud800", 1)))
    with raises(CHECKPOINT_VALUE_UNFIT):
        store.save(CheckpointState(CheckpointId("orders", 2), metadata={"k": "\ud800"}))
    with pytest.raises(StorageError):
        store.save(CheckpointState(CheckpointId("file", 1)))

    assert sequences(store) == [1]
