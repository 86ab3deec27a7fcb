"""Durations and moments in errors are shown as people read them; the facts stay numbers."""

from bicycle_runtime.jobs.errors import StalledError
from bicycle_runtime.operators.errors import RUNAWAY_TIMERS
from bicycle_sdk.contexts import WATERMARK_MAX
from bicycle_sdk.quantities import duration_text, moment_text


def test_an_error_shows_durations_and_the_end_of_time_in_words():
    stalled = StalledError(job="j", waited_ms=1_800_000, phase="running", target="epoch 3")
    assert "no progress for 30 min while" in stalled.summary
    assert stalled.to_json()["facts"]["waited_ms"] == 1_800_000

    facts = {"operator": "f", "count": 7, "key": "k", "function": "F", "domain": "event"}
    runaway = RUNAWAY_TIMERS(**facts, time_ms=5, reached_ms=WATERMARK_MAX)
    assert "but that time is already at the end;" in runaway.summary


def test_a_duration_has_no_unit_of_nothing():
    for ms in (1_000, 60_000, 3_600_000, 86_400_000, 7 * 86_400_000):
        assert len(duration_text(ms).split()) == 2
    assert duration_text(90_061_000) == "1 d 1 h"


def test_the_end_of_time_is_no_number():
    assert moment_text(WATERMARK_MAX) == moment_text(WATERMARK_MAX - 1) == "at the end"
