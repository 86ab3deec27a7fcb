"""Other processes for the suite: one reads a slice again, one dies at a given line."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import cloudpickle

from bicycle_runtime.contract import Slice, SourceBatch, SourceReader

__all__ = ["killed_at", "read_elsewhere"]

_DIED = 9
_READ_S = 60
_PROGRAM = """
import pathlib, pickle, sys
sys.path[:] = pickle.loads(pathlib.Path(sys.argv[1], "path").read_bytes())
import cloudpickle
reader, parts = pickle.loads(pathlib.Path(sys.argv[1], "reader").read_bytes())
batches = [list(reader.read(part)) for part in parts]
reader.close()
pathlib.Path(sys.argv[1], "batches").write_bytes(cloudpickle.dumps(batches))
"""


def read_elsewhere(
    reader: SourceReader, parts: Sequence[Slice], folder: Path
) -> list[list[SourceBatch]]:
    """Read slices in a new process, as another worker would.

    Args:
        reader: Fresh from its source; it is pickled.
        parts: What to read.
        folder: For the files that pass between the processes.

    Returns:
        Per slice, its batches.
    """
    folder.mkdir()
    (folder / "path").write_bytes(pickle.dumps(sys.path))
    (folder / "reader").write_bytes(cloudpickle.dumps((reader, list(parts))))
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder)],
        capture_output=True,
        text=True,
        timeout=_READ_S,
        check=False,
    )
    assert done.returncode == 0, f"the reader failed in another process: {done.stderr}"
    batches: list[list[SourceBatch]] = pickle.loads((folder / "batches").read_bytes())
    return batches


def killed_at(step: int, act: Callable[[], None], modules: tuple[str, ...]) -> bool:
    """Do ``act`` in a forked process that dies before its ``step``-th line in ``modules``.

    Returns:
        Whether it died; False when it finished before.
    """
    child = os.fork()
    if child == 0:
        _act_and_exit(step, act, modules)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, _DIED), f"the process failed with {code}"
    return code == _DIED


def _act_and_exit(step: int, act: Callable[[], None], modules: tuple[str, ...]) -> None:
    left = step

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(modules):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os._exit(_DIED)
        return trace

    sys.settrace(trace)
    try:
        act()
    except BaseException:  # noqa: BLE001 - the parent only sees the exit code.
        os._exit(1)
    os._exit(0)
