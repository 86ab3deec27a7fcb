"""Temporary files of the tests: in memory where there is room, and gone at the end.

What Bicycle writes it also syncs, several times an epoch, and a disk takes milliseconds for each
time: half of the time of the tests. Tests kill processes, not machines, so that memory keeps for
them what a disk would. ``TMPDIR`` or ``--basetemp`` choose another place.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_FREE_BYTES_MIN = 8 << 30
_PREFIX = "bicycle-"  # Paths of sockets may have a hundred letters only.


def pytest_configure(config: pytest.Config) -> None:
    """Choose the place, for this process and for all that it starts."""
    if hasattr(config, "workerinput") or config.option.basetemp or "TMPDIR" in os.environ:
        return
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _FREE_BYTES_MIN:
        return
    _remove_left_behind()
    folder = _MEMORY / f"{_PREFIX}{os.getpid()}"
    folder.mkdir()
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = str(folder)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def _remove_left_behind() -> None:
    """Remove what runs left that were killed."""
    for folder in _MEMORY.glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX)
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)
