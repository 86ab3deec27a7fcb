"""Extensions: modules of other distributions, found by entry points, with hooks.

Hooks offer words, each with the location of its object; reading them imports only the extension
itself. The caller decides about a failed extension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from bicycle_sdk.entry_points import entry_points

if TYPE_CHECKING:
    import pluggy

T = TypeVar("T")

HOOK_PROJECT = "bicycle"
EXTENSION_ENTRY_POINT_GROUP = "bicycle.extensions"
_OWN = "bicycle-runtime"


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


class ExtensionRefusal(NamedTuple):
    """An extension, or one part of it, that cannot be used, and why."""

    extension: str
    reason: str

    def __str__(self) -> str:
        return f"extension {self.extension}: {self.reason}"


def other_extensions() -> list[Extension]:
    """Return the extensions of other distributions than this one."""
    return [each for each in installed_extensions() if each.distribution.partition(" ")[0] != _OWN]


def installed_extensions() -> list[Extension]:
    """Return the extensions of this installation."""
    return [
        Extension(name=point.name, load=point.load, distribution=point.distribution)
        for point in entry_points(EXTENSION_ENTRY_POINT_GROUP)
    ]


def own_and_offered(
    hook: str, own: Mapping[str, Any], extensions: Iterable[Extension],
    read: Callable[[str, Any, Extension | None], T],
) -> tuple[dict[str, T], list[ExtensionRefusal]]:  # fmt: skip
    """Return the parts of one kind by word: built-in parts, then parts of extensions.

    A bad extension affects no other. An extension cannot replace a part of another.

    Args:
        hook: Name of the function of the extension's module.
        own: The answer of our own hook.
        extensions: Other extensions.
        read: Gets word, offer and extension, None for ours. Returns the part; its errors refuse
            the extension.
    """
    parts = {word: read(word, offer, None) for word, offer in own.items()}
    owners: dict[str, str] = {}
    refusals = []
    for extension in sorted(extensions, key=lambda each: each.name):
        try:
            answer: Mapping[str, Any] = getattr(extension.load(), hook, dict)()
            offered = {word: read(word, offer, extension) for word, offer in answer.items()}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything.
            refusals.append(ExtensionRefusal(str(extension), f"{type(error).__name__}: {error}"))
            continue
        for word, part in offered.items():
            if word in parts:
                owner = owners.get(word, "bicycle-runtime")
                reason = f"the name {word!r} is already used by {owner}"
                refusals.append(ExtensionRefusal(str(extension), reason))
            else:
                parts[word], owners[word] = part, str(extension)
    return parts, refusals


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
