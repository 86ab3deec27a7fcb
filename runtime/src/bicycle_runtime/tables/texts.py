"""The text of an SQL file, or of all SQL files of a folder, with its positions."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from pathlib import PurePath

from bicycle_runtime.endpoints.positions import FilePosition, KeyPath, Position

_FILE = re.compile(r"^-- bicycle file (.+)$", re.MULTILINE)  # The head of a file of a folder.
_LINE_END, _VISIBLE = re.compile(r"\n"), re.compile(r"\S")


class SqlText:
    """A text with the positions of its statements and options.

    Args:
        text: The text.
        file: The name of the file, for errors.
        locate: Returns the position of an offset, if the text is a part of the file.
    """

    def __init__(
        self, text: str, file: str, locate: Callable[[int], Position] | None = None
    ) -> None:
        self.text, self.file, self._locate = text, file, locate
        # Where texts begin, and the locations of their calls.
        self._parts = [(0, f"{file}:{{line}}:{{column}}")]
        self.default_kind = ""  # The connector of tables without WITH; empty if WITH is required.
        self.keys: dict[KeyPath, int] = {}
        self.values: dict[KeyPath, int] = {}
        self._starts = [0, *(found.end() for found in _LINE_END.finditer(text))]
        self._files = [(found.end(), found[1]) for found in _FILE.finditer(text)]

    def append(self, text: str, location: str) -> int:
        """Add a text; return the number of its first line. Earlier texts become spaces.

        Offsets of all texts differ, so that options of earlier statements keep their positions.
        ``location`` is that of its call; ``{line}`` and ``{column}`` are replaced.
        """
        begin = len(self.text) + 1
        self._parts.append((begin, location))
        self.text = f"{_VISIBLE.sub(' ', self.text)}\n{text}"
        self._starts += [begin, *(found.end() + begin for found in _LINE_END.finditer(text))]
        return self.position(begin).line

    def position(self, at: int) -> Position:
        """Return line and column of an offset."""
        if self._locate is not None:
            return self._locate(at)
        line = bisect_right(self._starts, at)
        found = Position(line, at - self._starts[line - 1] + 1)
        if not (index := bisect_right(self._files, at, key=lambda each: each[0])):
            return found
        begin, name = self._files[index - 1]
        found = FilePosition(line - bisect_right(self._starts, begin), found.column)
        path = PurePath(self.file)
        found.file = str(path.with_name(name)) if path.name == "*.sql" else name
        return found

    def show(self, at: int) -> str:
        """Return a position as ``views/a.sql:3:1``; empty for a text without a file."""
        found = self.position(at)
        file = found.file if isinstance(found, FilePosition) else self.file
        return file and f"{file}:{found.line}:{found.column}"

    def location(self, at: int) -> str:
        """Return the location of an offset for users: file, line and column, or call."""
        if self._files or self._locate is not None:
            return self.show(at)
        begin, form = self._parts[bisect_right(self._parts, at, key=itemgetter(0)) - 1]
        line, column = self.position(at)
        return form.replace("{line}", str(line - self.position(begin).line + 1)).replace(
            "{column}", str(column)
        )

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a line and column."""
        return self._starts[min(line, len(self._starts)) - 1] + max(column, 1) - 1

    def key_position(self, path: KeyPath, /) -> Position:
        """Return the position of a key, or of the nearest key around it."""
        return self._find(path, self.keys)

    def value_position(self, path: KeyPath, /) -> Position:
        """Return the position of a value, or of the nearest value around it."""
        return self._find(path, self.values)

    def _find(self, path: KeyPath, first: dict[KeyPath, int]) -> Position:
        while path:
            for found in (first, self.keys):
                if path in found:
                    return self.position(found[path])
            path = path[:-1]
        return Position(1, 1)
