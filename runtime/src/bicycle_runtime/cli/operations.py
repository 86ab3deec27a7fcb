"""Commands that are derived from the ``OperationKind`` of an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import click

from bicycle_runtime.cli.access import reached_jobs, service_options
from bicycle_runtime.cli.parameters import complete_savepoint, declared_options, job_names
from bicycle_runtime.cli.status_lines import show_status
from bicycle_runtime.jobs.operations.operation import OperationKind
from bicycle_runtime.jobs.operations.savepoint import savepoint_line
from bicycle_runtime.jobs.operations.table import JOB_OPERATIONS
from bicycle_sdk.options import OptionInfo
from bicycle_streams.cli.commands import examples
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json

__all__ = ["COMMANDS", "add_operations", "operation_command", "perform"]

F = TypeVar("F", bound=Callable[..., Any])
_VALUE = "_value"  # The name of a positional argument is that of its option, and this.


def operation_command(kind: OperationKind) -> click.Command:
    """Return the command of an operation."""

    @click.command(
        kind.command.split()[-1],
        help=f"{kind.summary}\n\n{kind.help}",
        epilog=examples(*kind.examples),
    )
    @_arguments(kind)
    @declared_options([info for info in kind.option_infos if not _is_argument(kind, info)])
    @_all_flag(kind)
    @service_options
    @answers
    def command(*, as_json: bool, job: str = "", is_all: bool = False, **given: Any) -> None:
        for each in kind.positional:
            given[each] = _either(each, given.pop(each + _VALUE), given.get(each))
        if kind.selects and sum([is_all, *(bool(given[each]) for each in kind.selects)]) != 1:
            words = [_argument_text(kind, each) for each in kind.selects]
            raise click.UsageError(f"choose one of {', '.join(words)} or --all")
        for each in kind.locations:
            given[each] = _absolute(given[each])
        perform(kind, job, given, as_json=as_json)

    return command


def perform(
    kind: OperationKind, job: str, given: Mapping[str, Any], *, as_json: bool
) -> None:  # fmt: skip
    """Run an operation on a job, and print its result.

    Args:
        kind: The operation.
        job: The job's id; empty for an operation without a job.
        given: Options as texts; absent ones are None or empty.
        as_json: Whether to print one JSON document.
    """
    present = {name: value for name, value in given.items() if value not in (None, (), {})}
    options = kind.parse(present)
    jobs = reached_jobs()
    result = jobs.perform(kind, job, options)
    if kind.report is None:
        status, saved = jobs.status(job), result.get("savepoint")
        if as_json:
            answer_json({**status.to_json(), **({"savepoint": saved} if saved else {})})
            return
        show_status(status)
        if saved:
            click.echo(savepoint_line(saved))
    elif as_json:
        answer_json({"job": job, **result})
    else:
        click.echo(kind.report(job, result))


def _arguments(kind: OperationKind) -> Callable[[F], F]:
    infos: dict[str, OptionInfo] = {info.name: info for info in kind.option_infos}

    def add(command: F) -> F:
        for each in reversed(kind.positional):
            info = infos[each]
            command = click.argument(
                each + _VALUE,
                required=info.is_required,
                nargs=-1 if info.is_list else 1,
                metavar=_metavar(info),
                shell_complete=complete_savepoint if each == "url" else None,
            )(command)
        return click.argument("job", shell_complete=job_names)(command) if kind.has_job else command

    return add


def _all_flag(kind: OperationKind) -> Callable[[F], F]:
    if not kind.selects:
        return lambda command: command
    return click.option("--all", "is_all", is_flag=True, help=kind.all_help)


def _metavar(info: OptionInfo) -> str:
    word = "NUMBER" if "number" in info.type_name else info.name.upper()
    if info.is_required:
        return word
    return f"[{word}]..." if info.is_list else f"[{word}]"


def _is_argument(kind: OperationKind, info: OptionInfo) -> bool:
    """Return whether an option is an argument only: it has no flag."""
    return info.name in kind.positional and (info.is_list or info.is_required)


def _argument_text(kind: OperationKind, name: str) -> str:
    return name.upper() if name in kind.positional else f"--{name.replace('_', '-')}"


def _absolute(location: str | None) -> str | None:
    """Return an absolute path, since a service has another working directory."""
    if location is None or "://" in location:
        return location
    return str(Path(location).expanduser().absolute())


def _either(name: str, positional: Any, flag: Any) -> Any:
    if positional and flag:
        raise click.UsageError(f"{name} is given twice, as an argument and as an option")
    return positional or flag


def add_operations(group: click.Group) -> None:
    """Add the commands of operations to the group that their first word names."""
    for kind in JOB_OPERATIONS.values():
        if kind.command.startswith(f"{group.name} "):
            group.add_command(operation_command(kind))


# The commands of one word, as attributes.
COMMANDS = SimpleNamespace(
    **{
        kind.command: operation_command(kind)
        for kind in JOB_OPERATIONS.values()
        if kind.command.isidentifier()
    }
)
