"""Files that grow, rotate, vanish and are cut while they are followed."""

import gzip
import logging
import os
from pathlib import Path

import pytest

from bicycle_runtime.connectors.errors import INPUT_CHANGED, INPUT_MISSING
from bicycle_runtime.contract import Budget
from tests.raising import raises
from tests.unit.connectors.followed import append, read


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_new_files_are_found_in_time_when_the_wall_clock_is_set(folder, follow, jump_ms):
    run = follow(folder)
    (folder / "a.log").write_text("one\n")
    clock = run.services.clock
    clock.set_wall(clock.now_ms() + jump_ms)

    assert not run.source.poll().has_input
    assert read(run) == ["one"]


def test_files_that_were_not_listed_since_the_last_epoch_are_not_idle(folder, follow):
    for name in ("a.log", "b.log"):
        (folder / name).write_text("one\n")
    run = follow(folder)
    epoch = run.read(Budget(record_count=1, byte_count=1 << 20, parallelism=1))
    run.seal(epoch)
    read_shard = epoch.slices[0].shard

    status = run.source.poll()
    assert status.waiting_shards | status.unknown_shards == set(run.source._table.files)
    assert status.unknown_shards == {read_shard}

    run.services.clock.advance(1_000)
    assert run.source.poll().unknown_shards == set()


def test_half_a_line_waits_for_its_newline_without_keeping_the_engine_busy(folder, follow):
    (folder / "a.log").write_text("one\ntw")
    run = follow(folder / "a.log")

    assert read(run) == ["one"]
    assert not run.source.poll().has_input
    append(folder / "a.log", "o")
    assert not run.source.poll().has_input
    append(folder / "a.log", "!\nthree")

    assert read(run) == ["two!"]


def test_new_files_of_a_directory_are_found_and_hidden_or_temporary_ones_are_not(folder, follow):
    run = follow(folder)
    assert read(run) == []
    for name in ("b.log", ".hidden", "c.tmp"):
        (folder / name).write_text(f"{name}\n")

    assert read(run) == ["b.log"]
    (folder / "c.tmp").rename(folder / "c.log")

    assert read(run) == ["c.tmp"]


def test_directories_below_are_read_only_when_asked(folder, follow):
    (folder / "deep").mkdir()
    (folder / "deep" / "a.log").write_text("deep\n")

    assert read(follow(folder)) == []
    assert read(follow(folder, recursive=True)) == ["deep"]


def test_a_directory_is_not_listed_at_every_poll(folder, follow):
    run = follow(folder)
    (folder / "a.log").write_text("one\n")

    assert not run.source.poll().has_input
    run.services.clock.advance(200)
    assert run.source.poll().has_input


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rotated_file_is_read_to_its_end_and_the_new_one_from_its_start(folder, follow, restarts):
    path = folder / "x.log"
    path.write_text("one\ntwo\n")
    run = follow(path)
    assert read(run) == ["one", "two"]
    append(path, "three\n")
    path.rename(folder / "x.log.1")
    append(folder / "x.log.1", "four\n")
    path.write_text("five\n")
    if restarts:
        run.restart()

    assert sorted(read(run)) == ["five", "four", "three"]
    append(path, "six\n")
    if restarts:
        run.restart()

    assert read(run) == ["six"]


def test_rotation_in_a_followed_directory_reads_nothing_twice(folder, follow):
    path = folder / "x.log"
    path.write_text("one\n")
    run = follow(folder)
    assert read(run) == ["one"]
    path.rename(folder / "x.log.1")
    path.write_text("two\n")

    assert read(run) == ["two"]
    (folder / "x.log.1").rename(folder / "x.log.2")
    path.rename(folder / "x.log.1")
    path.write_text("three\n")
    run.restart()

    assert read(run) == ["three"]
    assert read(run) == []


def test_a_file_that_was_cut_is_read_from_its_start_and_that_is_logged(folder, follow, caplog):
    path = folder / "x.log"
    path.write_text("one\ntwo\n")
    run = follow(path)
    assert read(run) == ["one", "two"]

    with caplog.at_level(logging.WARNING):
        path.write_text("new\n")  # Cut in place: the same inode, fewer bytes.
        assert read(run) == ["new"]

    assert "input_file_replaced" in caplog.messages


def test_a_file_that_was_cut_and_grew_past_the_old_place_is_told_by_its_first_bytes(folder, follow):
    path = folder / "x.log"
    path.write_text("one\n")
    run = follow(path)
    assert read(run) == ["one"]
    path.write_text("other text, longer\n")

    assert read(run) == ["other text, longer"]


def test_a_file_rewritten_with_more_lines_goes_on_where_it_was(folder, follow):
    path = folder / "x.log"
    path.write_text("one\n")
    run = follow(path)
    assert read(run) == ["one"]
    (folder / "new").write_text("one\ntwo\n")
    (folder / "new").rename(path)

    assert read(run) == ["two"]


