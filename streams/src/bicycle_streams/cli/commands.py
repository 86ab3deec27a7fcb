"""Help: groups that show summaries whole, options in sections, examples below."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import click

from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import show_overview

_WHOLE = 1_000  # Characters: no summary is cut.


class CommandGroup(click.Group):
    """A group whose help shows the first sentence of each command, whole."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of this group."""
        names = self.list_commands(ctx)
        found = [(name, self.get_command(ctx, name)) for name in names]
        rows = [
            (name, each.get_short_help_str(_WHOLE).rstrip("."))
            for name, each in found
            if each is not None
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class CommandWithSections(click.Command):
    """A command whose help shows its options in sections.

    Args:
        sections: Names of parameters by the title of their section; the others come last.
    """

    def __init__(
        self, *parts: Any, sections: Mapping[str, Collection[str]], **settings: Any
    ) -> None:
        super().__init__(*parts, **settings)
        self._sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        titles = {name: title for title, names in self._sections.items() for name in names}
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in self._sections}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None and isinstance(parameter, click.Option):
                rows.setdefault(titles.get(str(parameter.name), "Other options"), []).append(row)
        for title, found in rows.items():
            if found:
                with formatter.section(title):
                    formatter.write_dl(found)


def examples(*lines: str) -> str:
    """Return the examples at the end of the help of a command."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def command(
    name: str, *lines: str, group: click.Group | None = None, **settings: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return the decorator of a command with examples.

    Args:
        name: Name of the command.
        lines: Examples.
        group: Its group; None for a command that is added elsewhere.
        settings: Arguments of ``click.command``.
    """
    make: Any = click.command if group is None else group.command
    made: Callable[[Callable[..., Any]], click.Command]
    made = make(name, epilog=examples(*lines), **settings)
    return made


def command_group(name: str, text: str, *lines: str) -> click.Group:
    """Return a group of commands; called without a command, it lists them.

    Args:
        name: Name of the group.
        text: Its help.
        lines: Examples.
    """

    @click.group(
        name, cls=CommandGroup, invoke_without_command=True, help=text, epilog=examples(*lines)
    )
    @answers
    @click.pass_context
    def group(context: click.Context, *, as_json: bool) -> None:
        show_overview(context, as_json=as_json)

    return group
