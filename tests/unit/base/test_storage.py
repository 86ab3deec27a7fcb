"""Checkpoint storage on a local disk: what killed writers leave, and folders that nobody needs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bicycle_runtime.base.storage import LocalStorage, StorageError


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "root"), is_synced=False)


def _tree(storage: LocalStorage) -> list[str]:
    root = Path(storage.root)
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def test_what_a_killed_writer_left_is_no_object_and_can_be_discarded(storage: LocalStorage):
    storage.write("staged/out/1/whole", b"whole")
    writing = storage.open_write("staged/out/2/half")
    writing.__enter__().write(b"ha")  # Nobody ever leaves the context: the writer was killed.

    assert storage.list("staged") == ["staged/out/1/whole"]
    (left,) = [name for name in _tree(storage) if name.startswith("staged/out/2/")]
    assert left.endswith(".tmp")  # Readers of `**/*.parquet` take names with dots, too.
    assert storage.discard_unfinished("staged") == 1
    assert _tree(storage) == ["staged", "staged/out", "staged/out/1", "staged/out/1/whole"]
    assert storage.discard_unfinished("staged") == 0
    assert storage.discard_unfinished("state") == 0


def test_a_folder_goes_with_its_last_object(storage: LocalStorage):
    storage.write("staged/out/1/a", b"")
    storage.write("staged/out/1/b", b"")
    storage.write("staged/out/2/a", b"")

    storage.delete("staged/out/1/a")
    assert "staged/out/1" in _tree(storage)

    storage.delete("staged/out/1/b")
    assert _tree(storage) == ["staged", "staged/out", "staged/out/2", "staged/out/2/a"]

    storage.delete("staged/out/2/a")
    storage.delete("staged/out/2/a")
    assert _tree(storage) == []
    assert Path(storage.root).is_dir()


def test_writing_where_another_process_removes_empty_folders_does_well(storage: LocalStorage):
    is_over = threading.Event()

    def write_and_delete() -> None:
        while not is_over.is_set():
            storage.write("state/count/theirs", b"")
            storage.delete("state/count/theirs")

    other = threading.Thread(target=write_and_delete)
    other.start()
    try:
        for number in range(300):
            storage.write("state/count/mine", b"%d" % number)
            assert storage.read("state/count/mine") == b"%d" % number
            storage.delete("state/count/mine")
    finally:
        is_over.set()
        other.join()


def test_a_refused_write_is_a_storage_error_and_leaves_nothing(storage: LocalStorage):
    storage.write("file", b"")

    for refused in (storage.write, storage.create):
        with pytest.raises(StorageError) as caught:
            refused("file/below", b"")
        assert caught.value.facts["path"] == "file/below"

    assert _tree(storage) == ["file"]
