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
        "submit": ("run", "Submit a job to the background and print its id"),
        "stop": ("operations", "Stop a job gracefully after the current epoch"),
        "drain": ("operations", "Drain a job: end its input and process all remaining records"),
        "cancel": ("operations", "Cancel a job immediately, within an epoch"),
        "resume": ("operations", "Start an ended job again from its last sealed epoch"),
        "rescale": ("operations", "Change the parallelism of a running job"),
        "upgrade": ("upgrade", "Upgrade a running job to another version of its plugin"),
    },
    "Watch jobs": {
        "list": ("job_commands", "List the jobs of this machine, newest first"),
        "status": ("job_commands", "Show the state and progress of a job"),
        "logs": ("logs", "Show or follow the log of a submitted job"),
        "metrics": ("figures", "Show throughput, lag and other metrics of running jobs"),
        "workers": ("figures", "Show the processes of running jobs with CPU and memory"),
        "info": ("job_commands", "Show totals over all jobs, and which service answered"),
        "dlq": ("dlq", "List, show and replay dead letters"),
    },
    "Serve jobs": {
        "up": ("up", "Start the service: web UI, REST API and jobs behind one port"),
        "down": ("up", "Stop the service; its jobs continue"),
        "serve": (
            "serve",
            "Serve metrics of the jobs of this machine to Prometheus",
        ),
        "token": ("token", "Create, list and revoke access tokens of the service"),
    },
    "Streams": {
        "stream": ("stream", "Produce, read, copy and check streams without a job"),
    },
    "State and savepoints": {
        "savepoint": ("savepoint", "Create, list, inspect, restore and delete savepoints"),
        "checkpoints": ("checkpoints", "List the epochs in a checkpoint directory"),
        "state": ("state", "Query the state of a job at any retained epoch"),
    },
    "Develop jobs": {
        "new": ("new", "Create a plugin project with a job and its tests"),
        "pipeline": ("pipeline", "Create, check, test and convert pipelines (TOML or YAML)"),
        "plugins": ("plugins", "List, check and lock installed plugins"),
        "graph": ("graph", "Show the chains, stages and parallelism of a job"),
        "plan": ("plan", "Show the guarantee, state and warnings of a job before it runs"),
        "replay": ("replay", "Replay an epoch of a job to debug it"),
        "dev": ("dev", "Start a Kafka broker or a Spark cluster for development"),
    },
    "Maintain": {
        "doctor": ("doctor", "Check whether this machine can run jobs"),
        "jobs": ("jobs", "Remove the files of ended jobs"),
        "completion": ("completion", "Print a completion script for a shell"),
    },
}
_MODULES = {name: module for commands in SECTIONS.values() for name, module in commands.items()}
_INTERRUPTED = 130
_JSON, _DEBUG = "--json", "--debug"


class _Commands(Mapping[str, click.Command]):
    """The commands by name, each imported when it is requested."""

    def __getitem__(self, name: str) -> click.Command:
        module = importlib.import_module(f"{_ROOM}.{_MODULES[name][0]}")
        command = getattr(module, f"{name}_command")
        assert isinstance(command, click.Command)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


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
        width = max(map(len, _MODULES))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(n.ljust(width), text) for n, (_, text) in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands with summaries, without importing them, and the options."""
        found = [
            CompletionItem(name, help=summary)
            for name, (_, summary) in _MODULES.items()
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
    commands=_Commands(),  # type: ignore[arg-type]  # it only reads them, and a Mapping is enough
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(__version__, package_name="bicycle-runtime", prog_name="bicycle")(main)
