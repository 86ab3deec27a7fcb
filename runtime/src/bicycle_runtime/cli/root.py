"""The root command: the list of commands, and exit codes of errors."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from io import TextIOWrapper
from typing import Any

import click
from click.shell_completion import CompletionItem

from bicycle_runtime import __version__
from bicycle_runtime.cli.exit_codes import MEANINGS

__all__ = ["RootGroup", "main"]

_ROOM = "bicycle_runtime.cli"
# Purpose -> command -> the module that has it, and the first sentence of its help.
SECTIONS = {
    "Run jobs": {
        "run": ("run", "Run a job in the foreground"),
        "submit": ("run", "Run a job in a process of its own, and print its id"),
        "stop": ("job_commands", "Stop a job cleanly, at the end of an epoch"),
        "drain": ("job_commands", "End a job as if its input had ended"),
        "cancel": ("job_commands", "End a job at once, in the middle of whatever it does"),
        "resume": ("job_commands", "Start an ended job again, after its last sealed epoch"),
        "rescale": ("rescale", "Change the parallelism of a running job"),
        "upgrade": ("upgrade", "Let a running job go on with another version of its plugin"),
    },
    "Watch jobs": {
        "list": ("job_commands", "List the jobs of this machine, the newest first"),
        "status": ("job_commands", "Show how a job is doing"),
        "logs": ("logs", "Show the log of a submitted job"),
        "metrics": ("figures", "Show the figures of a job, or of all"),
        "workers": ("figures", "Show the processes of running jobs, and what they use"),
        "info": ("job_commands", "Show what all jobs come to, and who was asked for it"),
        "dlq": ("dlq", "Look at dead letters, and replay them"),
    },
    "Serve jobs": {
        "up": ("up", "Serve the jobs of this machine behind one port"),
        "down": ("up", "End the service; jobs go on"),
        "serve": (
            "serve",
            "Serve the figures of this machine's jobs to Prometheus",
        ),
        "token": ("token", "Make, list and revoke tokens: who may use the service"),
    },
    "Streams": {
        "stream": ("stream", "Produce, show, copy and check streams, without a job"),
    },
    "State and savepoints": {
        "savepoint": ("savepoint", "Take, list, look into, move and remove savepoints"),
        "checkpoints": ("checkpoints", "List the epochs that a checkpoint directory retains"),
        "state": ("state", "Look into the state of a job, as of any retained epoch"),
    },
    "Develop jobs": {
        "new": ("new", "Make a plugin project with a job and its tests"),
        "pipeline": ("pipeline", "Work with pipelines, the jobs that are a file of TOML or YAML"),
        "plugins": ("plugins", "List the installed plugins, or check them"),
        "graph": ("graph", "Show the chains, stages and parallelism of a job"),
        "plan": ("plan", "Show what a job guarantees, its state and warnings"),
        "replay": ("replay", "Run an epoch of a job once more, to debug it"),
        "dev": ("dev", "Run a Kafka broker or a Spark cluster for development"),
    },
    "Maintain": {
        "doctor": ("doctor", "Check whether this machine can run jobs"),
        "jobs": ("jobs", "Tidy up what is kept of jobs"),
        "completion": ("completion", "Print the script that completes words in a shell"),
    },
}
_PLACES = {name: place for commands in SECTIONS.values() for name, place in commands.items()}
_INTERRUPTED = 130
_JSON, _DEBUG = "--json", "--debug"


class _Commands(Mapping[str, click.Command]):
    """The commands by name, each imported when it is requested."""

    def __getitem__(self, name: str) -> click.Command:
        module = importlib.import_module(f"{_ROOM}.{_PLACES[name][0]}")
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

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  # the contract
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands by purpose, without importing any."""
        width = max(map(len, _PLACES))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(n.ljust(width), text) for n, (_, text) in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands with summaries, without importing them, and the options."""
        found = [
            CompletionItem(name, help=summary)
            for name, (_, summary) in _PLACES.items()
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
        "Runs streaming jobs that others wrote, on Apache Spark.",
        "Jobs are plugins: wheels that are installed in the environment of this command. What is "
        "kept on this machine lies in the directory BICYCLE_HOME (default: ~/.bicycle).",
        "With --json a command writes one JSON document to its standard output: the answer, or the "
        "error with the keys code, message, fix and facts. With --debug it also shows Bicycle's "
        "own traceback of an error.",
    ]
)
_EXIT_CODES = "\n".join(
    ["\b", "Exit codes:", *(f"  {f'{code}:':<5}{text}" for code, text in MEANINGS.items())]
)

main = RootGroup(
    name="bicycle",
    help=_HELP,
    epilog=_EXIT_CODES,
    commands=_Commands(),  # type: ignore[arg-type]  # it only reads them, and a Mapping is enough
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(__version__, package_name="bicycle-runtime", prog_name="bicycle")(main)
