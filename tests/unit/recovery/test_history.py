"""Looking at retained epochs beside a job that runs: damaged, collected, put aside."""

from zlib import crc32

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.layouts.manifest import OperatorState, PlanRecord
from bicycle_runtime.layouts.state import RangeState, StateRef
from bicycle_runtime.recovery.errors import (
    CHECKPOINT_MISSING,
    EPOCH_UNKNOWN,
    EpochGoneError,
    ManifestError,
)
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.ledger import EpochLedger
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.errors import StateFileError
from tests.raising import raises

PLAN = PlanRecord(bundle_digest="d", parallelism={"op": 1}, now_ms=5)


class Job:
    """Seals epochs that hold one file each and one that all share."""

    def __init__(self, folder, retained=3):
        self.storage = LocalStorage(str(folder), is_synced=False)
        self.ledger = EpochLedger(
            self.storage, job="job", retained_count=retained, sink_paths=lambda _: set()
        )
        self.shared = self.put("state/op/shared")
        self.history = EpochHistory(self.storage)

    def put(self, path):
        self.storage.write(path, b"sealed")
        return StateRef(
            path=path, is_base=False, tier=0, first_epoch=1, last_epoch=1, byte_count=6,
            crc32=crc32(b"sealed"),
        )  # fmt: skip

    def seal(self, count):
        for epoch in range(1, count + 1):
            refs = (self.shared, self.put(f"state/op/{epoch}"))
            state = RangeState(first_group=0, end_group=4, files=refs)
            self.ledger.seal(
                Manifest(
                    epoch=epoch,
                    plan=PLAN,
                    states={
                        "op": OperatorState(scope="key_groups", group_count=4, ranges=(state,))
                    },
                )
            )
            self.ledger.mark_published(epoch)

    def files(self):
        return {path: self.storage.read(path) for path in self.storage.list("")}


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path / "job")


def test_epochs_are_listed_with_what_is_published(job):
    job.seal(3)
    job.storage.delete("epochs/000000000003.published")
    before = job.files()

    found = job.history.retained(is_thorough=True)
    assert [(each.epoch, each.is_published, each.damage) for each in found] == [
        (1, True, None),
        (2, True, None),
        (3, False, None),
    ]
    assert job.history.manifest().epoch == 3
    assert job.history.manifest(2) == found[1].manifest
    assert job.files() == before


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("epochs/000000000002.manifest", b"cut"),
        ("state/op/2", b"cut"),
        ("state/op/2", None),
    ],
    ids=["manifest", "state", "missing"],
)
def test_a_damaged_epoch_is_listed_with_the_reason(job, path, data):
    job.seal(3)
    job.storage.delete(path)
    if data is not None:
        job.storage.write(path, data)

    damaged = [each for each in job.history.retained() if each.damage]
    assert [each.epoch for each in damaged] == [2]
    assert (damaged[0].manifest is None) == path.endswith(".manifest")
    assert path.endswith(".manifest") or path in damaged[0].damage


def test_a_change_that_keeps_the_size_is_found_by_reading_everything(job):
    job.seal(2)
    job.storage.write("state/op/2", b"SEALED")

    assert [each.epoch for each in job.history.retained() if each.damage] == []
    assert [each.epoch for each in job.history.retained(is_thorough=True) if each.damage] == [2]


def test_a_manifest_that_was_put_aside_is_told_as_such(job):
    job.seal(3)
    job.storage.write("state/op/3", b"cut")
    job.ledger.last()

    found = job.history.retained()
    assert [(each.epoch, each.is_put_aside, bool(each.damage)) for each in found] == [
        (1, False, False),
        (2, False, False),
        (3, True, True),
    ]
    assert job.history.manifest().epoch == 2


def test_an_epoch_that_is_not_there_is_told_with_those_that_are(job):
    with raises(CHECKPOINT_MISSING):
        job.history.manifest()
    job.seal(3)
    with raises(EPOCH_UNKNOWN) as caught:
        job.history.manifest(9)

    assert caught.value.facts["known"] == [1, 2, 3]
    assert caught.value.facts["known_text"] == "1 to 3"


def test_a_damaged_manifest_is_refused(job):
    job.seal(2)
    job.storage.write("epochs/000000000002.manifest", b"cut")

    with pytest.raises(ManifestError):
        job.history.manifest()


def test_an_epoch_that_is_collected_while_it_is_read_is_gone(job):
    job.seal(4)
    manifest = job.history.manifest(1)
    job.ledger.collect()

    with pytest.raises(EpochGoneError) as caught, job.history.reading(manifest):
        raise StateFileError(path="state/op/1", operator="op", reason="it is missing")
    assert caught.value.facts["epoch"] == 1
    assert caught.value.facts["known_text"] == "2 to 4"


def test_an_epoch_whose_files_are_just_being_collected_is_gone_not_damaged(job):
    job.seal(3)
    manifest = job.history.manifest(1)
    job.storage.delete("state/op/1")

    with pytest.raises(EpochGoneError), job.history.reading(manifest):
        raise StateFileError(path="state/op/1", operator="op", reason="it is missing")
    assert [each.epoch for each in job.history.retained()] == [2, 3]


@pytest.mark.parametrize("path", ["state/op/3", "state/op/shared"])
def test_a_file_that_a_later_epoch_needs_is_damaged_not_gone(job, path):
    job.seal(3)
    manifest = job.history.manifest(3 if path.endswith("3") else 1)
    job.storage.delete(path)

    with pytest.raises(StateFileError), job.history.reading(manifest):
        raise StateFileError(path=path, operator="op", reason="it is missing")


class Racing:
    """A storage where the job collects right after each listing."""

    def __init__(self, job):
        self._job = job

    def list(self, prefix):
        found = self._job.storage.list(prefix)
        self._job.ledger.collect()
        return found

    def __getattr__(self, name):
        return getattr(self._job.storage, name)


def test_an_epoch_that_is_collected_between_listing_and_reading_is_left_out(job):
    job.seal(4)

    assert [each.epoch for each in EpochHistory(Racing(job)).retained()] == [2, 3, 4]


def test_a_manifest_that_is_collected_between_listing_and_reading_is_gone(job):
    job.seal(4)

    with pytest.raises(EpochGoneError):
        EpochHistory(Racing(job)).manifest(1)
