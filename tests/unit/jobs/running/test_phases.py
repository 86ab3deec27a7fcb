"""The phases of a start as status and log tell them: how far, and how long the rest takes."""

import logging
import random

import pytest

from bicycle_runtime.cli.rendering import phase_text
from bicycle_runtime.jobs.home import Home, JobFolder, locate_job
from bicycle_runtime.jobs.options import JobOptions
from bicycle_runtime.jobs.running.phases import Phases
from bicycle_runtime.jobs.running.progress import JobProgress
from bicycle_runtime.jobs.status import PhaseStatus
from bicycle_runtime.jobs.supervision.watchdog import Watchdog, WatchdogSteps
from bicycle_sdk.clock import ManualClock
from tests.unit.jobs.job_samples import stats_of, status_line, status_of

URL = "s3://bucket/job"


class Shown:
    def __init__(self, folder):
        self.clock = ManualClock(10_000)
        self.status = status_of("job")
        self.folder = JobFolder(folder)
        self.progress = JobProgress(
            self.status, folder=self.folder, clock=self.clock, listener=lambda _: None
        )


@pytest.fixture
def shown(tmp_path):
    return Shown(tmp_path)


def test_a_phase_tells_what_is_done_and_how_long_the_rest_takes(shown):
    with shown.progress.phase("recovering", URL):
        shown.clock.advance(2_000)
        shown.progress.advance(URL, 25, 100, unit="bytes")
        phase = shown.folder.status().phase
        assert (phase.name, phase.target, phase.done, phase.total) == ("recovering", URL, 25, 100)
        assert phase.eta_ms == 6_000
    assert shown.status.phase is None


def test_another_target_has_a_pace_of_its_own(shown):
    with shown.progress.phase("recovering", URL):
        shown.clock.advance(60_000)
        shown.progress.advance("part 2", 0, 10, unit="files")
        shown.clock.advance(1_000)
        shown.progress.advance("part 2", 5, 10, unit="files")
        assert shown.status.phase.eta_ms == 1_000


def test_progress_is_logged_now_and_then_and_the_end_always(shown, caplog):
    caplog.set_level(logging.INFO)
    with shown.progress.phase("recovering", URL):
        for done in range(12):
            shown.clock.advance(1_000)
            shown.progress.advance(URL, done, 100, unit="bytes")
    events = [record.getMessage() for record in caplog.records]
    assert events.count("phase_advanced") == 2
    assert events[-1] == "phase_ended"


def test_the_loading_of_state_is_a_phase_of_the_first_epoch(shown):
    shown.progress.advance(URL, 10, 100, unit="bytes")
    assert shown.status.phase.name == "loading state"
    shown.progress.advance(URL, 100, 100, unit="bytes")
    assert shown.status.phase is None
    shown.progress.advance(URL, 10, 100, unit="bytes")
    shown.progress.take_epoch(stats_of())
    assert shown.status.phase is None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "recovering (here)"),
        ({"unit": "bytes", "done": 512, "total": 2_048}, "recovering (here): 512 B of 2 KiB"),
        (
            {"unit": "files", "done": 1, "total": 4, "eta_ms": 3_000},
            "recovering (here): 1 of 4 files, 3.0 s left",
        ),
    ],
)
def test_people_read_it_in_one_line(fields, text):
    phase = PhaseStatus(name="recovering", target="here", **fields)

    assert phase_text(phase) == text
    assert text in status_line(status_of("job", phase=phase))


def test_only_a_job_with_a_sealed_epoch_recovers(shown, tmp_path):
    options = JobOptions(plugin="sample", checkpoint_dir=str(tmp_path / "cp"))
    location = locate_job(
        options, Home(tmp_path / "home"), clock=shown.clock, source=random.Random(1)
    )
    steps = WatchdogSteps(let_go=lambda: None, end=lambda _: None)
    watchdog = Watchdog(steps, clock=shown.clock, job="sample")
    phases = Phases(watchdog, shown.progress, options, location)

    with phases.beginning():
        assert shown.status.phase.name == "starting with empty state"
    location.storage.write("epochs/000000000001.manifest", b"whatever it holds")
    with phases.beginning():
        assert shown.status.phase.name == "recovering"
