"""Savepoints in S3: of a job there, taken to a disk and back."""

from __future__ import annotations

from collections import Counter

import pytest

from bicycle_runtime.base.storage import LocalStorage, ObjectMissingError
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.recovery.adoption import adopt, find_origin
from bicycle_runtime.recovery.copying import folder_of
from bicycle_runtime.recovery.errors import COPY_REFUSED, SAVEPOINT_TAKEN
from bicycle_runtime.recovery.savepoints import (
    delete_savepoint,
    verify_savepoint,
    write_savepoint,
)
from tests.raising import raises
from tests.unit.recovery.ledger_job import Job


@pytest.fixture
def job(storage, tmp_path):
    job = Job(tmp_path, storage=storage)
    for epoch in (1, 2):
        job.seal(job.run({epoch: epoch}), {epoch: epoch})
        job.ledger.mark_published(epoch)
    storage.write("connectors/in/journal/0", b"lines\n")
    return job


def take(job, target):
    return write_savepoint(job.storage, target, epoch=2, name="one", now_ms=1)


def test_a_job_goes_from_s3_to_a_disk_and_back(job, bucket, tmp_path):
    there = folder_of(job.storage, "savepoints/one")
    disk = LocalStorage(str(tmp_path / "disk"))
    take(job, there)
    adopt(find_origin(there), disk, job="disk")
    back = open_storage(f"s3://{bucket}/jobs/back")
    adopt(find_origin(disk), back, job="back")

    other = Job(tmp_path, storage=back)
    assert (other.manifest, other.read()) == (job.manifest, job.models[2])
    assert back.read("connectors/in/journal/0") == b"lines\n"
    assert job.restart().manifest.epoch == 2


def test_the_server_copies_what_stays_in_s3_and_each_byte_is_proved(job, bucket, asked, tmp_path):
    there = folder_of(job.storage, "savepoints/one")
    savepoint = take(job, there)
    made = Counter(asked)
    asked.clear()
    back = open_storage(f"s3://{bucket}/jobs/back")
    adopt(find_origin(there), back, job="back")

    assert made["CopyObject"] == savepoint.file_count
    assert made["PutObject"] == 2  # The claim, and what names the files.
    assert made["GetObject"] >= savepoint.file_count
    assert Counter(asked)["CopyObject"] == savepoint.file_count
    assert Job(tmp_path, storage=back).read() == job.models[2]


def test_what_the_server_cannot_copy_in_one_request_is_left_to_others(storage):
    storage.write("a", b"x")

    assert storage.copy_from(storage, "a", byte_count=(5 << 30) + 1) is False
    with pytest.raises(ObjectMissingError):
        storage.copy_from(storage, "b", byte_count=None)


def test_a_place_is_taken_once_and_can_be_given_back(job):
    there = folder_of(job.storage, "savepoints/one")
    savepoint = take(job, there)
    with raises(SAVEPOINT_TAKEN):
        take(job, there)

    assert verify_savepoint(there) == savepoint
    delete_savepoint(there)
    assert there.list("") == []


def test_a_damaged_file_leaves_nothing_of_a_savepoint(job):
    path = sorted(job.manifest.state_paths())[0]
    job.storage.write(path, b"damaged")
    there = folder_of(job.storage, "savepoints/one")

    with raises(COPY_REFUSED):
        take(job, there)
    assert there.list("") == []
