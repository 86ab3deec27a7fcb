"""A job that is started again stays known until its driver writes a status."""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bicycle_runtime.jobs.control import submitting
from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.control.pruning import prune_jobs
from bicycle_runtime.jobs.control.submitting import submit
from bicycle_runtime.jobs.errors import DRIVER_ENDED
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState
from bicycle_sdk.clock import SystemClock
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job, request_of
from tests.waiting import until

DAY_MS = 86_400_000


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def waiting_interpreter(folder: Path) -> Path:
    """Return a program that stands for a driver whose start takes long, and which then dies."""
    path = folder / "python"
    path.write_text(
        f'#!/bin/sh\ntouch "{folder}/begun"\n'
        f'until [ -e "{folder}/go" ]; do sleep 0.05; done\nexit 3\n'
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("former", [JobState.STOPPED, JobState.RUNNING], ids=["ended", "lost"])
def test_a_job_whose_driver_is_starting_has_the_status_of_its_former_run(home, tmp_path, former):
    ended_ms = 7 if former.is_final else None
    folder = put_job(home, state=former, started_ms=5, running_ms=6, ended_ms=ended_ms)
    before = folder.status_path.read_bytes(), folder.request_path.read_bytes()
    request = request_of({"a": "changed"}, name="job", checkpoint_dir=str(tmp_path / "checkpoints"))
    python = str(waiting_interpreter(tmp_path))
    with ThreadPoolExecutor(1) as pool:
        start = pool.submit(submit, request, home, python=python)
        until((tmp_path / "begun").exists, "the process of the driver")
        assert job_status(home, "job").started_ms == 5
        assert folder.read_request().params == {"a": "changed"}
        (tmp_path / "go").touch()
        with raises(DRIVER_ENDED):
            start.result()

    assert folder.status_path.read_bytes() == before[0]
    if former.is_final:  # It can be resumed as it was.
        assert folder.request_path.read_bytes() == before[1]


def test_the_status_of_a_former_run_with_the_same_process_id_is_not_taken_for_the_new_one(
    home, monkeypatch
):
    def start(*_words, **_options):
        process = subprocess.Popen(["false"])
        put_job(home, state=JobState.FINISHED, supervisor_pid=process.pid, supervisor_started=1)
        return process

    put_job(home).log_path.touch()
    monkeypatch.setattr(submitting, "start_detached", start)

    with raises(DRIVER_ENDED):
        submit(request_of(name="job"), home, python="python")


def test_a_job_whose_start_was_requested_just_now_is_not_pruned(home):
    folder = put_job(home, state=JobState.STOPPED, started_ms=5, ended_ms=7)

    def pruned(*, requested_after_s: float) -> list[str]:
        written_s = time.time() - 3_600
        os.utime(folder.status_path, (written_s, written_s))
        requested_s = written_s + requested_after_s
        os.utime(folder.request_path, (requested_s, requested_s))
        found = prune_jobs(
            home, clock=SystemClock(), older_than_ms=DAY_MS, with_checkpoints=False, is_trial=True
        )
        return [job.job for job in found]

    assert pruned(requested_after_s=1_800) == []
    assert pruned(requested_after_s=-1) == ["job"]
