"""The user's part of a traceback: their own frames, and the line to look at first.

Knows two sources of frames: exceptions, and the dumps of ``faulthandler``, which a crashed or
hanging process leaves behind. Works on file names alone, because such a process is gone and may
have run under another interpreter.
"""

from __future__ import annotations

import importlib
import re
import traceback
from collections.abc import Iterable

from bicycle_runtime.base.code_paths import show_paths
from bicycle_runtime.base.own_code import own_folders

Location = tuple[str, int, str]
"""File name, line number, function name."""

_OUR_ROOTS = tuple(f"{folder}/" for folder in own_folders())
_OUR_INSTALLED = re.compile(r"/(?:site|dist)-packages/bicycle_(?:runtime|sdk|streams)/")
_MACHINERY = ("<frozen importlib", "<frozen runpy", importlib.__file__)
_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
_LIBRARY = re.compile(r"/lib(?:64)?/python3[^/]*/(?!(?:site|dist)-packages/)")
_DUMP_LINE = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_LINE_COUNT_MAX = 200


def error_lines(error: BaseException) -> list[str]:
    """Return the lines of the traceback, causes included, without frames of Bicycle."""
    report = traceback.TracebackException.from_exception(error)
    _strip(report, set())
    lines = show_paths("".join(report.format())).splitlines()
    return lines[:1] + lines[-_LINE_COUNT_MAX:] if len(lines) > _LINE_COUNT_MAX else lines


def error_locations(error: BaseException) -> list[Location]:
    """Return the locations of an error, outermost first, a syntax error's last."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_stub(f)]
    locations = [(frame.filename, frame.lineno or 0, frame.name) for frame in frames]
    if isinstance(error, SyntaxError) and error.filename:
        locations.append((error.filename, error.lineno or 0, "<module>"))
    return locations


def dump_locations(text: str) -> list[Location]:
    """Return the places in a dump of ``faulthandler``, outermost call first."""
    locations = [(file, int(line), name) for file, line, name in _DUMP_LINE.findall(text)]
    return locations[::-1]


def location_lines(locations: Iterable[Location]) -> list[str]:
    """Return locations as traceback lines, without our own."""
    return [
        f'  File "{show_paths(file)}", line {line}, in {name}'
        for file, line, name in locations
        if not is_ours(file)
    ]


def user_location(locations: Iterable[Location], *, package: str, folder: str) -> str | None:
    """Return ``file:line`` of the innermost location in the plugin, or nearby.

    Args:
        locations: Outermost call first.
        package: Top-level package or module of the plugin.
        folder: Directory in which its distribution is installed.
    """
    own = (f"{folder.rstrip('/')}/{package}/", f"{folder.rstrip('/')}/{package}.py")
    best: tuple[int, str] | None = None
    for file, line, _ in locations:
        if is_ours(file):
            continue
        distance = 0 if file.startswith(own) else _distance(file)
        if best is None or distance <= best[0]:
            best = distance, f"{show_paths(file)}:{line}"
    return best and best[1]


def is_ours(file: str) -> bool:
    """Return whether a file is of Bicycle or of Python's import machinery."""
    return file.startswith((*_OUR_ROOTS, *_MACHINERY)) or bool(_OUR_INSTALLED.search(file))


def _is_stub(frame: traceback.FrameSummary) -> bool:
    """Return whether a frame is of the module that runs the text of a job file."""
    return frame.filename.endswith("_job.py") and (frame.line or "").startswith("exec(compile(")


def _distance(file: str) -> int:
    if _LIBRARY.search(file) or file.startswith("<"):
        return 3
    return 2 if _INSTALLED.search(file) else 1


def _strip(report: traceback.TracebackException | None, seen: set[int]) -> None:
    if report is None or id(report) in seen:
        return
    seen.add(id(report))
    report.stack[:] = [
        frame for frame in report.stack if not is_ours(frame.filename) and not _is_stub(frame)
    ]
    _strip(report.__cause__, seen)
    _strip(report.__context__, seen)
    for part in getattr(report, "exceptions", None) or ():
        _strip(part, seen)
