"""Processes of the suite: one reads a slice again, one dies at a given line."""

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
        parts: The parts to read.
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


def find_steps(act: Callable[[], None], modules: tuple[str, ...]) -> list[int]:
    """Run ``act`` in a fork, and return the steps at which to kill a process.

    If a line runs repeatedly, such as once per file, its first two runs and its last run are
    included.

    Args:
        act: The action.
        modules: Suffixes of the paths of modules. Only lines of these modules count.

    Returns:
        Steps for ``kill_at``: lines counted from 1, in the order in which they run.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        lines: list[tuple[str, int]] = []
        _act(act, modules, lambda frame: lines.append((frame.f_code.co_filename, frame.f_lineno)))
        with os.fdopen(writing, "wb") as out:
            pickle.dump(lines, out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as found:
        data = found.read()
    _require_end(child, 0)
    passages: dict[tuple[str, int], list[int]] = {}
    for step, line in enumerate(pickle.loads(data), 1):
        passages.setdefault(line, []).append(step)
    return sorted({step for steps in passages.values() for step in (*steps[:2], steps[-1])})


def kill_at(step: int, act: Callable[[], None], modules: tuple[str, ...]) -> None:
    """Run ``act`` in a fork that dies before its ``step``-th line in ``modules``."""
    child = os.fork()
    if child == 0:
        left = step

        def note(_: FrameType) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os._exit(_DIED)

        _act(act, modules, note)
        os._exit(0)
    _require_end(child, _DIED)


def _act(
    act: Callable[[], None], modules: tuple[str, ...], note: Callable[[FrameType], None]
) -> None:
    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(modules):
            return None
        if event == "line":
            note(frame)
        return trace

    sys.settrace(trace)
    try:
        act()
    except BaseException:  # noqa: BLE001 - the parent only sees the exit code.
        os._exit(1)
    sys.settrace(None)


def _require_end(child: int, expected: int) -> None:
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code == expected, f"the process ended with {code}, not with {expected}"
