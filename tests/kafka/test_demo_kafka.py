"""``make demo-kafka`` for real: socket, topic, count, topic, socket, and nothing left behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.scripts import DOCS

pytestmark = pytest.mark.spark


def test_the_demo_shows_each_count_once_and_ends_what_it_started(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, str(DOCS / "demo/demo_kafka.py"), str(tmp_path / "demo")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "each was counted exactly once, in order" in done.stdout
    assert "round:3" in done.stdout
