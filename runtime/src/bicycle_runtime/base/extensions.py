"""Extensions: modules of other distributions, found by entry points, with hooks.

Hooks offer words, each with the location of its object; reading them imports only the extension
itself. The caller decides about a failed extension.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pluggy

__all__ = [
    "EXTENSION_ENTRY_POINT_GROUP",
    "HOOK_PROJECT",
    "Extension",
    "checked_words",
    "entry_lines",
    "hooks_of",
    "installed_extensions",
    "load_object",
]

HOOK_PROJECT = "bicycle"
EXTENSION_ENTRY_POINT_GROUP = "bicycle.extensions"
_METADATA = ("dist-info", "egg-info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """A module that offers parts of the runtime, not loaded yet.

    Attributes:
        name: Name of the entry point.
        load: Imports and returns the module.
        distribution: Name and version of the distribution with the entry point.
    """

    name: str
    load: Callable[[], object]
    distribution: str = ""

    def __str__(self) -> str:
        return f"{self.name} of {self.distribution}" if self.distribution else self.name


def installed_extensions() -> list[Extension]:
    """Return the extensions of this installation.

    The command line reads them at each start, so this takes 1 ms for 100 distributions, and imports
    nothing; the entry points of ``importlib.metadata`` take 30 ms.
    """
    found: dict[str, list[Extension]] = {}
    for distribution, text in _entry_point_files(sys.path):
        # Of a distribution in two folders, the first one is imported.
        found.setdefault(distribution.partition(" ")[0], list(_extensions(distribution, text)))
    return [each for extensions in found.values() for each in extensions]


def _extensions(distribution: str, text: str) -> Iterator[Extension]:
    for line in entry_lines(text, EXTENSION_ENTRY_POINT_GROUP):
        name, _, target = (part.strip() for part in line.partition("="))
        load = partial(load_object, target.partition("[")[0].strip())
        yield Extension(name=name, load=load, distribution=distribution)


def _entry_point_files(path: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each installed distribution with the text of its entry points."""
    for folder in path:
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
    from importlib_metadata import distributions  # slow to import, and archives are rare

    for each in distributions(path=[path]):
        yield f"{each.name.lower()} {each.version}", each.read_text("entry_points.txt") or ""


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


def load_object(location: str) -> Any:
    """Import and return a module, or an object of it given as ``"module:name"``."""
    from pkgutil import resolve_name  # slow to import, and not needed to list commands

    return resolve_name(location)


def hooks_of(extension: Extension, *specifications: type) -> pluggy.PluginManager:
    """Load one extension into a separate manager, so that a bad hook affects no other.

    Args:
        extension: The extension; whatever its module raises is raised here.
        specifications: Classes with the hooks that it may implement.
    """
    import pluggy  # slow to import, and not needed to list commands

    manager = pluggy.PluginManager(HOOK_PROJECT)
    for specification in specifications:
        manager.add_hookspecs(specification)
    manager.register(extension.load(), extension.name)
    return manager


def checked_words(answers: Iterable[Mapping[Any, Any]]) -> dict[str, str]:
    """Return the answers of a hook: word -> ``"module:name"``.

    Raises:
        TypeError: an answer is something else.
    """
    words = {word: location for answer in answers for word, location in dict(answer).items()}
    for word, location in words.items():
        if not (isinstance(word, str) and isinstance(location, str) and location.count(":") == 1):
            raise TypeError(f"{word!r}: {location!r} is not a word and a 'module:Class'")
    return words
