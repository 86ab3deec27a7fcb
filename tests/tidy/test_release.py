"""The distributions are built, checked, used alone in clean environments, and run the demo."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.extended
# Five environments are made, three of them with Spark: 5 min, and 25 on a loaded machine.
@pytest.mark.timeout(3600)
def test_a_release_can_be_built_installed_and_used():
    command = [sys.executable, "-m", "nox", "--session", "release"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "each was counted exactly once" in done.stdout
