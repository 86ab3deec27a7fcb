"""A worker that is killed at any step of making a base: what is sealed is there, and no more."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bicycle_runtime.base.faults import BASE_POINTS

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT, *(ROOT / name / "src" for name in ("plugin_sdk", "streams", "runtime")))


def run_worker(folder, backend, **environment):
    worker = Path(__file__).with_name("base_worker.py")
    path = os.pathsep.join(map(str, SOURCES))
    return subprocess.run(
        [sys.executable, str(worker), str(folder), backend],
        env={**os.environ, "PYTHONPATH": path, **environment},
        check=False, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("point", BASE_POINTS)
def test_a_worker_that_is_killed_at_any_step_of_a_base_loses_no_state(tmp_path, point, backend):
    killed = run_worker(tmp_path, backend, BICYCLE_FAULTS=f"{point}@2=kill")
    done = run_worker(tmp_path, backend)

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert done.returncode == 0, done.stderr
