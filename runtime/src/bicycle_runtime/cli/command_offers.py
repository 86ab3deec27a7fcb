"""Commands of ``bicycle`` by name: built-in ones, then commands of extensions.

A command is imported when it is run. An extension that cannot be loaded, or that offers a name
twice, becomes a refusal; the other commands work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict

if TYPE_CHECKING:
    from bicycle_runtime.base.extensions import Extension

__all__ = ["EXTENSION_SECTION", "Command", "CommandOffer", "CommandTable", "command_table"]

EXTENSION_SECTION = "Extensions"
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_FIELDS = ("location", "summary", "section")


class CommandOffer(TypedDict):
    """A command that the hook ``bicycle_commands`` offers.

    Attributes:
        location: ``"module:name"`` of a click command.
        summary: First sentence of the help, without the full stop.
        section: Section of ``bicycle --help``. Default: Extensions.
    """

    location: str
    summary: str
    section: NotRequired[str]


class Command(NamedTuple):
    """A command that is not imported yet; ``extension`` is empty for a built-in one."""

    name: str
    location: str
    summary: str
    section: str
    extension: str = ""


class CommandTable(NamedTuple):
    """Commands by name, and the refused extensions with reasons."""

    commands: Mapping[str, Command]
    refusals: tuple[str, ...]

    def sections(self) -> dict[str, list[Command]]:
        """Return the commands by section of the help."""
        found: dict[str, list[Command]] = {}
        for command in self.commands.values():
            found.setdefault(command.section, []).append(command)
        return found


def command_table(
    builtin: Mapping[str, CommandOffer], extensions: Iterable[Extension]
) -> CommandTable:
    """Return the built-in commands, and the commands of extensions."""
    commands = {name: _command(name, offer) for name, offer in builtin.items()}
    refusals = []
    for extension in sorted(extensions, key=lambda each: each.name):
        try:
            hook = getattr(extension.load(), "bicycle_commands", dict)
            offered = [_command(name, offer, str(extension)) for name, offer in hook().items()]
        except Exception as error:  # noqa: BLE001 - a module of an extension may raise anything.
            refusals.append(f"extension {extension}: {type(error).__name__}: {error}")
            continue
        for command in offered:
            if command.name in commands:
                owner = commands[command.name].extension or "bicycle-runtime"
                reason = f"the name {command.name!r} is already used by {owner}"
                refusals.append(f"extension {extension}: {reason}")
            else:
                commands[command.name] = command
    return CommandTable(commands, tuple(refusals))


def _command(name: Any, offer: Any, extension: str = "") -> Command:
    """Return a checked command.

    Raises:
        TypeError: the hook returned something else.
    """
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise TypeError(f"{name!r} is not a name of a command: use a to z, 0 to 9 and `-`")
    if not isinstance(offer, Mapping) or not all(isinstance(each, str) for each in offer.values()):
        raise TypeError(f"{name!r}: {offer!r} is not a dict of texts")
    if unknown := set(offer) - set(_FIELDS):
        raise TypeError(f"{name!r}: unknown key {min(unknown)!r}, use {', '.join(_FIELDS)}")
    location, summary = offer.get("location", ""), offer.get("summary", "").rstrip(".")
    if location.count(":") != 1:
        raise TypeError(f"{name!r}: location must be 'module:name', got {location!r}")
    if not summary or "\n" in summary:
        raise TypeError(f"{name!r}: summary must be one line, got {summary!r}")
    section = offer.get("section") or EXTENSION_SECTION
    return Command(
        name=name, location=location, summary=summary, section=section, extension=extension
    )