def test_a_file_that_vanished_with_unread_lines_is_logged(folder, follow, caplog):
    path = folder / "x.log"
    path.write_text("one\ntwo\n")
    run = follow(path)
    run.source.poll()
    run.seal(run.read(Budget(record_count=1, byte_count=100, parallelism=1)))
    path.unlink()

    with caplog.at_level(logging.WARNING):
        assert read(run) == []

    assert "input_file_gone" in caplog.messages
    assert not run.source.poll().waiting_shards


def test_rotation_between_planning_and_reading_reads_the_planned_file(folder, follow):
    path = folder / "x.log"
    path.write_text("one\n")
    run = follow(path)
    run.source.poll()
    slices = run.source.plan(Budget(record_count=10, byte_count=100, parallelism=1))
    path.rename(folder / "x.log.1")
    path.write_text("not planned\n")

    assert [list(batch.values) for batch in run.reader.read(slices[0])] == [["one"]]


@pytest.mark.parametrize("is_followed", [True, False])
def test_a_file_that_goes_before_it_is_planned_is_left_to_its_reader(folder, follow, is_followed):
    path = folder / "x.log"
    path.write_text("one\ntwo\n")
    run = follow(path, follow=is_followed)
    run.source.poll()
    path.rename(folder / "x.log.1")
    (part,) = run.source.plan(Budget(record_count=1, byte_count=100, parallelism=1))

    assert [list(batch.values) for batch in run.reader.read(part)] == [["one", "two"]]
    (folder / "x.log.1").unlink()
    with raises(INPUT_CHANGED):
        list(run.reader.read(part))


def test_reading_a_planned_file_that_is_gone_is_an_error_that_names_it(folder, follow):
    path = folder / "x.log"
    path.write_text("one\n")
    run = follow(path)
    run.source.poll()
    slices = run.source.plan(Budget(record_count=10, byte_count=100, parallelism=1))
    path.unlink()

    with raises(INPUT_CHANGED) as caught:
        list(run.reader.read(slices[0]))

    assert caught.value.facts["path"] == str(path)


def test_a_place_is_told_by_line_wherever_the_file_is_and_by_byte_when_it_is_gone(folder, follow):
    path, older = folder / "x.log", folder / "x.log.1"
    path.write_text("one\ntwo\n")
    run = follow(path)
    read(run)
    assert run.source.describe(str(path), 4) == f"{path} line 2"
    path.rename(older)
    path.write_text("new\n")
    assert run.source.describe(str(path), 4) == f"{older} line 2"
    path.unlink()
    older.unlink()

    assert run.source.describe(str(path), 4) == f"{path} byte 4"


def test_a_busy_file_does_not_starve_the_others(folder, follow):
    (folder / "a.log").write_text("a\n" * 100)
    (folder / "b.log").write_text("b\n")
    run = follow(folder)
    budget = Budget(record_count=10, byte_count=1_000, parallelism=1)
    run.source.poll()
    run.seal(run.read(budget))
    run.source.poll()

    assert run.read(budget).values[0] == "b"


def test_an_open_quote_of_a_followed_csv_file_waits_for_its_end(folder, follow):
    path = folder / "x.csv"
    path.write_text('id,text\n1,"one"\n2,"two\n')
    run = follow(path, word="csv")

    assert read(run) == [{"id": "1", "text": "one"}]
    assert not run.source.poll().has_input
    append(path, 'lines"\n')

    assert read(run) == [{"id": "2", "text": "two\nlines"}]


def test_an_open_quote_before_more_lines_than_an_epoch_takes_waits_for_its_end(folder, follow):
    path = folder / "x.csv"
    path.write_text('a,b\n1,"x\n' + "line\n" * 1_000)
    run = follow(path, word="csv")
    run.source.poll()
    run.seal(run.read(Budget(record_count=100, byte_count=1 << 20, parallelism=1)))

    assert not run.source.poll().has_input
    append(path, '"\n')

    assert read(run) == [{"a": "1", "b": "x\n" + "line\n" * 1_000}]


@pytest.mark.parametrize("name", ["nothing.txt", "*.txt"])
def test_missing_bounded_input_is_refused_with_its_path(folder, follow, name):
    with raises(INPUT_MISSING) as caught:
        follow(folder / name, follow=False)

    assert caught.value.facts["path"] == str(folder / name)


@pytest.mark.parametrize("name", ["later.txt", "*.txt"])
def test_followed_input_may_appear_later(folder, follow, name):
    run = follow(folder / name)
    assert read(run) == []
    (folder / "later.txt").write_text("one\n")

    assert read(run) == ["one"]


def test_followed_input_below_a_missing_directory_is_refused(folder, follow):
    with raises(INPUT_MISSING):
        follow(folder / "no such directory" / "x.txt")


def test_an_empty_directory_is_input_without_records(folder, follow):
    run = follow(folder, follow=False)

    assert run.source.poll().is_finished


def test_bounded_input_that_changed_between_two_runs_is_refused(folder, follow):
    path = folder / "x.txt"
    path.write_text("one\ntwo\n")
    run = follow(path, follow=False)
    run.source.poll()
    run.seal(run.read(Budget(record_count=1, byte_count=100, parallelism=1)))
    path.write_text("something else\n")

    with raises(INPUT_CHANGED) as caught:
        run.restart()

    assert caught.value.facts["offset"] == 4


def test_bounded_input_that_grew_is_read_as_it_was_at_start(folder, follow):
    path = folder / "x.txt"
    path.write_text("one\ntwo")
    run = follow(path, follow=False)
    append(path, "!\nthree\n")

    assert read(run) == ["one", "two"]


def test_a_file_overwritten_with_as_many_bytes_is_a_new_file(folder, follow):
    path = folder / "x.log"
    path.write_text("one\n")
    run = follow(path)
    assert read(run) == ["one"]
    path.write_text("two\n")
    os.utime(path, ns=(1, 1))  # Another time than before, however coarse the clock of the disk is.

    assert read(run) == ["two"]


def test_a_symbolic_link_beside_its_target_is_not_read_twice(folder, follow):
    (folder / "a.log").write_text("one\n")
    (folder / "latest.log").symlink_to(folder / "a.log")

    assert read(follow(folder)) == ["one"]
    assert read(follow(folder / "*.log")) == ["one"]


def test_a_compressed_file_that_got_another_member_is_read_on(folder, follow):
    path = folder / "x.gz"
    path.write_bytes(gzip.compress(b"one\n"))
    run = follow(folder)
    assert read(run) == ["one"]
    assert read(run) == []
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))

    assert read(run) == ["two"]


def test_something_that_is_no_file_is_refused(folder, follow):
    os.mkfifo(folder / "pipe")

    with raises(INPUT_MISSING) as caught:
        follow(folder / "pipe", follow=False)

    assert caught.value.facts["problem"] == "is not a regular file"


def test_one_epoch_reads_a_bounded_number_of_files(folder, follow):
    for number in range(5):
        (folder / f"{number}.log").write_text(f"{number}\n")
    run = follow(folder, follow=False, epoch_files_max=2)

    assert [epoch.values for epoch in run.drain()] == [["0", "1"], ["2", "3"], ["4"]]


@pytest.mark.parametrize("pattern", ["", "*", "**"])
@pytest.mark.parametrize("is_followed", [True, False])
def test_links_that_lead_to_themselves_are_told_once_and_skipped(
    folder, follow, caplog, pattern, is_followed
):
    (folder / "deep").mkdir()
    (folder / "a.log").write_text("one\n")
    (folder / "self.log").symlink_to(folder / "self.log")
    (folder / "x.log").symlink_to(folder / "y.log")
    (folder / "y.log").symlink_to(folder / "x.log")
    (folder / "deep" / "up").symlink_to(folder)
    with caplog.at_level(logging.WARNING):
        run = follow(folder / pattern, follow=is_followed, recursive=pattern == "")
        assert read(run) == ["one"]
        append(folder / "a.log", "two\n")
        (folder / "b.log").symlink_to(folder / "b.log")
        assert read(run) == (["two"] if is_followed else [])
        assert read(run) == []
    skipped = [vars(record)["bicycle_fields"]["path"] for record in caplog.records]
    assert len(skipped) == len(set(skipped))
    assert str(folder / "self.log") in skipped
    assert (str(folder / "b.log") in skipped) is is_followed


@pytest.mark.parametrize("is_followed", [True, False])
def test_a_name_that_is_not_utf_8_is_told_once_and_skipped(folder, follow, caplog, is_followed):
    (folder / "a.log").write_text("one\n")
    strange = os.fsdecode(os.fsencode(folder) + b"/caf\xe9.log")
    Path(strange).write_text("no\n")
    with caplog.at_level(logging.WARNING):
        run = follow(folder, follow=is_followed)
        assert read(run) == ["one"]
        assert read(run) == []
    assert caplog.messages == ["input_file_skipped"]
    assert vars(caplog.records[0])["bicycle_fields"]["path"].endswith("/caf\\xe9.log")


def test_a_file_that_gets_a_name_that_is_not_utf_8_is_gone(folder, follow, caplog):
    (folder / "a.log").write_text("one\n")
    run = follow(folder)
    assert read(run) == ["one"]
    (folder / "a.log").rename(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.log"))

    assert read(run) == []
    run.restart()
    assert read(run) == []
    assert "input_file_skipped" in caplog.messages
