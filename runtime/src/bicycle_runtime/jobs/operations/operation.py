"""An operation on a job, declared once: its options, its effect, its texts.

The command, local and remote access, the REST route, the gRPC call, the form on the page, the audit
entry and the reference are derived from an ``OperationKind``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobStatus
from bicycle_sdk.clock import Clock
from bicycle_sdk.options import OptionInfo, describe, from_mapping

Result = dict[str, Any]
Availability = Literal["running", "active", "not canceling", "ended", "attention", "always"]


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of an operation without options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCall:
    """One request for an operation.

    Attributes:
        home: The folder that contains the jobs.
        clock: The time of day, and of waiting.
        job: The job's id; empty for an operation without a job.
        token: Identifies the request. A request that is repeated after a crash has the same token.
        asked_ms: Time of the request, in ms since 1970.
        open_tokens: Returns the tokens of the operations of a kind that have not ended.
    """

    home: Home
    clock: Clock
    job: str
    token: str
    asked_ms: int
    open_tokens: Callable[[str], Collection[str]] = lambda _kind: ()


def _keep(_call: OperationCall, options: Any) -> Any:
    return options


@cache
def _describe_once(options: type[Any]) -> tuple[OptionInfo, ...]:
    return tuple(describe(options))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationKind:
    """One kind of operation.

    Attributes:
        name: The word of the kind in REST paths, gRPC, the audit log and the operations table.
        summary: One sentence for the command line, the API reference and the page.
        options: A dataclass of ``option`` fields, or a msgspec Struct for nested data.
        settle: Checks the options before the operation is accepted, and fills in the values that
            are chosen at that time, so that a restarted service finds them.
        stored: The type of the settled options, which are stored; None for that of the options.
        verify: A check that takes seconds; the last one before the operation is accepted.
        perform: Runs the operation; it may take minutes.
        find: Called after a restart of the service. Returns the result of an operation that was
            completed, None for one that was not.
        is_repeatable: A second run after a crash has no further effect.
        needs_running: A job that has ended refuses the operation.
        available: The states of a job in which the page shows the button.
        path: Path of the REST route; empty for an operation without one. Options that the path
            names are not in the body.
        method: Method of the REST route.
        second_route: Method and path of a second REST route without a body; None for none.
        button: Label of the button on the job's page; empty for an operation without a button.
        tab: The tab of the job's page that has the button; empty for the head of the page.
        question: The text of the form before the operation is done. ``{job}``, ``{epoch}``,
            ``{unread}`` and ``{name}`` of a savepoint are replaced.
        inputs: The options that the form has fields for.
        from_form: Returns the options for the fields of the form of a job; None uses the fields.
        current: Returns the initial values of these fields.
        title: Heading of the page that shows the operation. ``{job}`` and ``{file}`` are replaced.
        progress: The text of this page while the operation runs.
        waits_for_epoch: The operation of a running job begins after its current epoch.
        is_bulk: The list of jobs offers the operation for the selected jobs.
        shown: The state of a job while the operation runs; empty for the state of its driver.
        is_destructive: The job ends, or data is removed.
        is_exception: A failure is listed among the exceptions of the job.
        starts_job: The operation waits until the slots of a job are free.
        rpc: Method of the gRPC service with a request of its own; empty for the general method.
        with_savepoint: The operation of this method for a request with a savepoint.
        command: Words of the command after ``bicycle``; empty for an operation without one.
        job_option: Help of ``--job`` for a command that works without a job, too; empty for the
            argument JOB.
        wheel: The option that is the digest of an uploaded plugin. The command uploads ``--wheel``
            to a service.
        plan: The operation of the flag ``--plan-only``, which shows the effect without changes. The
            page shows its result before it asks for a confirmation.
        positional: Options that are positional arguments of the command, after the job.
        locations: Options that are paths or URLs; the command makes paths absolute, since a service
            has another working directory.
        selects: Options of which the command requires exactly one, or the flag ``--all``.
        all_help: Help of the flag ``--all``.
        help: The rest of the help of the command, after the summary.
        examples: Command lines that the help shows.
        report: Returns the line that the command prints for a result; None prints the status of
            the job.
    """

    name: str
    summary: str
    perform: Callable[[OperationCall, Any], Result]
    options: type[Any] = NoOptions
    stored: type[Any] | None = None
    settle: Callable[[OperationCall, Any], Any] = _keep
    verify: Callable[[OperationCall, Any], None] | None = None
    find: Callable[[OperationCall, Any], Result | None] | None = None
    is_repeatable: bool = False
    needs_running: bool = False
    available: Availability = "always"
    path: str = ""
    method: str = "POST"
    second_route: tuple[str, str] | None = None
    button: str = ""
    tab: str = ""
    question: str = ""
    inputs: tuple[str, ...] = ()
    from_form: Callable[[Home, str, Mapping[str, str]], Mapping[str, Any]] | None = None
    current: Callable[[JobStatus], Mapping[str, Any]] | None = None
    title: str = ""
    progress: str = ""
    waits_for_epoch: bool = False
    is_bulk: bool = False
    shown: Literal["", "STOPPING", "CANCELING"] = ""
    is_destructive: bool = False
    is_exception: bool = False
    starts_job: bool = False
    rpc: str = ""
    with_savepoint: OperationKind | None = None
    command: str = ""
    job_option: str = ""
    wheel: str = ""
    plan: OperationKind | None = None
    positional: tuple[str, ...] = ()
    locations: tuple[str, ...] = ()
    selects: tuple[str, ...] = ()
    all_help: str = ""
    help: str = ""
    examples: tuple[str, ...] = ()
    report: Callable[[str, Result], str] | None = None

    @property
    def has_job(self) -> bool:
        """True if the operation is about a job that exists."""
        return "{job_id}" in self.path

    @property
    def makes_job(self) -> bool:
        """True if the option ``name`` is the job that the operation creates."""
        return bool(self.path) and not self.has_job

    @property
    def option_infos(self) -> list[OptionInfo]:
        """The declared options; empty for an operation with nested data."""
        return list(_describe_once(self.options)) if dataclasses.is_dataclass(self.options) else []

    def parse(self, values: Mapping[str, Any]) -> Any:
        """Return checked options.

        Raises:
            OptionError: a value is not accepted, or a name is unknown.
            msgspec.ValidationError: nested data has another shape.
        """
        if dataclasses.is_dataclass(self.options):
            return from_mapping(self.options, values)
        return msgspec.convert(dict(values), prepare_type(self.options))
