"""A full disk ends an epoch cleanly, at whatever moment: earlier epochs stay as they are."""

import errno
import os
from dataclasses import dataclass, field

import pytest

from bicycle_runtime.base.errors import StorageError
from bicycle_runtime.base.storage import STORAGE_FULL, LocalStorage
from bicycle_runtime.testing import Harness, script_source
from tests.raising import raises
from tests.unit.recovery.ledger_job import Job

CALLS_MAX = 40


@dataclass(frozen=True, slots=True)
class SmallDisk(LocalStorage):
    """A disk that has room for so many more files; a file in the making takes what is left."""

    room: list[int] = field(default_factory=lambda: [10**9])

    def _open_new(self, path):
        stream = LocalStorage._open_new(self, path)
        self.room[0] -= 1
        if self.room[0] < 0:
            stream.close()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return stream


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_has_an_error_of_its_own(tmp_path, number):
    class Full(SmallDisk):
        def _open_new(self, path):
            raise OSError(number, os.strerror(number))

    storage = Full(str(tmp_path))
    for act in (storage.write, storage.create):
        with raises(STORAGE_FULL) as caught:
            act("a/b", b"data")
        assert caught.value.code == "BIC-1133"
        assert caught.value.facts["path"] == "a/b"
    assert storage.list("") == []


@pytest.mark.parametrize("room", range(4))
def test_an_epoch_that_finds_no_room_leaves_the_one_before(tmp_path, room):
    disk = SmallDisk(str(tmp_path), is_synced=False)
    job = Job(tmp_path, storage=disk)
    for epoch in (1, 2):
        job.seal(job.run({epoch: epoch}), {epoch: epoch})
        job.collect()
    before = {path: disk.read(path) for path in disk.list("")}
    disk.room[0] = room
    try:
        job.seal(job.run({3: 3}), {3: 3})
        job.collect()
    except StorageError as error:
        assert error.code == STORAGE_FULL.code
        for path, data in before.items():
            assert disk.read(path) == data
    else:
        assert room > 2
    disk.room[0] = 10**9
    last = job.restart()
    assert last.manifest.epoch in (2, 3)
    assert job.read() == job.models[last.manifest.epoch]


def count_words(env):
    words = env.add_source(script_source(str)).uid("words")
    words.key_by(lambda word: word).count().uid("count").collect("count")


def test_a_job_whose_disk_is_full_at_any_call_goes_on_once_there_is_room():
    for room in range(CALLS_MAX):
        with Harness(count_words, parallelism=2) as harness:
            disk = SmallDisk(harness.storage.root, is_synced=False)
            harness.storage = disk
            harness.crash()
            harness.push(["ada", "bob", "ada"])
            harness.run_epoch()
            disk.room[0] = room
            harness.push(["ada", "eve"])
            try:
                harness.run_epoch()
                harness.push(["bob"])
                harness.run_epoch()
                is_over = disk.room[0] > 0
            except StorageError as error:
                assert error.code == STORAGE_FULL.code
                is_over = False
            disk.room[0] = 10**9
            harness.crash()
            if len(harness.state("count")) < 3:
                harness.run()
            harness.end()
            harness.run()
            counts = dict(harness.results("count"))
            assert counts["ada"] == 3
            assert len(harness.results("count")) == len(set(harness.results("count")))
        if is_over:
            return
    raise AssertionError(f"an epoch of this job makes more than {CALLS_MAX} files")
