"""The root command: the list of commands, and exit codes of errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

import click

from bicycle_runtime import __version__
from bicycle_runtime.base.extensions import Extension, installed_extensions, load_object
from bicycle_runtime.cli.builtin import bicycle_commands
from bicycle_runtime.cli.command_offers import Command, CommandTable, command_table
from bicycle_runtime.cli.exit_codes import MEANINGS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["RootGroup", "main"]

_OWN = "bicycle-runtime"
_INTERRUPTED = 130
_JSON, _DEBUG = "--json", "--debug"


@cache
def _own_commands() -> CommandTable:
    return command_table(bicycle_commands(), ())


@cache
def _all_commands() -> CommandTable:
    """Return all commands. The modules of extensions are imported, but no command."""
    return command_table(bicycle_commands(), _other_extensions())


def _other_extensions() -> list[Extension]:
    return [each for each in installed_extensions() if each.distribution.partition(" ")[0] != _OWN]


class _Commands(Mapping[str, click.Command]):
    """The commands by name, each imported when it is requested.

    Extensions are asked only for names that are not built in.
    """

    def __getitem__(self, name: str) -> click.Command:
        found = _own_commands().commands.get(name) or _all_commands().commands.get(name)
        if found is not None:
            return _load(found)
        if refusals := _all_commands().refusals:
            # Slow to import, and needed for the bad case only.
            from bicycle_runtime.cli.errors import COMMAND_UNKNOWN

            raise COMMAND_UNKNOWN(name=name, refusal_text="; ".join(refusals))
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_all_commands().commands)

    def __len__(self) -> int:
        return len(_all_commands().commands)


def _load(command: Command) -> click.Command:
    """Import and return the function of a command.

    Raises:
        EXTENSION_COMMAND_UNUSABLE: the module of the extension cannot be imported, or has no such
            command.
    """
    try:
        found = load_object(command.location)
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
    return found


class RootGroup(click.Group):
    """Runs one command and turns whatever it raises into words and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command. Text that the terminal has no letters for is escaped, and ends nothing."""
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        return super().main(*args, **kwargs)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  # the contract
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands by purpose, without importing any."""
        table = _all_commands()
        width = max(map(len, table.commands))
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
            CompletionItem(name, help=command.summary)
            for name, command in _all_commands().commands.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["words"] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        words = ctx.meta["words"]
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(_INTERRUPTED)
        except (click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:  # The last door: a bug is told as one.
            if isinstance(error, click.ClickException) and not _is_document(error, words):
                raise
            # Slow to import, and needed for the bad case only.
            from bicycle_runtime.cli.refusing import refuse

            ctx.exit(refuse(error, as_json=_JSON in words, is_debugged=_DEBUG in words))


def _is_document(error: click.ClickException, words: tuple[str, ...]) -> bool:
    """Return whether invalid words are reported as JSON instead of usage."""
    return isinstance(error, click.UsageError) and _JSON in words


_HELP = "\n\n".join(
    [
        "Run streaming jobs on Apache Spark, with exactly-once results that survive any crash.",
        "Jobs are plugins (wheels in the environment of this command), Python files or pipelines. "
        "Job data on this machine is in the directory BICYCLE_HOME (default: ~/.bicycle).",
        "With --json, a command prints one JSON document to standard output: its result, or an "
        "error with the keys code, message, fix and facts. With --debug, errors include the "
        "traceback of Bicycle.",
    ]
)
_EXIT_CODES = "\n".join(
    ["\b", "Exit codes:", *(f"  {f'{code}:':<5}{text}" for code, text in MEANINGS.items())]
)

main = RootGroup(
    name="bicycle",
    help=_HELP,
    epilog=_EXIT_CODES,
    commands=_Commands(),  # type: ignore[arg-type]  # click only reads them
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(__version__, package_name="bicycle-runtime", prog_name="bicycle")(main)
