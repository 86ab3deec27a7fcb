"""Files that are away for a moment, or renamed while they are looked at."""

import shutil
import sys

import pytest

from bicycle_runtime.connectors.files.tracking import _GONE_FILES_MAX
from bicycle_runtime.contract import Budget
from tests.unit.connectors.followed import append, read


class Opened:
    """Calls an action when one of the next files is opened, before it is."""

    def __init__(self):
        self._countdown, self._action = 0, None
        sys.addaudithook(self._hear)

    def after(self, count, action):
        self._countdown, self._action = count + 1, action

    def is_due(self):
        return self._action is not None

    def act(self):
        action, self._action = self._action, None
        action()

    def _hear(self, event, _arguments):
        if event == "open" and self.is_due():
            self._countdown -= 1
            if not self._countdown:
                self.act()


@pytest.fixture(scope="module")
def opened():
    return Opened()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("place", ["", "*.log", "x.log"])
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_directory_that_is_away_for_one_listing_is_read_on(
    folder, follow, place, is_empty, restarts
):
    path, away = folder / "x.log", folder.parent / "away"
    path.write_text("one\ntwo\n")
    run = follow(folder / place)
    assert read(run) == ["one", "two"]
    folder.rename(away)
    if is_empty:  # As the directory that a network file system is mounted on.
        folder.mkdir()
    assert read(run) == []
    if restarts:
        run.restart()
        assert read(run) == []
    append(away / "x.log", "three\n")
    if is_empty:
        folder.rmdir()
    away.rename(folder)

    assert read(run) == ["three"]
    append(path, "four\n")
    run.restart()
    assert read(run) == ["four"]


@pytest.mark.parametrize("restarts", [False, True])
def test_unread_lines_of_a_file_that_was_away_are_read_when_it_returns(folder, follow, restarts):
    (folder / "x.log").write_text("one\ntwo\n")
    run = follow(folder)
    run.source.poll()
    run.seal(run.read(Budget(record_count=1, byte_count=100, parallelism=1)))
    folder.rename(folder.parent / "away")
    assert read(run) == []
    if restarts:
        run.restart()
    (folder.parent / "away").rename(folder)

    assert read(run) == ["two"]


def test_directories_that_are_swapped_and_swapped_back_are_each_read_once(folder, follow):
    other, aside = folder.parent / "other", folder.parent / "aside"
    other.mkdir()
    (folder / "x.log").write_text("one\n")
    (other / "x.log").write_text("a longer line\n")
    run = follow(folder)
    found = read(run)
    for _ in range(3):
        folder.rename(aside)
        other.rename(folder)
        aside.rename(other)
        found += read(run)

    assert found == ["one", "a longer line"]


def test_a_directory_restored_from_a_copy_with_its_times_is_read_on(folder, follow):
    (folder / "x.log").write_text("one\n")
    run = follow(folder)
    assert read(run) == ["one"]
    shutil.copytree(folder, folder.parent / "copy")
    shutil.rmtree(folder)
    assert read(run) == []
    (folder.parent / "copy").rename(folder)

    assert read(run) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_new_file_like_one_that_was_removed_is_read(folder, follow, restarts):
    path = folder / "x.log"
    path.write_text("one\n")
    run = follow(folder)
    assert read(run) == ["one"]
    path.unlink()
    assert read(run) == []
    if restarts:
        run.restart()
    path.write_text("one\n")

    assert read(run) == ["one"]


def test_files_that_are_gone_for_long_are_forgotten_but_not_those_of_one_listing(folder, follow):
    away = folder.parent / "away"
    for number in range(_GONE_FILES_MAX + 10):
        (folder / f"{number:05}.log").write_text(f"{number}\n")
    run = follow(folder, epoch_files_max=10_000)
    assert len(read(run)) == _GONE_FILES_MAX + 10
    folder.rename(away)
    assert read(run) == []
    run.restart()
    away.rename(folder)
    (folder / "last.log").write_text("last\n")

    assert read(run) == ["last"]
    for path in folder.glob("0*.log"):
        path.unlink()
    assert read(run) == []
    (folder / "last.log").unlink()
    assert read(run) == []
    assert len(run.source._table.files) == _GONE_FILES_MAX


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("count", range(6))
def test_a_file_that_is_renamed_while_it_is_looked_at_is_read_once(
    folder, follow, opened, count, is_new
):
    path = folder / "x.log"
    path.write_text("one\n")
    run = follow(folder)
    assert read(run) == ["one"]
    append(path, "two\n")

    def rotate():
        path.rename(folder / "x.log.1")
        if is_new:
            path.write_text("of the new file\nand more\n")

    opened.after(count, rotate)
    run.services.clock.advance(1_000)
    run.source.poll()
    if opened.is_due():
        opened.act()
    found = read(run)
    run.restart()

    assert sorted(found) == sorted(["two", *["of the new file", "and more"] * is_new])
    assert read(run) == []


def test_a_bounded_file_that_is_renamed_at_a_restart_is_read_to_its_end(folder, follow, opened):
    path = folder / "x.log"
    path.write_text("one\ntwo\n")
    run = follow(folder, follow=False)
    run.source.poll()
    run.seal(run.read(Budget(record_count=1, byte_count=100, parallelism=1)))
    opened.after(1, lambda: path.rename(folder / "x.log.1"))
    run.restart()

    assert not opened.is_due()
    assert read(run) == ["two"]
