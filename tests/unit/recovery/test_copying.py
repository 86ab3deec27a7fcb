"""Copies are what was recorded, or are not made; links cost nothing and are proved later."""

import itertools
from zlib import crc32

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.layouts.savepoint import CopiedFile
from bicycle_runtime.recovery.copying import (
    FileToCopy,
    copy_files,
    folder_of,
    link_files,
    read_back,
    wanted_copy,
)
from bicycle_runtime.recovery.errors import COPY_REFUSED
from tests.raising import raises

_numbers = itertools.count()


@pytest.fixture(params=["local", "memory"])
def place(request, tmp_path):
    """Make storages of one kind."""

    def make(name):
        if request.param == "local":
            return LocalStorage(str(tmp_path / name), is_synced=False)
        return open_storage(f"memory://copying-{next(_numbers)}/{name}")

    return make


def recorded(path, data):
    return FileToCopy(path=path, byte_count=len(data), crc32=crc32(data))


def test_files_arrive_at_the_same_paths_with_sizes_and_checksums(place):
    source, target = place("a"), place("b")
    contents = {f"state/op/{number}": bytes([number]) * number for number in range(20)}
    for path, data in contents.items():
        source.write(path, data)

    copied = copy_files(source, target, [FileToCopy(path=path) for path in contents])

    assert copied == [CopiedFile(path, len(data), crc32(data)) for path, data in contents.items()]
    assert {path: target.read(path) for path in target.list("")} == contents
    assert read_back(target, [wanted_copy(file) for file in copied]) == copied


@pytest.mark.parametrize("found", [None, b"cut", b"changed!"])
def test_a_file_that_is_not_what_was_recorded_is_refused_and_does_not_arrive(tmp_path, found):
    source, target = (LocalStorage(str(tmp_path / name)) for name in "ab")
    if found is not None:
        source.write("x", found)

    with raises(COPY_REFUSED) as caught:
        copy_files(source, target, [recorded("x", b"original")])

    assert caught.value.facts["path"] == "x"
    assert target.list("") == []


def test_links_share_bytes_and_outlive_the_first_name(tmp_path):
    source, target = (LocalStorage(str(tmp_path / name)) for name in "ab")
    source.write("state/op/1", b"data")

    left = link_files(source, target, [recorded("state/op/1", b"data")])
    inodes = {s.local_path("state/op/1").stat().st_ino for s in (source, target)}
    source.delete("state/op/1")

    assert left == []
    assert len(inodes) == 1
    assert target.read("state/op/1") == b"data"


def test_what_cannot_be_linked_is_left_to_be_copied(place, tmp_path):
    local = LocalStorage(str(tmp_path / "local"))
    elsewhere = open_storage(f"memory://copying-{next(_numbers)}/x")
    wanted = [recorded("state/op/1", b"data")]

    assert link_files(local, elsewhere, wanted) == wanted
    assert link_files(local, local, [FileToCopy(path="missing")]) == [FileToCopy(path="missing")]


def test_a_folder_of_a_storage_is_a_storage(place):
    storage = place("a")
    inner = folder_of(storage, "savepoints/one")
    inner.write("x", b"1")

    assert storage.read("savepoints/one/x") == b"1"
    assert inner.list("") == ["x"]
