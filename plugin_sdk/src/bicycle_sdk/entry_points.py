"""Entry points of installed distributions, read at each start of the command line.

Reading takes 1 ms for 100 distributions, and imports nothing. The module ``importlib.metadata`` of
the standard library takes 30 ms, most of them to import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

__all__ = ["EntryPoint", "entry_lines", "entry_points", "load_object"]

_METADATA = ("dist-info", "egg-info")


class EntryPoint(NamedTuple):
    """One entry point of a distribution.

    Attributes:
        name: The name.
        location: ``"module"`` or ``"module:name"`` of its object.
        distribution: Name and version of the distribution.
    """

    name: str
    location: str
    distribution: str

    def load(self) -> Any:
        """Import and return the object."""
        return load_object(self.location)


def entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, in the order of ``sys.path``."""
    found: dict[str, list[EntryPoint]] = {}
    for distribution, text in _files():
        points = [_point(line, distribution) for line in entry_lines(text, group)]
        # Of a distribution in two folders, the first one is imported.
        found.setdefault(distribution.partition(" ")[0], points)
    return [point for points in found.values() for point in points]


def load_object(location: str) -> Any:
    """Import and return a module, or an object of it given as ``"module:name"``."""
    module, _, name = location.partition(":")
    found: Any = import_module(module)
    for part in filter(None, name.split(".")):
        found = getattr(found, part)
    return found


def entry_lines(text: str, group: str) -> list[str]:
    """Return the lines of one group of an ``entry_points.txt``."""
    lines: list[str] = []
    section = ""
    for raw in text.splitlines() if group in text else ():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif section == group and line and line[0] not in "#;":
            lines.append(line)
    return lines


def _point(line: str, distribution: str) -> EntryPoint:
    name, _, target = line.partition("=")
    return EntryPoint(name.strip().strip("\"'"), target.partition("[")[0].strip(), distribution)


def _files() -> Iterator[tuple[str, str]]:
    """Yield each installed distribution with the text of its entry points."""
    for folder in sys.path:
        try:
            names = sorted(os.listdir(folder or "."))  # noqa: PTH208 - pathlib takes 5 ms to import
        except NotADirectoryError:
            yield from _in_archive(folder)
            continue
        except OSError:
            continue
        for each in names:
            stem, _, ending = each.rpartition(".")
            if ending in _METADATA:
                name, _, version = stem.partition("-")
                text = _text(f"{folder or '.'}/{each}/entry_points.txt")
                yield f"{name.lower().replace('_', '-')} {version}", text


def _text(path: str) -> str:
    """Return the text of a file; empty for one that does not exist or is not text."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes 5 ms to import
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def _in_archive(path: str) -> Iterator[tuple[str, str]]:
    from importlib.metadata import distributions  # slow to import, and archives are rare

    for each in distributions(path=[path]):
        yield f"{each.name.lower()} {each.version}", each.read_text("entry_points.txt") or ""
