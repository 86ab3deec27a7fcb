"""Checks of what belongs to a whole process, such as its descriptors, in a process of their own.

Threads that other tests left in this process, such as those of clients, would take part.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]


def run_alone(check: Callable[..., None], *words: Any) -> str:
    """Run a function of a test module with plain arguments; return what it wrote to stderr."""
    name = check.__name__
    done = subprocess.run(
        [sys.executable, "-c", f"from {check.__module__} import {name}; {name}(*{words!r})"],
        cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr
