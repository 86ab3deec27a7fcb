"""Parts: when they roll, how they are named, and every crash window of publishing one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.connectors.errors import (
    OPEN_PART_DAMAGED,
    OUTPUT_TAKEN_OVER,
    OUTPUT_UNWRITABLE,
    PART_GONE,
    STAGED_FILE_DAMAGED,
)
from bicycle_runtime.connectors.files.parts import OpenPart
from bicycle_runtime.connectors.files.sink import PartDraft, SinkState
from bicycle_runtime.connectors.staging import StagedWriter
from bicycle_runtime.contract import StagedFile, WriterTask
from bicycle_runtime.testing.connectors.running import services_in
from tests.raising import raises
from tests.unit.connectors.file_parts import parts


def test_small_epochs_become_one_part_when_it_is_old_enough(sink, out):
    run = sink(roll_ms=1_000)
    assert run.sink.deadline_ms() is None
    run.run_epoch([[1]])
    due_ms = run.sink.deadline_ms()
    assert due_ms == run.services.clock.now_ms() + 1_000
    run.services.clock.advance(999)
    run.run_epoch([[2]])
    assert parts(out) == []
    run.services.clock.advance(1)
    run.run_epoch([])

    assert parts(out) == ["1\n2\n"]
    assert run.sink.deadline_ms() is None


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_the_age_of_a_part_does_not_follow_a_wall_clock_that_is_set(sink, out, jump_ms):
    run = sink(roll_ms=1_000)
    clock = run.services.clock
    run.run_epoch([[1]])
    clock.set_wall(clock.now_ms() + jump_ms)
    clock.advance(600)
    run.run_epoch([[2]])
    assert (parts(out), run.sink.deadline_ms()) == ([], clock.now_ms() + 400)
    clock.advance(400)
    run.run_epoch([])

    assert parts(out) == ["1\n2\n"]


def test_a_part_that_seems_to_come_from_the_future_is_complete_in_time(sink, out):
    run = sink(roll_ms=1_000)
    clock = run.services.clock
    run.run_epoch([[1]])
    clock.set_wall(clock.now_ms() - 3_600_000)
    run.restart()
    clock.advance(1_000)
    run.run_epoch([])

    assert parts(out) == ["1\n"]


def test_the_age_of_a_part_counts_from_its_first_record_also_over_restarts(sink, out):
    run = sink(roll_ms=1_000)
    run.run_epoch([[1]])
    due_ms = run.sink.deadline_ms()
    run.services.clock.advance(700)
    run.restart()

    assert run.sink.deadline_ms() == due_ms
    run.services.clock.advance(300)
    run.run_epoch([[2]])
    assert parts(out) == ["1\n2\n"]


def test_a_part_is_complete_when_it_is_large_enough(sink, out):
    run = sink(roll_bytes=4)
    for number in range(5):
        run.run_epoch([[number]])

    assert parts(out) == ["0\n1\n", "2\n3\n"]
    run.run_epoch([], is_last=True)
    assert parts(out) == ["0\n1\n", "2\n3\n", "4\n"]


def test_a_large_staged_file_is_a_part_by_itself_and_order_is_kept(sink, out):
    run = sink(roll_bytes=10)
    run.run_epoch([["a"]])
    run.run_epoch([["a long record"]])
    run.run_epoch([["b"]], is_last=True)

    assert parts(out) == ['"a"\n', '"a long record"\n', '"b"\n']


def test_names_hold_epoch_number_and_run(sink, out):
    sink().run_epoch([[1]], is_last=True)

    (path,) = out.glob("part-*")
    word, epoch, number, run = path.stem.split("-")
    assert (word, epoch, number, len(run)) == ("part", "0000000000", "0000", 6)


def test_two_jobs_may_share_a_directory(sink, out, tmp_path):
    for name in ("first", "second"):
        run = sink(services=services_in(tmp_path / name))
        run.run_epoch([[name]], is_last=True)

    assert sorted(parts(out)) == ['"first"\n', '"second"\n']


def test_a_new_job_over_a_removed_checkpoint_directory_does_not_touch_old_parts(sink, out):
    sink().run_epoch([["old"]], is_last=True)
    sink().run_epoch([["new"]], is_last=True)

    assert sorted(parts(out)) == ['"new"\n', '"old"\n']


def test_an_output_that_is_a_file_is_refused_at_start(sink, tmp_path):
    (tmp_path / "file").write_text("x")

    with raises(OUTPUT_UNWRITABLE) as caught:
        sink(folder=tmp_path / "file")

    assert caught.value.facts["path"] == str(tmp_path / "file")


def test_a_damaged_staged_file_is_not_published(sink, out):
    run = sink()
    run.seal([[1, 2, 3]], is_last=True)
    path = run.state["plans"][0]["files"][0]["path"]
    run.services.storage.write(path, b"9\n8\n7\n")

    with raises(STAGED_FILE_DAMAGED) as caught:
        run.publish()

    assert caught.value.facts["path"] == path
    assert parts(out) == []


def test_an_open_part_that_lost_bytes_is_an_error(sink):
    run = sink()
    run.run_epoch([[1]])
    run.seal([[2]])
    path = run.state["plans"][0]["path"]
    run.services.storage.write(path, b"")

    with raises(OPEN_PART_DAMAGED) as caught:
        run.publish()

    assert caught.value.facts["byte_count"] == 2


# Crash windows of publishing, made by hand; the contract suite also kills at every line.
#   sealed │ half appended │ appended │ renamed │ staged files collected


@pytest.fixture
def sealed(sink):
    """A run with an open part "1", and an epoch sealed that appends "2" and completes the part."""
    run = sink()
    run.run_epoch([[1]])
    run.seal([[2]], is_last=True)
    plan = run.state["plans"][0]
    assert (plan["start"], plan["end"], plan["path"]) == (2, 4, "connectors/v/open/0.jsonl")
    return run, run.services.storage.local_path(plan["path"])


@pytest.mark.parametrize("torn", [b"1\n", b"1\n2", b"1\n2\n", b"1\n2\ngarbage of a crash"])
def test_whatever_was_appended_before_the_crash_is_appended_once(sealed, out, torn):
    run, open_part = sealed
    open_part.write_bytes(torn)
    run.restart()

    assert parts(out) == ["1\n2\n"]
    assert not open_part.exists()


def test_a_part_that_was_already_renamed_is_left_alone(sealed, out):
    run, open_part = sealed
    run.publish()
    assert not open_part.exists()
    run.restart()

    assert parts(out) == ["1\n2\n"]


@pytest.mark.parametrize("is_appended", [True, False])
def test_a_part_that_a_consumer_moved_early_does_not_block_the_job_for_good(sink, out, is_appended):
    run = sink()
    if is_appended:
        run.run_epoch([[1]])
    run.seal([[2]], is_last=True)
    run.publish()
    (part,) = out.glob("part-*")
    part.unlink()
    for _ in range(2):
        with raises(PART_GONE) as caught:
            run.restart()
    assert caught.value.facts["path"] == str(part)
    Path(caught.value.facts["path"]).write_bytes(b"")
    run.restart()
    run.run_epoch([[3]], is_last=True)

    assert parts(out) == ["", "3\n"]


def test_a_copy_left_behind_by_a_rename_across_file_systems_is_removed(sealed, out):
    run, open_part = sealed
    run.publish()
    open_part.write_bytes(b"1\n2\n")
    (out / ".tmp-part").write_bytes(b"")
    run.restart()
    (out / ".tmp-part").unlink()

    assert parts(out) == ["1\n2\n"]
    assert not open_part.exists()


def test_a_staged_file_that_became_a_part_may_be_gone(sink, out):
    run = sink(roll_bytes=1)
    run.run_epoch([[1]])
    assert run.services.storage.list("staged") == []
    run.restart()

    assert parts(out) == ["1\n"]


def test_appended_staged_files_may_be_collected_once_published(sink, out):
    run = sink()
    run.run_epoch([[1]])
    run.services.storage.delete_tree("staged")
    run.restart()
    run.run_epoch([[2]], is_last=True)

    assert parts(out) == ["1\n2\n"]


def test_a_staged_file_that_is_gone_before_it_was_published_is_an_error(sink):
    run = sink()
    run.seal([[1]], is_last=True)
    run.services.storage.delete_tree("staged")

    with raises(PART_GONE):
        run.publish()


@pytest.mark.parametrize("roll_bytes", [1, 4, 1 << 20])
def test_parts_of_an_epoch_whose_manifest_was_lost_are_withdrawn_and_made_again(
    sink, out, caplog, roll_bytes
):
    run = sink(roll_bytes=roll_bytes)
    for number in range(3):
        run.run_epoch([[number]])
    state, epoch, before = run.state, run.epoch, parts(out)
    for number in (3, 4):
        run.run_epoch([[number]], is_last=number == 4)
    at_end = parts(out)

    run.state, run.epoch = state, epoch  # The engine fell back to an older manifest.
    run.restart()

    assert parts(out) == before
    assert "part_withdrawn" in caplog.messages
    for number in (3, 4):
        run.run_epoch([[number]], is_last=number == 4)
    assert parts(out) == at_end


def test_storage_that_cannot_append_holds_staged_files_until_their_part_is_complete(
    sink, out, tmp_path
):
    services = services_in(tmp_path)
    remote = open_storage(f"memory://bucket/{tmp_path.name}")
    object.__setattr__(services, "storage", remote)
    run = sink(services=services)
    for number in range(3):
        run.run_epoch([[number]])
    assert parts(out) == []
    assert run.sink.referenced_paths(run.state) == set(remote.list("staged"))
    run.restart()
    run.run_epoch([[3]], is_last=True)
    run.publish()

    assert parts(out) == ["0\n1\n2\n3\n"]


@given(
    sizes=st.lists(st.lists(st.integers(1, 30), max_size=3), max_size=8),
    roll_bytes=st.integers(1, 60),
    is_appending=st.booleans(),
)
def test_every_staged_byte_goes_into_exactly_one_part_in_order(sizes, roll_bytes, is_appending):
    state = SinkState()
    staged, placed, open_sizes, closed = [], [], {}, []
    for epoch, epoch_sizes in enumerate([*sizes, []]):
        draft = PartDraft(
            name_form="{number}",
            path_form="open-{number}",
            is_appending=is_appending,
            roll_bytes=roll_bytes,
            state=state,
        )
        for subtask, size in enumerate(epoch_sizes):
            file = StagedFile(
                path=f"{epoch}/{subtask}",
                record_count=1,
                byte_count=size,
                crc32=0,
                subtask=subtask,
            )
            staged.append(file.path)
            draft.add(file, 0)
        if epoch == len(sizes):
            draft.close()
        for plan in draft.plans():
            placed += [file.path for file in plan.files]
            assert plan.start == open_sizes.pop(plan.path, 0)
            assert plan.end - plan.start == sum(file.byte_count for file in plan.files)
            if plan.name is None:
                open_sizes[plan.path] = plan.end
            else:
                closed.append(int(plan.name))
        state = draft.state

    assert placed == staged
    assert not open_sizes
    assert closed == sorted(set(closed))


def test_a_batch_is_encoded_once(sink):
    batches = []

    def encode(values):
        batches.append(values)
        return b"".join(b"%d\n" % value for value in values)

    task = WriterTask(storage=sink().services.storage, prefix="staged/x", epoch=0, subtask=0)
    writer = StagedWriter(task, "numbers", encode)
    writer.write(writer.prepare([1, 2], None))
    writer.write([3])

    assert (batches, writer.finish()[0].record_count) == ([[1, 2], [3]], 3)


def test_text_files_hold_strings_as_they_are_and_others_as_json(sink, out):
    run = sink("text_file")
    run.run_epoch([['say "hi"', "ä"], [{"a": 1}, (1, 2), 3]], is_last=True)

    assert parts(out) == ['say "hi"\nä\n{"a":1}\n[1,2]\n3\n']


def test_memos_stay_small_while_a_part_grows(sink):
    run = sink(roll_ms=86_400_000)
    for number in range(50):
        run.run_epoch([[number]])

    assert len(json.dumps(run.state)) < 1_000


def test_the_output_directory_may_be_relative(tmp_path, monkeypatch, sink):
    monkeypatch.chdir(tmp_path)
    run = sink(folder=Path("results/today"))
    monkeypatch.chdir("/")
    run.run_epoch([[1]], is_last=True)

    assert parts(tmp_path / "results" / "today") == ["1\n"]


def test_local_storage_is_what_open_storage_gives_for_paths(tmp_path):
    assert isinstance(open_storage(str(tmp_path)), LocalStorage)


def test_a_run_that_was_replaced_may_not_publish_any_more(sink, out):
    run = sink(roll_bytes=1)
    run.seal([[1]])
    old = run.sink
    run.lose()

    with raises(OUTPUT_TAKEN_OVER) as caught:
        old.publish(run.epoch, run.state)

    [mark] = out.glob(".owner-*")
    facts = {"vertex": "v", "path": str(out), "epoch": 0, "mark": mark.name}
    assert caught.value.facts == facts
    assert parts(out) == ["1\n"]


@pytest.mark.parametrize("word", ["jsonl_file", "csv_file"])
@pytest.mark.parametrize("is_leaving", [True, False], ids=["to a URL", "to a disk"])
def test_an_open_part_goes_along_to_storage_of_another_kind(sink, out, tmp_path, word, is_leaving):
    disk, remote = services_in(tmp_path), open_storage(f"memory://moved/{tmp_path.name}")
    far = replace(services_in(tmp_path), storage=remote)
    first, second = (disk, far) if is_leaving else (far, disk)
    rows = [{"a": number} for number in range(6)]
    run = sink(word, services=first, record_type=dict)
    run.run_epoch([rows[:1], rows[1:2]])
    run.run_epoch([rows[2:3]])
    run.sink.stop()
    for path in first.storage.list(""):
        second.storage.write(path, first.storage.read(path))
    if is_leaving:
        [part] = remote.list("connectors/v/open")
        remote.write(part, remote.read(part) + b"never sealed")

    moved = replace(run, services=second, is_sealed=False)
    moved.start()
    moved.restart()  # It died before it sealed anything, and finds the same state.
    moved.run_epoch([rows[3:4]])
    moved.restart()
    moved.run_epoch([rows[4:]], is_last=True)

    [text] = parts(out)
    header = "a\n" if word == "csv_file" else ""
    shown = ["%d" if word == "csv_file" else '{"a":%d}'] * 6
    assert text == header + "".join(form % n + "\n" for n, form in enumerate(shown))


def test_results_are_visible_within_ten_seconds_and_make_few_files(sink, out):
    run = sink()
    for second in range(60):
        run.run_epoch([[second]])
        seen = len("".join(parts(out)).split())
        assert seen >= second - 9
        run.services.clock.advance(1_000)
    assert len(parts(out)) <= 8


def test_what_is_sealed_and_not_visible_is_told_also_after_a_restart(sink, out):
    run = sink()
    assert run.sink.waiting() is None
    run.run_epoch([[1, 22]])
    run.restart()
    run.run_epoch([[333]])
    told = run.sink.waiting()
    assert (told.record_count, told.byte_count) == (3, len("1\n22\n333\n"))
    assert told.visible_ms == run.sink.deadline_ms()
    run.run_epoch([], is_last=True)
    assert run.sink.waiting() is None
    assert parts(out) == ["1\n22\n333\n"]


def test_an_open_part_of_an_older_version_is_read_without_its_number_of_records():
    part = OpenPart(path="p", byte_count=3, since_ms=5, header="", record_count=2)
    data = part.to_json()
    assert OpenPart.from_json(data) == part
    del data["records"]
    assert OpenPart.from_json(data).record_count == 0
