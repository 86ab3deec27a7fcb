"""Checking files side by side: what is damaged or missing is found, and progress is told."""

from zlib import crc32

import pytest

from bicycle_runtime.base.s3_storage import S3Storage
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.recovery.verification import Checked, first_damaged, first_unfit

BIG = bytes(range(256)) * 10_000  # More than one block.


@pytest.fixture
def storage(tmp_path):
    storage = LocalStorage(str(tmp_path), is_synced=False)
    for number in range(20):
        storage.write(f"state/{number:02}", BIG if number == 7 else b"small" * number)
    return storage


@pytest.fixture
def files(storage):
    data = {path: storage.read(path) for path in storage.list("state")}
    return {path: Checked(len(content), crc32(content)) for path, content in data.items()}


def test_whole_files_are_found_whole_and_all_bytes_are_told(storage, files):
    told = []
    damaged = first_damaged(storage, files, progress=lambda *parts: told.append(parts))

    total = sum(file.byte_count for file in files.values())
    assert damaged is None
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: b"\1" + data[1:]])
def test_a_cut_and_a_flipped_byte_are_found(storage, files, change):
    storage.write("state/07", change(BIG))
    assert first_damaged(storage, files) == "state/07"


def test_the_first_in_order_is_named_when_several_are_missing(storage, files):
    for path in ("state/15", "state/03"):
        storage.delete(path)
    assert first_damaged(storage, files) == "state/03"


def test_without_files_there_is_nothing_to_find(storage):
    assert first_damaged(storage, {}) is None


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: b"\1" + data[1:]])
def test_a_restart_from_a_directory_reads_all_bytes(storage, files, change):
    assert first_unfit(storage, files) is None
    storage.write("state/07", change(BIG))
    assert first_unfit(storage, files) == "state/07"


class Listed(S3Storage):
    """Says what it has, and gives nothing away."""

    def sizes(self, prefix):
        found = {"state/1": 10, "state/2": 20, "staged/3": 30}
        return {path: size for path, size in found.items() if path.startswith(f"{prefix}/")}


@pytest.mark.parametrize(
    ("path", "size", "unfit"),
    [
        ("state/2", 20, None),
        ("staged/3", 30, None),
        ("state/2", 21, "state/2"),
        ("state/4", 0, "state/4"),
    ],
)
def test_a_restart_from_s3_asks_for_sizes_alone(path, size, unfit):
    files = {"state/1": Checked(10, 1), path: Checked(size, 2)}
    assert first_unfit(Listed("s3://bucket/job"), files) == unfit
