"""Extensions: modules of other distributions, found by entry points, with hooks.

Hooks offer words, each with the place of its object; nothing is imported for that but the extension
itself. The caller decides about a failed extension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pluggy

__all__ = [
    "EXTENSION_ENTRY_POINT_GROUP",
    "HOOK_PROJECT",
    "Extension",
    "checked_words",
    "hooks_of",
    "installed_extensions",
]

HOOK_PROJECT = "bicycle"
EXTENSION_ENTRY_POINT_GROUP = "bicycle.extensions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """A module that offers parts of the runtime, not loaded yet."""

    name: str
    load: Callable[[], object]


def installed_extensions() -> list[Extension]:
    """Return the extensions of this installation."""
    from importlib_metadata import entry_points  # slow to import; needed once, not on workers

    points = entry_points(group=EXTENSION_ENTRY_POINT_GROUP)
    return [Extension(name=point.name, load=point.load) for point in points]


def hooks_of(extension: Extension, *specifications: type) -> pluggy.PluginManager:
    """Load one extension into a separate manager, so that a bad hook affects no other.

    Args:
        extension: The extension; whatever its module raises is raised here.
        specifications: Classes with the hooks that it may implement.
    """
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
