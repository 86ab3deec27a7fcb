import json
import logging
from dataclasses import replace

import pytest
from msgspec.structs import replace as replaced

from bicycle_runtime.contract import Lag, total_lag
from bicycle_runtime.engine.epoch.stats import Unread
from bicycle_runtime.jobs.errors import StatusFormatError
from bicycle_runtime.jobs.home import JobFolder
from bicycle_runtime.jobs.running.progress import JobProgress
from bicycle_runtime.jobs.running.timings import Rate
from bicycle_runtime.jobs.status import (
    JobState,
    JobStatus,
    OperatorStatus,
    ShardLag,
    read_status,
    write_status,
)
from bicycle_runtime.operators.heartbeats import LastPosition
from bicycle_runtime.operators.metrics import OperatorCounts
from bicycle_sdk.clock import ManualClock
from tests.unit.jobs.job_samples import stats_of, status_of


@pytest.fixture
def clock():
    return ManualClock(1_000)


@pytest.fixture
def folder(tmp_path):
    return JobFolder(tmp_path)


@pytest.fixture
def seen():
    return []


@pytest.fixture
def progress(clock, folder, seen):
    status = status_of(state=JobState.CREATED)
    return JobProgress(
        status, folder=folder, clock=clock, listener=lambda status: seen.append(status.epoch)
    )


def test_a_status_is_read_back_as_it_was_written(tmp_path):
    status = status_of(
        operators={"a": OperatorStatus(records_in=3)}, error={"code": "x"}, lag_bytes=4
    )
    write_status(tmp_path / "status.json", status)

    assert read_status(tmp_path / "status.json") == status
    assert list(tmp_path.iterdir()) == [tmp_path / "status.json"]
    written = json.loads((tmp_path / "status.json").read_text())
    assert written == {"format_version": 1, **status.to_json()}


def test_there_may_be_no_status_but_a_damaged_one_is_an_error(tmp_path):
    assert read_status(tmp_path / "none") is None
    (tmp_path / "cut").write_text('{"id": "a"')

    with pytest.raises(StatusFormatError):
        read_status(tmp_path / "cut")


def test_states_that_end_a_run():
    assert {state.value for state in JobState if state.is_final} == {
        *("FINISHED", "STOPPED", "SUSPENDED", "PAUSED", "FAILED", "CANCELED")
    }


def test_a_change_of_state_is_written_at_once_and_epochs_at_most_twice_a_second(
    progress, folder, clock
):
    progress.enter(JobState.RUNNING)
    progress.take_epoch(stats_of(1))
    assert (folder.status().epoch, folder.status().has_begun) == (1, True)
    progress.take_epoch(stats_of(2))
    assert folder.status().epoch == 1

    clock.advance(500)
    progress.take_epoch(stats_of(3))
    assert folder.status().epoch == 3

    progress.take_epoch(stats_of(4))
    progress.enter(JobState.FINISHED)
    written = folder.status()
    assert (written.epoch, written.state, written.ended_ms) == (4, JobState.FINISHED, 1_500)
    assert written.running_ms == 1_000


def test_a_stop_of_a_run_that_was_requested_to_pause_is_a_pause(progress, folder):
    progress.enter(JobState.RUNNING)
    folder.pause(folder.status())
    progress.enter_stopping()
    progress.enter(JobState.STOPPED)

    assert (folder.status().state, folder.status().ended_ms) == (JobState.PAUSED, 1_000)


def test_the_listener_sees_every_epoch_and_change(progress, seen):
    progress.enter(JobState.RUNNING)
    progress.take_epoch(stats_of(1))
    progress.take_epoch(stats_of(2))
    progress.take_idle(None)

    assert seen == [0, 1, 2, 2]


