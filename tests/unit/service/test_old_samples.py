"""Samples of jobs that no longer run, and events of removed jobs: removed after a week."""

from bicycle_runtime.service.store.history import HISTORY, SAMPLED, History, KnownRow, Noted
from bicycle_streams.access.control import CONTROL
from bicycle_streams.access.opening import database_of

DAY_S = 86_400
DAY_MS = DAY_S * 1_000


def test_samples_of_a_job_that_ended_more_than_seven_days_ago_are_removed(tmp_path):
    facts = {"server": None, "synchronous": "NORMAL"}
    values = dict.fromkeys(SAMPLED, 1)
    with (
        database_of(tmp_path, "control", CONTROL, **facts) as control,
        database_of(tmp_path, "history", HISTORY, **facts) as samples,
    ):
        history = History(control, samples)

        def note(job, day):
            history.note_samples([(job, values, {})], at_s=day * DAY_S).result()
            rows = samples.read(
                lambda c: c.execute(
                    "SELECT DISTINCT job FROM job_numbers LEFT JOIN samples ON number = job_number"
                ).fetchall()
            )
            return {row["job"] for row in rows}

        assert note("ended", 100) == {"ended"}
        assert note("running", 106) == {"ended", "running"}
        assert note("running", 107) == {"running"}
        assert history.samples("ended")["at_s"] == []
        assert {106 * DAY_S, 107 * DAY_S} <= set(history.samples("running", tier="5m")["at_s"])


def test_events_and_states_of_a_job_that_was_removed_more_than_seven_days_ago_are_removed(tmp_path):
    facts = {"server": None, "synchronous": "NORMAL"}
    with (
        database_of(tmp_path, "control", CONTROL, **facts) as control,
        database_of(tmp_path, "history", HISTORY, **facts) as samples,
    ):
        history = History(control, samples)

        def look(day, *, added=(), removed=()):
            found = [Noted(row=row_of(job), steps=((None, "FAILED", 1),)) for job in added]
            history.note(found, removed, at_ms=day * DAY_MS).result()
            events = [event.job for event in history.events()]
            assert {job for job in "abc" if history.state_changes(job)} == set(events)
            return events

        assert look(100, added="abc") == ["a", "b", "c"]
        assert look(101, removed="a") == ["a", "b", "c"]
        assert look(107, removed="b") == ["a", "b", "c"]
        assert look(109, removed="c") == ["b", "c"]
        assert look(110, added="b", removed="c") == ["b", "c", "b"]
        assert look(120, removed="d") == ["b", "b"]
        assert history.latest_event() == 4


def row_of(job):
    numbers = ("run", "pid", "pid_started", "supervisor_pid", "supervisor_started", "restarts")
    return KnownRow(id=job, state="FAILED", plugin="p", **dict.fromkeys(numbers, 0))
