"""The positions of keys and values in a TOML text: ``tomllib`` knows and does not tell them.

The text is known to be TOML, so this is no parser: it only follows headers, keys, and the brackets
and quotes of values.
"""

from __future__ import annotations

import re

__all__ = ["toml_places"]

_Path = tuple[str | int, ...]
_Places = dict[_Path, tuple[int, int]]

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"""[ \t]*(?:(?P<bare>[\w-]+)|"(?P<basic>(?:\\.|[^"\\])*)"|'(?P<raw>[^']*)')""")
_DOT = re.compile(r"[ \t]*\.[ \t]*")
_STRING = re.compile(
    r"\"\"\"(?:\\.|[^\\])*?\"{3,5}|'''.*?'{3,5}|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'", re.DOTALL
)
_WORD = re.compile(r"[^,\]}\n#]+")


def toml_places(text: str) -> tuple[_Places, _Places]:
    r"""Return line and column, from 1, of each key and of each value, by path.

    Args:
        text: TOML that ``tomllib`` has read.

    Example:
        >>> keys, values = toml_places('[a]\nb = [1,\n  2]')
        >>> keys["a", "b"], values["a", "b", 1]
        ((2, 1), (3, 3))
    """
    scan = _Scan(text)
    scan.document()
    return scan.keys, scan.values


class _Scan:
    """A walk through one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._counts: dict[_Path, int] = {}
        self.keys: _Places = {}
        self.values: _Places = {}

    def document(self) -> None:
        table: _Path = ()
        self._skip()
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip()

    def _header(self) -> _Path:
        begin = self._at
        is_array = self._text.startswith("[[", begin)
        self._at += 2 if is_array else 1
        names = self._dotted()
        self._at = self._text.index("]", self._at) + (2 if is_array else 1)
        path = self._resolved(names[:-1] if is_array else names, begin)
        if is_array:
            path = (*path, names[-1])
            self._note(self.keys, path, begin)
            self._counts[path] = self._counts.get(path, -1) + 1
            path = (*path, self._counts[path])
        self._note(self.keys, path, begin)
        return path

    def _resolved(self, names: list[str], begin: int) -> _Path:
        """Return the path of a header: a name of an array means its last table."""
        path: _Path = ()
        for name in names:
            path = (*path, name)
            self._note(self.keys, path, begin)
            if path in self._counts:
                path = (*path, self._counts[path])
        return path

    def _pair(self, table: _Path) -> None:
        begin = self._at
        path: _Path = table
        for name in self._dotted():
            path = (*path, name)
            self.keys.setdefault(path, self._place(begin))
        self._at = self._text.index("=", self._at) + 1
        self._skip()
        self._value(path)

    def _dotted(self) -> list[str]:
        names = []
        while (match := _KEY.match(self._text, self._at)) is not None:
            names.append(match["bare"] or match["basic"] or match["raw"] or "")
            self._at = match.end()
            dot = _DOT.match(self._text, self._at)
            if dot is None:
                break
            self._at = dot.end()
        return names

    def _value(self, path: _Path) -> None:
        self._note(self.values, path, self._at)
        match self._text[self._at]:
            case "[":
                self._items(path)
            case "{":
                self._inline(path)
            case '"' | "'":
                string = _STRING.match(self._text, self._at)
                assert string is not None
                self._at = string.end()
            case _:
                word = _WORD.match(self._text, self._at)
                assert word is not None
                self._at = word.end()

    def _items(self, path: _Path) -> None:
        self._at += 1
        index = 0
        self._skip()
        while self._text[self._at] != "]":
            self._value((*path, index))
            index += 1
            self._skip_comma()
        self._at += 1

    def _inline(self, path: _Path) -> None:
        self._at += 1
        self._skip()
        while self._text[self._at] != "}":
            self._pair(path)
            self._skip_comma()
        self._at += 1

    def _skip_comma(self) -> None:
        self._skip()
        if self._text[self._at] == ",":
            self._at += 1
            self._skip()

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _note(self, places: _Places, path: _Path, at: int) -> None:
        places.setdefault(path, self._place(at))

    def _place(self, at: int) -> tuple[int, int]:
        return self._text.count("\n", 0, at) + 1, at - self._text.rfind("\n", 0, at)
