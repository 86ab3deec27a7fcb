"""Asking a running job for other parallelism: requests, answers, and what is kept of them."""

import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.errors import WIDTH_REFUSED
from bicycle_runtime.engine.loop.rescaling import Rescaled, RescaleRequest
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.engine.planning.stages import parallelisms_of
from bicycle_runtime.jobs.control.requests import DriverRequest, Inbox
from bicycle_runtime.jobs.control.rescaling import (
    RescaleOptions,
    ask_for_rescale,
    request_rescaled,
    rescale_request,
)
from bicycle_runtime.jobs.errors import RESCALE_REQUEST_UNREADABLE, JobNotRunningError
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.status import JobState
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import ConfigError, OptionError
from bicycle_sdk.options import from_mapping
from tests.raising import raises
from tests.unit.jobs.job_samples import bundle_of, put_job, request_of

DONE = Rescaled(epoch=7, old={"count": 2}, new={"count": 5}, pause_ms=31, state_bytes=1_000)


@pytest.fixture
def home(home):
    put_job(home, is_ours=True)
    return home


def ask(home, handler, **operators):
    """Ask with a driver in another thread."""
    inbox, ended = Inbox(home.folder("job").path), threading.Event()
    inbox.open()

    def serve():
        while not ended.wait(0.005):
            inbox.serve({DriverRequest.RESCALE: handler})

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        options = RescaleOptions(parallelism=3, operators=operators)
        return ask_for_rescale(home, "job", options, clock=SystemClock())
    finally:
        ended.set()
        thread.join()


def test_the_request_reaches_the_job_and_its_answer_no_matter_who_asked(home):
    requests = []

    def meet(facts):
        requests.append(rescale_request(facts))
        return asdict(DONE)

    assert ask(home, meet, count=5) == DONE
    assert requests == [RescaleRequest(parallelism=3, operators={"count": 5})]


def test_a_refusal_is_raised_where_it_was_asked(home):
    def refuse(_facts):
        raise WIDTH_REFUSED(job="job", operator="count", found=9, limit=4, now=2)

    with raises(WIDTH_REFUSED) as caught:
        ask(home, refuse)
    assert caught.value.facts["limit"] == 4


def test_a_job_that_has_ended_has_no_parallelism_to_change(home):
    put_job(home, state=JobState.FINISHED)
    with pytest.raises(JobNotRunningError):
        ask_for_rescale(home, "job", RescaleOptions(parallelism=2), clock=SystemClock())


@pytest.mark.parametrize(
    "facts", [{"parallelism": "three"}, {"operators": ["count"]}, {"operators": {"count": "2"}}]
)
def test_a_request_of_another_form_is_refused(facts):
    with raises(RESCALE_REQUEST_UNREADABLE):
        rescale_request(facts)


@pytest.mark.parametrize(
    "options",
    [
        {"parallelism": 0},
        {"parallelism": 40_000},
        {"operators": {"a": 0}},
        {"operators": {"a": "2"}},
    ],
)
def test_a_parallelism_out_of_bounds_is_not_even_asked_for(options):
    with pytest.raises(OptionError):
        RescaleOptions(**options)


def test_a_rescale_names_a_parallelism():
    with pytest.raises(ConfigError):
        RescaleOptions()


def test_maps_are_read_from_texts_and_from_json():
    for given in ("count=5,sink=2", {"count": "5", "sink": 2}):
        found = from_mapping(RescaleOptions, {"operators": given})
        assert found.operators == {"count": 5, "sink": 2}


def test_the_same_request_started_again_has_the_parallelism_of_the_rescale(home):
    folder = home.folder("job")
    request = request_rescaled(request_of(parallelism=2), DONE, folder)

    assert folder.read_request() == replace(request, directory=str(Path.cwd()))
    assert request.parallelisms == {"count": 5}
    assert request.options.parallelism == 2


def test_a_home_that_cannot_be_written_does_not_end_the_job(home, tmp_path):
    folder = home.folder("job")
    folder.request_path.unlink()
    folder.request_path.mkdir()

    assert request_rescaled(request_of(), DONE, folder).parallelisms == {"count": 5}


def test_a_request_of_before_there_were_parallelism_is_read():
    data = request_of().to_json()
    del data["widths"]

    assert JobRequest.from_json(data) == request_of()


def test_parallelism_win_over_the_parallelism_and_know_the_operators_that_are_there(tmp_path):
    def build(env):
        env.from_collection(["a"]).uid("in").key_by(str).uid("key").count().uid("count").print()

    setup = prepare_job(
        bundle_of(build), job_id="job", storage=LocalStorage(str(tmp_path)), parallelism=3,
        parallelisms={"count": 5, "gone": 7},
    )  # fmt: skip
    parallelisms = parallelisms_of(setup.graph)
    assert (parallelisms["in"], parallelisms["key"], parallelisms["count"]) == (3, 3, 5)
