"""The owner of a stack frame: Bicycle, the event loop, or user code and libraries."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Protocol, TypeVar

from bicycle_runtime.base.code_paths import show_paths
from bicycle_runtime.base.own_code import own_folders

_OWN_FOLDERS = tuple(str(folder.resolve()) for folder in own_folders())
_LOOP_FILES = (str(Path(asyncio.__file__).parent), selectors.__file__)


class Location(Protocol):
    """A frame, as far as its file."""

    @property
    def filename(self) -> str:
        """The file of its code."""


Frame = TypeVar("Frame", bound=Location)


def is_ours(frame: Location) -> bool:
    """Return whether a frame is code of the runtime or of the SDK."""
    return str(Path(frame.filename).resolve()).startswith(_OWN_FOLDERS)


def without_loop(frames: Sequence[Frame]) -> list[Frame]:
    """Remove frames of the event loop that calls an ``async`` function."""
    return list(dropwhile(lambda frame: frame.filename.startswith(_LOOP_FILES), frames))


def blamed_frame(frames: Sequence[Frame]) -> Frame:
    """Return the user's line: the deepest frame in the folder of the outermost one."""
    # A function that goes by value has a path relative to its environment, others have a full one.
    folder = Path(show_paths(frames[0].filename)).parent
    return [frame for frame in frames if Path(show_paths(frame.filename)).parent == folder][-1]
