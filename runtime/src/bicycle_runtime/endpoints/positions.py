"""Positions of keys and values in a text."""

from __future__ import annotations

from typing import NamedTuple, Protocol

KeyPath = tuple[str | int, ...]


class Position(NamedTuple):
    """A place in a text; both count from 1."""

    line: int
    column: int


class FilePosition(Position):
    """A position in one of the files of a folder, which are one text."""

    file: str = ""


class TextPositions(Protocol):
    """A text whose keys and values have positions."""

    @property
    def file(self) -> str:
        """The name of the file, for errors."""

    def key_position(self, path: KeyPath, /) -> Position:
        """Return the position of a key, or of the nearest key around it."""

    def value_position(self, path: KeyPath, /) -> Position:
        """Return the position of a value, or of the nearest value around it."""
