"""The command ``bicycle``, and the root of a command line, which shows errors."""

from __future__ import annotations

import atexit
import contextlib
import gc
import sys
import warnings
from collections.abc import Iterator
from io import TextIOWrapper
from typing import Any

import click

from bicycle_sdk.entry_points import entry_points
from bicycle_sdk.former_names import FormerNameWarning
from bicycle_streams import __version__
from bicycle_streams.cli.commands import CommandGroup
from bicycle_streams.cli.exit_codes import MEANINGS

PROGRAM = "bicycle"
ENTRY_POINTS = "bicycle.command_line"  # The one named PROGRAM replaces the root.
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
JSON_HELP = (
    "With --json, a command prints one JSON document to standard output: its result, or an error "
    "with the keys code, message, fix and facts. With --debug, errors include the traceback of "
    "Bicycle."
)
EXIT_CODES = "\n".join(
    ["\b", "Exit codes:", *(f"  {f'{code}:':<5}{text}" for code, text in MEANINGS.items())]
)
_INTERRUPTED = 130
_JSON, _DEBUG = "--json", "--debug"


class CommandLine(CommandGroup):
    """The root command, which converts exceptions to error texts and exit codes."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; characters that the terminal cannot encode are escaped."""
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        return super().main(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["words"] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        words = ctx.meta["words"]
        try:
            with _former_names_shown():
                return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(_INTERRUPTED)
        except (click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:  # The last handler: other exceptions are bugs.
            if isinstance(error, click.ClickException) and not _is_document(error, words):
                raise
            # Slow to import, and needed after an error only.
            from bicycle_streams.cli.refusing import refuse

            ctx.exit(refuse(error, as_json=_JSON in words, is_debugged=_DEBUG in words))


@contextlib.contextmanager
def _former_names_shown() -> Iterator[None]:
    """Print warnings about former names of options without a location in our code."""
    show_other = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, FormerNameWarning):
            click.echo(f"warning: {message}", err=True)
        else:
            show_other(message, category, *where, **more)

    with warnings.catch_warnings(action="default", category=FormerNameWarning):
        warnings.showwarning = show
        yield


def _is_document(error: click.ClickException, words: tuple[str, ...]) -> bool:
    """Return whether invalid words are reported as JSON instead of usage."""
    return isinstance(error, click.UsageError) and _JSON in words


def streams_root() -> click.Command:
    """Return the root command without the commands of jobs."""
    # Slow to import, and not needed if another distribution provides the root.
    from bicycle_streams.cli.stream import stream_command
    from bicycle_streams.cli.token import token_command

    root = CommandLine(
        name=PROGRAM,
        help=f"Produce, read, copy and check streams.\n\n{JSON_HELP}",
        epilog=EXIT_CODES,
        commands={"stream": stream_command, "token": token_command},
        context_settings=CONTEXT,
    )
    return click.version_option(__version__, prog_name=PROGRAM)(root)


def main() -> Any:
    """Run ``bicycle`` with the root of another distribution, or of the toolkit."""
    atexit.register(gc.freeze)  # Python would search the objects of all modules for garbage.
    found = next((each for each in entry_points(ENTRY_POINTS) if each.name == PROGRAM), None)
    root = streams_root() if found is None else found.load()
    return root()