def test_counts_of_epochs_and_operators_add_up(progress):
    counts = {"f": OperatorCounts(records_in=5, records_out=4, failed=1, retried=2)}
    progress.take_epoch(stats_of(1, counts=counts))
    progress.take_epoch(stats_of(2, counts=counts))

    status = progress.status
    assert (status.record_count, status.event_count, status.epoch_count) == (20, 20, 2)
    assert status.operators["f"] == OperatorStatus(
        records_in=10, records_out=8, failed=2, retried=4
    )


def test_a_blocked_event_loop_is_logged_once_for_an_operator(progress, caplog):
    for place, blocked_ms in (("a.py:3 in get", 900), ("a.py:9 in put", 700)):
        counts = OperatorCounts(blocked=2, blocked_ms=blocked_ms, blocked_at=place)
        progress.take_epoch(stats_of(epoch=1, counts={"lookup": counts}))

    logged = [record for record in caplog.records if record.message == "event_loop_blocked"]
    assert [record.bicycle_fields["location"] for record in logged] == ["a.py:3 in get"]
    found = progress.status.operators["lookup"]
    assert (found.blocked, found.blocked_ms, found.blocked_at) == (4, 900, "a.py:9 in put")


def test_workers_that_ended_are_counted_and_logged_and_the_latest_are_kept(
    progress, folder, caplog
):
    gone = LastPosition(
        run_id="run", epoch=4, level=0, subtask=1, operator="parse", code=-9, pid=71,
        peak_bytes=5_000_000,
    )  # fmt: skip
    progress.take_ended_workers([])
    progress.take_ended_workers([gone])
    progress.take_ended_workers([replaced(gone, pid=pid, code=3) for pid in range(100, 130)])

    [first, *_] = [log for log in caplog.records if log.message == "worker_ended"]
    assert first.levelno == logging.WARNING
    fields = first.bicycle_fields
    assert (fields["pid"], fields["how"], fields["peak_bytes"], fields["operator"]) == (
        71, "signal 9 (SIGKILL)", 5_000_000, "parse",
    )  # fmt: skip
    status = read_status(folder.status_path)
    assert status.ended_worker_count == 31
    assert [end.pid for end in status.ended_workers] == list(range(110, 130))
    assert status.ended_workers[-1].how == "exit code 3"


def test_lag_is_what_the_sources_say_and_unknown_stays_unknown(progress):
    progress.take_epoch(stats_of(1, unread=Unread(lag=Lag(byte_count=70))))
    assert (progress.status.lag_records, progress.status.lag_bytes) == (None, 70)

    progress.take_epoch(stats_of(2, record_count=0, unread=None))
    progress.take_idle(None)
    assert progress.status.lag_bytes == 70

    progress.take_idle(Unread(lag=Lag(byte_count=0)))
    assert (progress.status.lag_records, progress.status.lag_bytes) == (None, 0)


BEHIND, NOTHING = Lag(record_count=7, age_ms=900), Lag(record_count=0, age_ms=0)


def test_a_publication_is_shown_until_it_ends_or_the_job_restarts(progress, clock, folder):
    progress.enter(JobState.RUNNING)
    progress.take_publishing(3, "out")
    clock.advance(5_000)
    progress.look()

    shown = read_status(folder.status_path).publication
    assert (shown.epoch, shown.sink, shown.since_ms) == (3, "out", 1_000)
    progress.take_publishing(3, None)
    assert progress.status.publication is None
    progress.take_publishing(4, "out")
    progress.enter(JobState.RESTARTING)
    assert read_status(folder.status_path).publication is None


def test_a_storage_that_refuses_writes_is_shown_with_its_reason_until_it_takes_them(
    progress, clock, folder
):
    progress.take_storage(is_away=True, reason="BIC-1133 it is full")
    clock.advance(5_000)
    progress.take_storage(is_away=True, reason="BIC-1133 it is full")

    shown = read_status(folder.status_path)
    assert (shown.silent_storage_ms, shown.storage_reason) == (1_000, "BIC-1133 it is full")
    progress.take_storage(is_away=False)
    shown = read_status(folder.status_path)
    assert (shown.silent_storage_ms, shown.storage_reason) == (None, "")


