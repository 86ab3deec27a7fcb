"""Restarts from S3: what is asked for, what is brought, and what becomes of damaged files."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from bicycle_runtime.base.reading_ahead import objects_ahead
from bicycle_runtime.base.storage import ObjectMissingError
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.state.sealed import bases
from bicycle_runtime.state.sealed.refs import objects_of
from tests.unit.recovery.ledger_job import Job, hurt

MIB = 1 << 20


@pytest.fixture
def bases_at_each_interval(monkeypatch):
    """Let a base be worth while however little has changed."""
    monkeypatch.setattr(bases, "fold_start", lambda files, *, is_interval_over: is_interval_over)


@pytest.fixture(params=["memory", "rocksdb"])
def job(request, storage, tmp_path, bases_at_each_interval):
    """Four sealed epochs, of which the last one has taken a base."""
    job = Job(tmp_path / "job", retained=5, storage=storage, backend=request.param)
    for epoch in range(1, 5):
        job.seal(job.run({epoch: epoch}, is_interval_over=epoch == 3), {epoch: epoch})
    assert job.state.files[0].is_base
    yield job
    job.close()


def elsewhere(job, tmp_path, storage):
    """Return the job on a host that has nothing of it."""
    other = Job(tmp_path / "other", retained=5, storage=storage, backend=job.settings.backend)
    table = other.store.at(other.state)
    found = {key: table.groups[key % 8][key] for key in job.models[other.manifest.epoch]}
    other.close()
    return other, found


def test_a_host_without_local_state_gets_all_of_it(job, storage, tmp_path):
    other, found = elsewhere(job, tmp_path, storage)
    assert other.manifest == job.manifest
    assert found == other.read() == job.models[4]


def test_a_driver_that_starts_reads_manifests_and_no_state(job, asked):
    job.restart()
    counted = Counter(asked)

    assert counted["GetObject"] == len(job.sealed_epochs()) == 4
    assert counted["HeadObject"] <= 1  # Whether the last epoch is published.


@pytest.mark.parametrize("damage", ["cut", "empty"])
def test_a_file_of_another_size_is_found_before_anything_runs(job, storage, damage):
    hurt(storage, [*objects_of(job.state)][-1].path, damage)
    last = job.restart()

    assert last.manifest.epoch == 3
    assert [error.facts["path"] for error in last.damaged] == ["epochs/000000000004.manifest"]
    assert job.read() == job.models[3]


def test_a_flipped_byte_is_found_by_who_loads_and_the_epoch_before_counts(job, storage, tmp_path):
    path = next(item.path for item in objects_of(job.state) if ".base/" in item.path)
    hurt(storage, path, "flip")
    assert job.restart().manifest.epoch == 4
    with pytest.raises(StateFileError) as caught:
        elsewhere(job, tmp_path, storage)
    assert caught.value.facts["path"] == path
    job.ledger.doubt(path)

    other, found = elsewhere(job, tmp_path, storage)
    assert other.manifest.epoch == 3
    assert found == other.read() == job.models[3]


def test_objects_of_any_size_are_read_ahead_whole_and_in_their_order(storage):
    chance = random.Random(3)
    sizes = [0, 5, 8 * MIB, 17 * MIB, 1, 8 * MIB + 1]
    objects = {f"state/{number}": chance.randbytes(size) for number, size in enumerate(sizes)}
    for path, data in objects.items():
        storage.write(path, data)
    expected = [(path, len(data)) for path, data in objects.items()]

    assert list(objects_ahead(storage, expected, come=lambda _: None)) == list(objects.values())
    cut = objects_ahead(storage, [("state/3", 20 * MIB)], come=lambda _: None)
    assert [len(data) for data in cut] == [17 * MIB]
    for size in (1, 20 * MIB):
        with pytest.raises(ObjectMissingError):
            list(objects_ahead(storage, [("state/none", size)], come=lambda _: None))
