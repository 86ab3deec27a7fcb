"""Paths of objects stay below the root of their storage, whatever their words or links say."""

import itertools
import os

import pytest

from bicycle_runtime.base.errors import UnsafePathError
from bicycle_runtime.base.object_paths import checked_name, checked_path, require_below
from bicycle_runtime.base.s3_storage import S3Storage
from bicycle_runtime.base.storage import LocalStorage, publish_file
from bicycle_runtime.base.storage_urls import open_storage

SAFE = [
    "",
    "a",
    "a/",
    "a/b.c",
    "state/op/00000-00008/1-a.delta",
    "a/..b",
    ".hidden",
    "a b",
    "ä/\\x",
]
UNSAFE = [
    "/", "/etc/passwd", "..", "../x", "a/..", "a/../b", "a//b", "//x", "./a", "a/./b", ".", "a\0b",
    "a/../../../x",
]  # fmt: skip
_numbers = itertools.count()


def test_safe_paths_come_back_as_they_are_and_others_are_refused():
    assert [checked_path(path) for path in SAFE] == SAFE
    for path in UNSAFE:
        with pytest.raises(UnsafePathError) as caught:
            checked_path(path)
        assert caught.value.facts["path"] == path
    for name in ["", "a/b", "..", ".", "/x"]:
        with pytest.raises(UnsafePathError):
            checked_name(name)
    require_below(["state/a", "staged/b"], "state", "staged")
    for path in ["epochs/1", "state", "stated/x", "state/../x"]:
        with pytest.raises(UnsafePathError):
            require_below([path], "state")


@pytest.mark.parametrize("kind", ["local", "memory", "fsspec-local", "s3"])
def test_no_call_of_any_storage_takes_a_path_that_leads_out(tmp_path, kind):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    storage = {
        "local": lambda: LocalStorage(str(tmp_path / "root")),
        "memory": lambda: open_storage(f"memory://paths-{next(_numbers)}/root"),
        "fsspec-local": lambda: open_storage(f"local://{tmp_path}/root"),
        "s3": lambda: S3Storage("s3://bucket/root", 0.0),
    }[kind]()

    def stream(path):
        with storage.open_write(path) as writing:
            writing.write(b"theirs")

    calls = [
        storage.read, storage.open_read, storage.exists, storage.size, storage.delete,
        storage.delete_tree, storage.list, stream,
        lambda path: storage.write(path, b"theirs"),
        lambda path: storage.create(path, b"theirs"),
        lambda path: publish_file(storage, path, tmp_path / "published"),
    ]  # fmt: skip
    for call, path in itertools.product(calls, ["../outside", str(outside), "a/../../outside"]):
        with pytest.raises(UnsafePathError):
            call(path)
    assert outside.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} <= {"outside", "root"}


@pytest.mark.parametrize("kind", ["local", "fsspec-local"])
def test_links_and_pipes_below_the_root_are_refused_and_only_removed_themselves(tmp_path, kind):
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (root / "state").mkdir(parents=True)
    (root / "state" / "file").symlink_to(outside / "file")
    (root / "staged").symlink_to(outside)
    os.mkfifo(root / "state" / "pipe")
    (tmp_path / "other name").symlink_to(root)  # The root itself may be one.
    place = str(tmp_path / "other name")
    storage = LocalStorage(place) if kind == "local" else open_storage(f"local://{place}")

    for path in ["state/file", "staged/file", "staged/new", "state/pipe", "staged"]:
        for call in (storage.read, storage.open_read, lambda path: storage.write(path, b"theirs")):
            with pytest.raises(UnsafePathError):
                call(path)
    with pytest.raises(UnsafePathError):
        storage.delete("staged/file")
    storage.write("state/own", b"ours")
    if kind == "local":
        storage.delete("state/file")

    assert storage.read("state/own") == b"ours"
    assert (outside / "file").read_text() == "mine"
    assert [path.name for path in outside.iterdir()] == ["file"]
