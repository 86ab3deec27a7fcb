"""Commands of ``bicycle`` by name: built-in ones, then commands of extensions.

A command is imported when it is run. An extension that cannot be loaded, or that offers a name
twice, becomes a refusal; the other commands work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, NotRequired, TypedDict

from bicycle_runtime.base.extensions import Extension, own_and_offered

EXTENSION_SECTION = "Extensions"
_NAME = re.compile(r"([a-z][a-z0-9-]* )?[a-z][a-z0-9-]*")
_FIELDS = ("location", "summary", "section")


class CommandOffer(TypedDict):
    """A command of the hook ``bicycle_commands``, by ``NAME`` or ``GROUP NAME``.

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

    @property
    def group(self) -> str:
        """The group of the command, empty for the root."""
        return self.name.rpartition(" ")[0]

    @property
    def word(self) -> str:
        """The name of the command in its group."""
        return self.name.rpartition(" ")[2]


class CommandTable(NamedTuple):
    """Commands by name, and the refused extensions with reasons."""

    commands: Mapping[str, Command]
    refusals: tuple[str, ...]

    def of_group(self, group: str) -> list[Command]:
        """Return the commands of a group; an empty text is the root."""
        return [each for each in self.commands.values() if each.group == group]

    def sections(self) -> dict[str, list[Command]]:
        """Return the commands of the root by section of the help."""
        found: dict[str, list[Command]] = {}
        for command in self.of_group(""):
            found.setdefault(command.section, []).append(command)
        return found


def command_table(
    builtin: Mapping[str, CommandOffer], extensions: Iterable[Extension]
) -> CommandTable:
    """Return the built-in commands, and the commands of extensions."""
    commands, refusals = own_and_offered(
        "bicycle_commands", builtin, extensions, partial(_command, builtin)
    )
    return CommandTable(commands, tuple(map(str, refusals)))


def _command(
    builtin: Mapping[str, CommandOffer], name: Any, offer: Any, extension: Extension | None
) -> Command:
    """Return a checked command.

    Raises:
        TypeError: the hook returned something else.
    """
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise TypeError(f"{name!r} is not a name of a command: use a to z, 0 to 9 and `-`")
    if " " in name and name.partition(" ")[0] not in builtin:
        raise TypeError(f"{name!r}: no group {name.partition(' ')[0]!r} of commands is built in")
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
    owner = "" if extension is None else str(extension)
    return Command(name=name, location=location, summary=summary, section=section, extension=owner)
