"""A stop request that comes while a job starts for the first time."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[4]
HANGS = """
import threading
from bicycle_sdk import StreamEnvironment, bicycle_plugin

@bicycle_plugin
def hangs(env: StreamEnvironment) -> None:
    threading.Event().wait()
"""
DRIVER = """
import sys
from pathlib import Path
from tests.unit.jobs.running.light_jobs import LightJob

job = LightJob(Path(sys.argv[1]), sys.argv[2], options={"stop_timeout_ms": 4_000})
with job.stop.on_signals():
    job.run()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_during_a_long_start_is_shown_and_ends_the_job_as_stopped(tmp_path, number):
    file, folder = tmp_path / "hangs.py", Home(tmp_path / "home").folder("job")
    file.write_text(HANGS)
    words = [sys.executable, "-c", DRIVER, str(tmp_path), str(file)]
    with subprocess.Popen(words, cwd=ROOT, env=environment_for_python()) as process:
        until(lambda: folder.status() or process.poll() is not None, "the first status")
        process.send_signal(number)
        status = until(
            lambda: (found := folder.status()).state is not JobState.CREATED and found,
            "the stop in the status",
        )
        assert (status.state, process.wait(PATIENCE_S)) == (JobState.STOPPING, 0)

    status = folder.status()
    assert (status.state, status.error) == (JobState.STOPPED, None)
