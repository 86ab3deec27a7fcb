"""What is published survives a power cut before what it was made of is removed."""

import errno
import os
from pathlib import Path

import pytest

from bicycle_runtime.base.files import make_folder
from bicycle_runtime.base.remote_storage import FsspecStorage
from bicycle_runtime.base.storage import LocalStorage, publish_file
from bicycle_runtime.connectors.files.parts import PartPlan, carry_out


@pytest.fixture
def synced(monkeypatch):
    """Return the files and folders that were flushed to the disk, in order."""
    found, original = [], os.fsync

    def fsync(descriptor):
        found.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


@pytest.fixture(params=["same", "other", "url"])
def place(request, tmp_path, synced, monkeypatch):
    """Return a storage that notes what it removes among what is flushed, and where output goes."""

    class Local(LocalStorage):
        def delete(self, path):
            synced.append(f"removed {path}")
            super().delete(path)

    class Far(FsspecStorage):
        def delete(self, path):
            synced.append(f"removed {path}")
            super().delete(path)

    storage = Far(f"memory://{tmp_path}") if request.param == "url" else Local(str(tmp_path / "s"))
    if request.param == "other":
        monkeypatch.setattr(os, "rename", refuse)
    return storage, tmp_path / "new" / "out"


def refuse(source, target):
    raise OSError(errno.EXDEV, "Invalid cross-device link", source, None, target)


def test_a_staged_file_is_removed_only_when_the_published_one_is_durable(place, synced):
    storage, out = place
    storage.write("staged/one", b"records")
    synced.clear()
    publish_file(storage, "staged/one", out / "part")

    assert (out / "part").read_bytes() == b"records"
    assert not storage.exists("staged/one")
    assert str(out.parent) in synced  # It was made just now.
    if "removed staged/one" in synced:  # Else it was renamed, and nothing was removed.
        before = synced[: synced.index("removed staged/one")]
        assert before[-2:] == [str(out / ".tmp-part.tmp"), str(out)]


def test_what_a_crash_left_published_is_made_durable_before_its_origin_goes(place, synced):
    storage, out = place
    out.mkdir(parents=True)
    (out / "part").write_bytes(b"records")
    storage.write("connectors/v/open/0", b"records")
    synced.clear()
    plan = PartPlan(path="connectors/v/open/0", start=0, end=7, header="", files=(), name="part")
    carry_out(plan, storage, out)

    assert synced == [str(out), "removed connectors/v/open/0"]
    assert not storage.exists("connectors/v/open/0")


def test_folders_that_are_made_are_durable(tmp_path, synced):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")

    assert sorted(synced) == [str(tmp_path), str(tmp_path / "a")]
