"""Files that a rotation copies and empties (``copytruncate``) while they are followed."""

import shutil

import pytest

from bicycle_runtime.connectors.errors import INPUT_CHANGED
from bicycle_runtime.contract import Budget
from tests.raising import raises
from tests.unit.connectors.followed import append, read


def copy_and_empty(path, copied, *, between=lambda: None, then=""):
    """Do what logrotate does with ``copytruncate``."""
    shutil.copyfile(path, copied)
    between()
    with path.open("r+") as stream:
        stream.truncate()
    append(path, then)


@pytest.mark.parametrize("name", ["x.log.1", "x.log-20260301", "x-20260301.log"])
@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("is_read_up", [True, False])
@pytest.mark.parametrize("then", ["", "six\n", "another line\n" * 100])
def test_a_copy_that_a_rotation_makes_is_not_read_again(
    folder, follow, name, is_seen, is_read_up, then
):
    path = folder / "x.log"
    path.write_text("one\ntwo\n")
    run = follow(folder)
    assert read(run) == ["one", "two"]
    append(path, "three\n")
    expected = ["three"]
    if is_read_up:
        assert read(run) == expected
        expected = []

    found = []
    between = (lambda: found.extend(read(run))) if is_seen else lambda: None
    copy_and_empty(path, folder / name, between=between, then=then)
    found += read(run)

    assert sorted(found) == sorted(expected + then.split("\n")[:-1])
    run.restart()
    append(path, "seven\n")
    assert read(run) == ["seven"]


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_file_that_is_emptied_while_it_is_read_is_read_on_in_its_copy(folder, follow, is_begun):
    path, lines = folder / "x.log", [f"line {number:06}" for number in range(60_000)]
    path.write_text("".join(f"{line}\n" for line in lines))
    run = follow(folder)
    epoch = run.read(Budget(record_count=10, byte_count=1 << 20, parallelism=1))
    run.seal(epoch)
    run.source.poll()
    part, *_ = run.source.plan(Budget(record_count=10**6, byte_count=1 << 30, parallelism=1))
    batches = run.reader.read(part)
    if is_begun:
        next(batches)

    copy_and_empty(path, folder / "x.log.1")
    with raises(INPUT_CHANGED):
        list(batches)
    run.restart()
    assert [*epoch.values, *read(run)] == lines


def test_copies_are_rotated_on_and_nothing_is_read_twice(folder, follow):
    path = folder / "x.log"
    path.write_text("")
    run = follow(folder)
    found = []
    for number in range(5):
        append(path, f"{number} a\n{number} b\n")
        found += read(run) if number % 2 else []
        append(path, f"{number} c\n")
        for older in range(number, 0, -1):
            (folder / f"x.log.{older}").rename(folder / f"x.log.{older + 1}")
        copy_and_empty(path, folder / "x.log.1")
        found += read(run)
        if number == 3:
            run.restart()

    assert sorted(found) == [f"{number} {word}" for number in range(5) for word in "abc"]


def test_a_rotation_while_the_job_is_down_reads_the_rest_of_the_copy(folder, follow):
    path = folder / "x.log"
    path.write_text("one\n")
    run = follow(folder)
    assert read(run) == ["one"]
    append(path, "two\n")
    copy_and_empty(path, folder / "x.log.1", then="three\n")
    run.restart()

    assert sorted(read(run)) == ["three", "two"]


def test_a_file_that_is_no_copy_is_read_whatever_its_name(folder, follow):
    (folder / "x.log").write_text("one\n")
    run = follow(folder)
    assert read(run) == ["one"]
    (folder / "x.log.1").write_text("two\n")
    (folder / "y.log").write_text("one\n")

    assert sorted(read(run)) == ["one", "two"]


def test_a_copy_whose_original_stays_is_a_file_by_itself_after_a_while(folder, follow):
    (folder / "x.log").write_text("one\n")
    run = follow(folder)
    assert read(run) == ["one"]
    shutil.copyfile(folder / "x.log", folder / "x.log.1")

    assert read(run) == []
    run.services.clock.advance(10_000)
    assert read(run) == ["one"]


def test_a_file_that_may_be_a_copy_holds_event_time_back_until_that_is_known(folder, follow):
    path, copied = folder / "x.log", folder / "x.log.1"
    path.write_text("one\n" * 100)
    run = follow(folder)
    assert read(run) == ["one"] * 100
    shutil.copyfile(path, copied)
    run.services.clock.advance(1_000)
    assert run.source.poll().unknown_shards == {str(copied)}

    append(path, "two\n")
    assert read(run) == ["two"]
    assert str(copied) in run.source.poll().unknown_shards
    run.services.clock.advance(10_000)
    status = run.source.poll()
    assert status.waiting_shards == {str(copied)}
    assert not status.unknown_shards


def test_a_copy_whose_original_was_emptied_holds_nothing_back(folder, follow):
    path = folder / "x.log"
    path.write_text("one\n")
    run = follow(folder)
    assert read(run) == ["one"]
    shutil.copyfile(path, folder / "x.log.1")
    run.services.clock.advance(1_000)
    assert run.source.poll().unknown_shards
    path.write_text("")
    run.services.clock.advance(1_000)

    assert not run.source.poll().unknown_shards
