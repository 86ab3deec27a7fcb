"""The root command: the list of commands, and the one place where errors become exit codes."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Iterator, Mapping
from io import TextIOWrapper
from typing import Any

import click

from bicycle_runtime import __version__
from bicycle_runtime.cli.errors import InternalError, UsageRefusedError
from bicycle_runtime.cli.exit_codes import MEANINGS, exit_code_of
from bicycle_runtime.cli.rendering import error_text
from bicycle_sdk.errors import BicycleError

__all__ = ["RootGroup", "main"]

_ROOM = "bicycle_runtime.cli"
# Command -> module that has an attribute of that name.
_PLACES = {
    "cancel": "job_commands",
    "checkpoints": "checkpoints",
    "dev": "dev",
    "doctor": "doctor",
    "graph": "graph",
    "jobs": "jobs",
    "list": "job_commands",
    "logs": "logs",
    "new": "new",
    "plan": "plan",
    "plugins": "plugins",
    "replay": "replay",
    "rescale": "rescale",
    "run": "run",
    "savepoint": "savepoint",
    "state": "state",
    "status": "job_commands",
    "stop": "job_commands",
    "submit": "run",
}
_INTERRUPTED = 130
_JSON, _DEBUG = "--json", "--debug"


class _Commands(Mapping[str, click.Command]):
    """The commands by name, each imported when it is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        module = importlib.import_module(f"{_ROOM}.{_PLACES[name]}")
        command = getattr(module, f"{name}_command")
        assert isinstance(command, click.Command)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


class RootGroup(click.Group):
    """Runs one command and turns whatever it raises into words and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command. Text that the terminal has no letters for is escaped, and ends nothing."""
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        return super().main(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["words"] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        words = ctx.meta["words"]
        try:
            return super().invoke(ctx)
        except BicycleError as error:
            _show(error, words)
            ctx.exit(exit_code_of(error))
        except click.UsageError as error:
            if _JSON not in words:
                raise
            command = error.ctx.command_path if error.ctx else "bicycle"
            refused = UsageRefusedError(problem=error.format_message(), command=command)
            _show(refused, words)
            ctx.exit(exit_code_of(refused))
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(_INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001 - the last door: a bug is told as one.
            unknown = InternalError(
                exception=type(error).__name__, exception_message=str(error) or "no message"
            )
            _show(unknown, words)
            ctx.exit(exit_code_of(unknown))


def _show(error: BicycleError, words: tuple[str, ...]) -> None:
    """Write an error where people or programs look for it; our own traceback only when asked."""
    if _DEBUG in words:
        traceback.print_exc(file=sys.stderr)
    if _JSON in words:
        click.echo(json.dumps(error.to_json(), default=str))
    else:
        click.echo(error_text(error), err=True)


_HELP = "\n\n".join(
    [
        "Runs streaming jobs that others wrote, on Apache Spark.",
        "Jobs are plugins: wheels that are installed in the environment of this command. What is "
        "kept on this machine lies in the directory BICYCLE_HOME (default: ~/.bicycle).",
        "Exit codes: " + "; ".join(f"{code}: {text}" for code, text in MEANINGS.items()) + ".",
        "With --json a command writes one JSON document to its standard output: the answer, or the "
        "error with the keys code, message, fix and facts. With --debug it also shows Bicycle's "
        "own traceback of an error.",
    ]
)

main = RootGroup(
    name="bicycle",
    help=_HELP,
    commands=_Commands(),  # type: ignore[arg-type]  # it only reads them, and a Mapping is enough
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(__version__, package_name="bicycle-runtime", prog_name="bicycle")(main)
