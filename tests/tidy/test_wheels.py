"""Each distribution is built, installed alone in a clean environment, and imported there."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.extended
@pytest.mark.timeout(900)  # Four environments are made, two of them with Spark.
def test_each_wheel_has_its_files_and_can_be_used_alone():
    command = [sys.executable, "-m", "nox", "--session", "wheels"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
