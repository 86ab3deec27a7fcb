"""The journal of a job: written without haste, read on over a change of files."""

import random

import msgspec

from bicycle_runtime.jobs.journal import EpochLine, JournalTail, LineJournal, recent_lines


def line(epoch, **fields):
    return EpochLine(epoch=epoch, **{"began_ms": 10 * epoch, "sealed_ms": 10 * epoch + 9, **fields})


def test_epochs_that_come_fast_become_one_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    tail, book = JournalTail(path), LineJournal(path, job="job")
    for epoch in range(1, 5):
        book.take(line(epoch, phases_ms={"run": 1.0}, records=2), now_s=epoch / 10)
    book.take(line(5, phases_ms={"run": 1.0, "seal": 4.0}, state_bytes=7), now_s=0.7)
    book.flush()

    first, rest = tail.read()
    assert (first.epoch, first.count) == (1, 1)
    assert (rest.epoch, rest.count, rest.records, rest.state_bytes) == (5, 4, 6, 7)
    assert (rest.began_ms, rest.sealed_ms) == (20, 59)
    assert rest.phases_ms == {"run": 4.0, "seal": 4.0}
    assert tail.read() == []


def test_no_epoch_is_lost_or_read_twice_while_files_change(tmp_path):
    path = tmp_path / "journal.jsonl"
    tail, seen = JournalTail(path, is_whole=True), []
    book = LineJournal(path, job="job", bytes_max=500)
    source = random.Random(7)
    for epoch in range(1, 200):
        book.take(line(epoch), now_s=float(epoch))
        if source.random() < 0.4:
            seen += tail.read()
    seen += tail.read()

    assert [each.epoch for each in seen] == list(range(1, 200))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1_200


def test_the_last_lines_are_read_over_a_change_of_files(tmp_path):
    path = tmp_path / "journal.jsonl"
    book = LineJournal(path, job="job", bytes_max=500)
    assert recent_lines(path) == []
    for epoch in range(1, 40):
        book.take(line(epoch), now_s=float(epoch))
        found = [each.epoch for each in recent_lines(path)]
        assert found == list(range(epoch + 1 - len(found), epoch + 1))
        assert len(found) >= min(epoch, 8)


def test_a_line_is_read_when_it_is_whole_and_junk_hides_no_other(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"junk\n")
    tail, other = JournalTail(path), JournalTail(path, is_whole=True)
    text = msgspec.json.encode(line(3))
    with path.open("ab") as stream:
        stream.write(text[:9])
        stream.flush()
        assert tail.read() == []
        stream.write(text[9:] + b"\n")

    assert [each.epoch for each in tail.read()] == [3]
    assert [each.epoch for each in other.read()] == [3]


def test_a_disk_that_takes_nothing_ends_no_job(tmp_path):
    book = LineJournal(tmp_path / "nowhere" / "journal.jsonl", job="job")

    book.take(line(1), now_s=1.0)
    book.take(line(2), now_s=2.0)

    assert JournalTail(tmp_path / "nowhere" / "journal.jsonl").read() == []
