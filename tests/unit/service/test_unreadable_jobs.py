"""A service with a job whose files cannot be read: all other jobs are as before."""

import pytest

from bicycle_runtime.base.errors import STORED_NEWER
from bicycle_runtime.jobs.errors import StatusFormatError
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.service.service import Service
from bicycle_runtime.service.watching.states import State
from bicycle_sdk.clock import SystemClock
from tests.unit.jobs.job_samples import put_job


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    put_job(home, "good", state=JobState.FINISHED, started_ms=1)
    return home


def shown(service):
    view = service.fleet.view
    return {job.summary.job_id: (job.summary.state, job.status.error) for job in view.jobs}


def as_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda path: path.write_text('{"format_version": 2}'), STORED_NEWER),
        (lambda path: path.write_text(""), StatusFormatError),
        (as_folder, StatusFormatError),
    ],
)
def test_a_status_that_cannot_be_read_is_shown_with_its_reason(home, spoil, error):
    spoil(put_job(home, "odd").status_path)
    with Service(home, clock=SystemClock()) as service:
        found = shown(service)

    assert found["good"] == (State.FINISHED.value, None)
    assert (found["odd"][0], found["odd"][1]["code"]) == (State.FAILED.value, error.code)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"params": 7}', '{"format_version": 2}'])
def test_a_request_that_cannot_be_read_stops_no_service(home, content):
    put_job(home, "odd", state=JobState.FINISHED).request_path.write_text(content)
    with Service(home, clock=SystemClock()) as service:
        assert shown(service) == dict.fromkeys(("good", "odd"), (State.FINISHED.value, None))


@pytest.mark.parametrize("value", ["passengers", "plugin", "FINISHED", "started", "operators"])
def test_a_secret_that_is_a_common_word_hides_no_job(home, value):
    folder = put_job(home, "passengers", state=JobState.FINISHED, started_ms=1)
    options = JobOptions(plugin="sample", name="passengers")
    folder.write_request(JobRequest(options=options, params={"passengers_topic": value}))

    with Service(home, clock=SystemClock()) as service:
        assert shown(service)["passengers"] == ("FINISHED", None)
