"""The root command with all commands: built-in ones, and commands of extensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

import click

from bicycle_runtime import __version__
from bicycle_runtime.base.extensions import other_extensions
from bicycle_runtime.cli.builtin import bicycle_commands
from bicycle_runtime.cli.command_offers import Command, CommandTable, command_table
from bicycle_sdk.entry_points import load_object
from bicycle_streams.cli.commands import examples
from bicycle_streams.cli.root import CONTEXT, EXIT_CODES, JSON_HELP, PROGRAM, CommandLine

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@cache
def _own_commands() -> CommandTable:
    return command_table(bicycle_commands(), ())


@cache
def _all_commands() -> CommandTable:
    """Return all commands. The modules of extensions are imported, but no command."""
    return command_table(bicycle_commands(), other_extensions())


class _Commands(Mapping[str, click.Command]):
    """The commands of a group; offered commands are imported when requested.

    Extensions are asked only for names that are not built in.

    Args:
        group: The group; empty for the root.
        own: The commands of the group itself.
    """

    def __init__(self, group: str = "", own: Mapping[str, click.Command] | None = None) -> None:
        self._group = group
        self._own = own or {}

    def __getitem__(self, name: str) -> click.Command:
        if name in self._own:
            return self._own[name]
        path = f"{self._group} {name}".lstrip()
        found = _own_commands().commands.get(path) or _all_commands().commands.get(path)
        if found is not None and found.word == name:
            return _load(found)
        if refusals := _all_commands().refusals:
            # Slow to import, and needed for the bad case only.
            from bicycle_runtime.cli.errors import COMMAND_UNKNOWN

            raise COMMAND_UNKNOWN(name=name, refusal_text="; ".join(refusals))
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        offered = _all_commands().of_group(self._group)
        return iter(dict.fromkeys([*self._own, *(each.word for each in offered)]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _load(command: Command) -> click.Command:
    """Import and return the function of a command.

    Raises:
        EXTENSION_COMMAND_UNUSABLE: the module of the extension cannot be imported, or has no such
            command.
    """
    try:
        found: object = load_object(command.location)
        if not isinstance(found, click.Command):
            raise TypeError(f"{command.location} is not a click command")
    except Exception as error:
        if not command.extension:
            raise
        # Slow to import, and needed for the bad case only.
        from bicycle_runtime.cli.errors import EXTENSION_COMMAND_UNUSABLE

        raise EXTENSION_COMMAND_UNUSABLE(
            name=command.name, extension=command.extension,
            reason=f"{type(error).__name__}: {error}",
        ) from error  # fmt: skip
    if isinstance(found, click.Group) and not isinstance(found.commands, _Commands):
        # click only reads them.
        found.commands = _Commands(command.name, found.commands)  # type: ignore[assignment]
    return found


class RootGroup(CommandLine):
    """Shows the commands by purpose, without importing any."""

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  # the contract
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands by purpose, without importing any."""
        table = _all_commands()
        width = max(len(each.name) for each in table.of_group(""))
        for title, commands in table.sections().items():
            with formatter.section(title):
                formatter.write_dl([(each.name.ljust(width), each.summary) for each in commands])
        if table.refusals:
            with formatter.section("Extensions that failed to load"):
                for refusal in table.refusals:
                    formatter.write_text(refusal)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands with summaries, without importing them, and the options."""
        from click.shell_completion import CompletionItem  # not needed to run a command

        found = [
            CompletionItem(command.name, help=command.summary)
            for command in _all_commands().of_group("")
            if command.name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)


_HELP = "\n\n".join(
    [
        "Run streaming jobs on Apache Spark, with exactly-once results that survive any crash.",
        "Jobs are plugins (wheels in the environment of this command), Python files, SQL files or "
        "pipelines. "
        "Job data on this machine is in the directory BICYCLE_HOME (default: ~/.bicycle).",
        JSON_HELP,
    ]
)
_EXAMPLES = examples(
    "bicycle run clicks.py --set input=clicks.csv --checkpoint-dir checkpoints",
    "bicycle status clicks",
    "bicycle run --help",
)
main = RootGroup(
    name=PROGRAM,
    help=_HELP,
    epilog=f"{EXIT_CODES}\n\n{_EXAMPLES}",
    commands=_Commands(),  # type: ignore[arg-type]  # click only reads them
    context_settings=CONTEXT,
)
click.version_option(__version__, package_name="bicycle-runtime", prog_name=PROGRAM)(main)
