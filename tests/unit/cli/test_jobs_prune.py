"""``bicycle jobs prune``: what ended long ago goes, what may go on or has dead letters stays."""

import os
import time

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.jobs.locks import FileLock
from bicycle_runtime.jobs.status import JobState

DAY_MS = 86_400_000


def ago(days):
    return int(time.time() * 1_000) - days * DAY_MS


def known(shell):
    return {folder.id for folder in shell.home.folders()}


def pruned(shell, *words):
    answer = shell.answer("jobs", "prune", *words)
    return {job["job"]: job["kept"] for job in answer["jobs"]}


def test_jobs_that_ended_long_ago_are_removed_and_others_stay(shell):
    shell.put_job("old", ended_ms=ago(8))
    shell.put_job("failed", ended_ms=ago(30), state=JobState.FAILED)
    shell.put_job("new", ended_ms=ago(1))
    pid = os.getpid()
    shell.put_job(
        "running", state=JobState.RUNNING, pid=pid, pid_started=start_ticks(pid), started_ms=ago(90)
    )

    shell.put_job("unreadable")
    shell.home.folder("unreadable").status_path.write_text("{}")
    assert pruned(shell, "--dry-run") == {"old": "", "failed": ""}
    assert known(shell) == {"old", "failed", "new", "running", "unreadable"}
    assert pruned(shell) == {"old": "", "failed": ""}
    assert known(shell) == {"new", "running", "unreadable"}
    assert pruned(shell, "--older-than", "0") == {"new": ""}
    assert pruned(shell) == {}
    assert shell.run("jobs", "prune").stdout == "0 jobs removed, 0 B\n"


def test_a_checkpoint_stays_unless_asked_for_and_never_goes_outside_the_home(shell, tmp_path):
    inside, outside = shell.home.checkpoints_dir / "mine", tmp_path / "cp/theirs"
    for place in (inside, outside):
        (place / "epochs").mkdir(parents=True)
        (place / "epochs/1").write_bytes(b"x" * 100)
    shell.put_job("mine", ended_ms=ago(9), checkpoint=str(inside))
    shell.put_job("theirs", ended_ms=ago(9), checkpoint=str(outside))
    shell.put_job("third", ended_ms=ago(9), checkpoint=str(shell.home.checkpoints_dir))

    text = shell.run("jobs", "prune", "--dry-run").stdout
    assert f"its checkpoint in {outside} is kept" in text
    assert shell.run("jobs", "prune", "--checkpoints").exit_code == 0
    assert known(shell) == set()
    assert not inside.exists()
    assert (outside / "epochs/1").exists()
    assert shell.home.checkpoints_dir.exists()


def test_a_job_with_dead_letters_or_one_that_is_being_started_is_kept(shell):
    shell.put_job("letters", ended_ms=ago(9))
    letters = shell.home.folder("letters").path / "dead_letters"
    letters.mkdir()
    (letters / "1.jsonl").write_text("{}\n")
    shell.put_job("starting", ended_ms=ago(9))

    with FileLock(shell.home.folder("starting").lock_path, job="starting", location="here"):
        found = pruned(shell)
    assert "dead letters" in found["letters"]
    assert found["starting"] == "it is starting"
    assert known(shell) == {"letters", "starting"}


def test_a_duration_that_is_none_is_refused(shell):
    code, error = shell.error("jobs", "prune", "--older-than", "soon")
    assert code == 2
    assert "soon" in error["message"]
