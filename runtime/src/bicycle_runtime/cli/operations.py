"""Commands that are derived from the ``OperationKind`` of an operation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from bicycle_runtime.cli.access import (
    JobAccess,
    LocalJobs,
    RemoteJobs,
    reached_jobs,
    reached_service,
)
from bicycle_runtime.cli.parameters import (
    complete_savepoint,
    declared_options,
    home,
    job_names,
    service_options,
)
from bicycle_runtime.cli.status_lines import show_status
from bicycle_runtime.jobs.operations.operation import OperationKind, Result
from bicycle_runtime.jobs.operations.savepoint import savepoint_line
from bicycle_runtime.jobs.operations.table import JOB_OPERATIONS
from bicycle_sdk.options import OptionInfo
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json

F = TypeVar("F", bound=Callable[..., Any])
_VALUE = "_value"  # The name of a positional argument is that of its option, and this.


def operation_command(kind: OperationKind) -> click.Command:
    """Return the command of an operation."""

    @command(kind.command.split()[-1], *kind.examples, help=f"{kind.summary}\n\n{kind.help}")
    @_arguments(kind)
    @_wheel_options(kind)
    @declared_options([info for info in kind.option_infos if not _is_argument(kind, info)])
    @_all_flag(kind)
    @service_options
    @answers
    def start(
        *, as_json: bool, job: str | None = None, is_all: bool = False, plan_only: bool = False,
        wheel: Path | None = None, lock: Path | None = None, **given: Any,
    ) -> None:  # fmt: skip
        for each in kind.positional:
            given[each] = _either(each, given.pop(each + _VALUE), given.get(each))
        if kind.selects and sum([is_all, *(bool(given[each]) for each in kind.selects)]) != 1:
            words = [_argument_text(kind, each) for each in kind.selects]
            raise click.UsageError(f"choose one of {', '.join(words)} or --all")
        for each in kind.locations:
            given[each] = _absolute(given[each])
        job = job or ""
        present = {name: value for name, value in given.items() if value not in (None, (), {})}
        chosen = kind.plan if plan_only and kind.plan else kind
        if wheel is None:
            # An operation without a job works on a location of this machine.
            jobs = LocalJobs(home()) if kind.job_option and not job else reached_jobs()
            options = chosen.parse(present)
            _show(chosen, job, jobs.perform(chosen, job, options), jobs, as_json=as_json)
            return
        chosen.parse({**present, kind.wheel: ""})  # A wrong option is reported before the upload.
        remote = reached_service()
        uploaded = {kind.wheel: remote.upload(wheel=wheel, lock=lock)["digest"]}
        jobs = RemoteJobs(remote)
        result = jobs.perform(chosen, job, chosen.parse({**present, **uploaded}))
        _show(chosen, job, {**result, **uploaded}, jobs, as_json=as_json)

    return start


def _show(kind: OperationKind, job: str, result: Result, jobs: JobAccess, *, as_json: bool) -> None:
    """Print the result of an operation."""
    if kind.report is None:
        status, saved = jobs.status(job), result.get("savepoint")
        if as_json:
            answer_json(status.to_json() | (dict(savepoint=saved) if saved else {}))
            return
        show_status(status)
        if saved:
            click.echo(savepoint_line(saved))
    elif as_json:
        answer_json({**({"job": job} if job else {}), **result})
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
                shell_complete=complete_savepoint if each in ("name", "url") else None,
            )(command)
        if kind.job_option:
            return click.option(
                "--job", metavar="JOB", shell_complete=job_names, help=kind.job_option
            )(command)
        return click.argument("job", shell_complete=job_names)(command) if kind.has_job else command

    return add


def _wheel_options(kind: OperationKind) -> Callable[[F], F]:
    file = click.Path(exists=True, dir_okay=False, path_type=Path)

    def add(command: F) -> F:
        if kind.plan is not None:
            text = "Show the effect on each state, without changes."
            command = click.option("--plan-only", is_flag=True, help=text)(command)
        if kind.wheel:
            text = "Lock file with versions and hashes of its libraries."
            command = click.option("--lock", type=file, help=text)(command)
            text = "Wheel of the new version."
            command = click.option("--wheel", type=file, required=True, help=text)(command)
        return command

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
    """Return whether an option has no flag: an argument, or the digest of a wheel."""
    is_positional = info.name in kind.positional and (info.is_list or info.is_required)
    return is_positional or info.name == kind.wheel


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


class _Commands:
    """The commands of one word, as attributes."""

    def __getattr__(self, name: str) -> click.Command:
        if name in JOB_OPERATIONS:
            return operation_command(JOB_OPERATIONS[name])
        # Slow to import, and only the operations of the service need it.
        from bicycle_runtime.service.operations.kinds import KINDS

        if name not in KINDS:
            raise AttributeError(name)
        return operation_command(KINDS[name])


COMMANDS = _Commands()
