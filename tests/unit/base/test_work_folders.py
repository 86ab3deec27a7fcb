"""The temporary folder of a run: gone at its end, or at the start of the next run after a kill."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bicycle_runtime.base.work_folders import WorkFolder, remove_abandoned

KILLED = """
import os
from bicycle_runtime.base.work_folders import WorkFolder
(WorkFolder().path / "spark.log").touch()
os._exit(9)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_of_a_killed_run_is_removed_and_that_of_a_running_one_is_not(temporary: Path):
    environment = {**os.environ, "TMPDIR": str(temporary)}
    killed = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert killed.returncode == 9
    mine = WorkFolder()
    (mine.path / "spark.log").touch()
    assert len(list(temporary.iterdir())) == 2

    assert remove_abandoned() == 1
    assert list(temporary.iterdir()) == [mine.path]
    assert (mine.path / "spark.log").exists()

    mine.remove()
    mine.remove()
    assert list(temporary.iterdir()) == []


def test_a_folder_without_a_lock_is_left_alone(temporary: Path):
    (temporary / "bicycle-spark-of-another-version").mkdir()

    assert remove_abandoned() == 0
    assert len(list(temporary.iterdir())) == 1