def test_the_time_of_the_last_record_of_an_epoch_is_known(progress, clock):
    with progress.epoch():
        assert progress.status.reading_ms is None
        progress.take_reading(10)
        clock.advance(1_000)
        progress.take_reading(10)
        assert progress.status.reading_ms == 1_000


def unread_of(**lags):
    return Unread(lag=total_lag(lags.values()), shard_lags={"in": lags})


def test_the_lag_of_each_shard_is_shown_and_is_nothing_once_all_is_read(progress, clock):
    progress.take_epoch(stats_of(1, unread=unread_of(t0=Lag(record_count=2, age_ms=50), t1=BEHIND)))

    status = progress.status
    assert (status.lag_records, status.lag_ms) == (9, 900)
    assert list(status.lags["in"].items()) == [
        ("t1", ShardLag(records=7, waiting_ms=900)),
        ("t0", ShardLag(records=2, waiting_ms=50)),
    ]

    clock.advance(500)
    progress.take_idle(unread_of(t0=NOTHING, t1=NOTHING))
    assert (status.lag_records, status.lag_ms) == (0, 0)
    assert set(map(repr, status.lags["in"].values())) == {repr(ShardLag(records=0, waiting_ms=0))}


def test_a_job_that_finished_has_no_lag(progress):
    progress.take_epoch(stats_of(1, unread=unread_of(t0=BEHIND)))
    progress.enter(JobState.FINISHED)

    assert progress.status.lag_records == 0
    assert progress.status.lags["in"]["t0"] == ShardLag(records=0, waiting_ms=0)


def test_while_a_source_is_silent_the_lag_is_unknown_and_what_was_known_last_stays(progress, clock):
    progress.take_epoch(stats_of(1, unread=unread_of(t0=BEHIND)))
    clock.advance(500)
    silent = replace(unread_of(t0=BEHIND), lag=Lag(), silent=frozenset({"in"}))
    for _ in range(3):
        progress.take_idle(silent)
        clock.advance(1_000)

    status = progress.status
    assert (status.lag_records, status.lag_bytes, status.lag_ms) == (None, None, None)
    assert status.silent_sources == {"in": 1_500}
    assert status.lags["in"]["t0"].records == 7

    progress.take_idle(unread_of(t0=NOTHING))
    assert (status.lag_records, status.silent_sources) == (0, {})


def test_a_stop_request_does_not_bring_an_ended_job_back(progress):
    progress.enter(JobState.FINISHED)
    progress.enter_stopping()

    assert progress.status.state is JobState.FINISHED


def test_a_status_that_cannot_be_written_is_told_and_does_not_end_the_job(clock, tmp_path, caplog):
    folder = JobFolder(tmp_path / "gone")
    progress = JobProgress(status_of(), folder=folder, clock=clock, listener=lambda status: None)
    progress.enter(JobState.RUNNING)

    assert [record.getMessage() for record in caplog.records] == ["status_not_written"]
    assert progress.status.state is JobState.RUNNING


def test_epochs_are_logged_at_most_every_five_seconds(progress, clock, caplog):
    with caplog.at_level(logging.INFO, logger="bicycle_runtime"):
        for epoch in range(1, 12):
            progress.take_epoch(stats_of(epoch))
            clock.advance(1_000)

    epochs = [record.bicycle_fields["epoch"] for record in caplog.records]
    assert epochs == [1, 6, 11]


def test_the_rate_is_that_of_the_last_seconds(clock):
    rate = Rate(clock, window_s=5.0)
    assert rate.per_second() == 0
    for _ in range(4):
        clock.advance(1_000)
        rate.add(100)
    assert rate.per_second() == 100

    clock.advance(4_000)
    assert rate.per_second() == 40
    clock.advance(6_000)
    assert rate.per_second() == 0


def test_a_status_says_what_its_fields_are():
    assert JobStatus(id="a", job="a", plugin="p").state is JobState.CREATED
