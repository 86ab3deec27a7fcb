"""Samples of jobs that no longer run: they are removed after a week."""

from bicycle_runtime.service.store.history import HISTORY, SAMPLED, History
from bicycle_streams.access.control import CONTROL
from bicycle_streams.access.opening import database_of

DAY_S = 86_400


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
