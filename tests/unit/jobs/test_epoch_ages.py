"""Ages of epochs and publications: a job whose target does not answer does not look busy."""

import pytest

from bicycle_runtime.jobs.epoch_ages import activity_text, fixed_text, is_stalled, stalled_ms
from bicycle_runtime.jobs.status import JobState, OpenPublication
from tests.unit.jobs.job_samples import status_of

NOW_MS = 200_000
PUBLICATION = OpenPublication(epoch=7, sink="out", since_ms=NOW_MS - 90_000)


def test_a_publication_that_does_not_end_stalls_a_job():
    status = status_of(epoch=7, publication=PUBLICATION, epoch_began_ms=NOW_MS - 1_000)

    assert stalled_ms(status, NOW_MS) == 90_000
    assert is_stalled(status, NOW_MS)
    assert activity_text(status, NOW_MS) == (
        "publishing epoch 7 for 1 min 30 s, sink out has not finished"
    )


def test_an_epoch_stalls_a_job_only_when_it_reads_nothing():
    began_ms = NOW_MS - 600_000
    reading = status_of(epoch=7, epoch_began_ms=began_ms, reading_ms=NOW_MS - 2_000)
    silent = status_of(epoch=7, epoch_began_ms=began_ms, reading_ms=NOW_MS - 60_000)

    assert not is_stalled(reading, NOW_MS)
    assert is_stalled(silent, NOW_MS)
    assert activity_text(silent, NOW_MS) == "in epoch 8 for 10 min"


@pytest.mark.parametrize("state", [JobState.FINISHED, JobState.FAILED])
def test_nothing_is_at_work_in_a_job_that_has_ended(state):
    status = status_of(state=state, publication=PUBLICATION, epoch_began_ms=0)

    assert stalled_ms(status, NOW_MS) == 0
    assert activity_text(status, NOW_MS) == ""


def test_work_of_less_than_two_seconds_is_not_shown():
    status = status_of(epoch_began_ms=NOW_MS - 1_900)

    assert activity_text(status, NOW_MS) == ""


@pytest.mark.parametrize(
    ("fixed_ms", "epoch_ms", "text"),
    [
        (9_000.0, 20_000.0, "fixed time per epoch: 9.0 s of 20.0 s"),
        (9_000.0, 60_000.0, ""),
        (40.0, 60.0, ""),
        (None, 20_000.0, ""),
    ],
)
def test_a_fixed_part_is_shown_where_it_is_a_third_of_an_epoch(fixed_ms, epoch_ms, text):
    assert fixed_text(status_of(fixed_ms=fixed_ms, epoch_p50_ms=epoch_ms)) == text
