"""Operations that take, delete and restore savepoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.home import Home, checkpoint_of
from bicycle_runtime.jobs.operations.operation import OperationCall, OperationKind, Result
from bicycle_sdk.errors import ConfigError
from bicycle_sdk.options import CheckedOptions, option
from bicycle_sdk.quantities import byte_text

_S = TypeVar("_S", bound="SavepointOptions")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointOptions(CheckedOptions):
    """The name, the directory and the time limit of a savepoint."""

    name: str | None = option(
        None, doc="Name of the savepoint. Default: a name from the current time."
    )
    to: str | None = option(
        None,
        doc="Directory or URL for savepoints; the savepoint is created below it, under its name. "
        "Default: the folder savepoints in the checkpoint directory of the job.",
    )
    timeout_ms: int = option(
        600_000,
        low=1_000,
        high=3_600_000,
        doc="Time limit for a running job.",
        aliases=("timeout",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSavepointOptions:
    """The savepoint to delete."""

    name: str = option(doc="Name of a savepoint in the checkpoint directory of the job.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """The savepoint, and the job that continues from it.

    Paths are of the machine that copies the savepoint.
    """

    url: str = option(doc="Directory or URL of the savepoint.")
    checkpoint_dir: str = option(
        doc="Directory or URL for checkpoints; the checkpoints of the job are below it, under "
        "its name."
    )
    name: str = option(doc="Name of the job.")
    trust: bool = option(
        default=False, doc="Accept a savepoint of another home: its state may run any code."
    )
    savepoint_key: str | None = option(None, doc="Require a signature with the key in this file.")


def settle_name(call: OperationCall, options: _S) -> _S:
    """Return options with a name, by which the savepoint is found after a crash."""
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.savepoints.paths import require_savepoint_name

    if not job_status(call.home, call.job).checkpoint:
        raise ConfigError(
            problem=f"job {call.job!r} has no checkpoint directory",
            hint="start the job, and repeat the request when it runs",
        )
    if options.name is not None:
        require_savepoint_name(options.name)
        return options
    return dataclasses.replace(options, name=f"service-{call.asked_ms}")


def take_savepoint(call: OperationCall, options: SavepointOptions) -> Result:
    """Take a savepoint, and return its report."""
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.savepoints.commands import create_savepoint

    return create_savepoint(
        call.home, call.job, name=options.name, to=options.to, clock=call.clock,
        timeout_ms=options.timeout_ms,
    )  # fmt: skip


def require_free_name(call: OperationCall, options: SavepointOptions) -> None:
    """Refuse a name that is taken, for a job that has not ended.

    Raises:
        SAVEPOINT_TAKEN: a savepoint, whole or not, has this name.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.savepoints.commands import savepoint_at
    from bicycle_runtime.recovery.errors import SAVEPOINT_TAKEN

    if options.name is not None and not job_status(call.home, call.job).state.is_final:
        storage = savepoint_at(call.home, call.job, options.name, to=options.to)
        if storage.list(""):
            raise SAVEPOINT_TAKEN(url=storage.url, found="a savepoint")


def take_last_savepoint(call: OperationCall, options: SavepointOptions) -> Result:
    """Take a savepoint of an ended job, unless an interrupted request took it."""
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.savepoints.commands import savepoint_of_last_epoch

    found = None
    if options.name is not None:
        found = savepoint_of_last_epoch(call.home, call.job, options.name, to=options.to)
    return take_savepoint(call, options) if found is None else found


def _found_savepoint(call: OperationCall, options: SavepointOptions) -> Result | None:
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.savepoints.commands import known_savepoints

    if options.to is not None:  # There is no list of the savepoints in other directories.
        return None
    for entry in known_savepoints(call.home, call.job):
        if entry.name == options.name and entry.problem is None:
            return {name: value for name, value in asdict(entry).items() if name != "problem"}
    return None


def _check_deletion(call: OperationCall, options: DeleteSavepointOptions) -> DeleteSavepointOptions:
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.savepoints.commands import savepoint_of
    from bicycle_runtime.recovery.errors import SavepointMissingError

    storage = savepoint_of(call.home, call.job, options.name)
    if not storage.list(""):
        raise SavepointMissingError(url=storage.url)
    return options


def _delete_savepoint(call: OperationCall, options: DeleteSavepointOptions) -> Result:
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.base.storage_urls import open_storage
    from bicycle_runtime.jobs.savepoints.commands import savepoint_of
    from bicycle_runtime.recovery.savepoints import delete_savepoint

    job, name = call.job, options.name
    storage = savepoint_of(call.home, job, name) if job else open_storage(name)
    delete_savepoint(storage)
    return {"url": storage.url}


def _found_deletion(call: OperationCall, options: DeleteSavepointOptions) -> Result | None:
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.savepoints.commands import savepoint_of

    storage = savepoint_of(call.home, call.job, options.name)
    return None if storage.list("") else {"url": storage.url}


def _restore_from_form(home: Home, job: str, fields: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the options for a savepoint of a job, which the form names."""
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.savepoints.commands import savepoint_of

    given = dict(fields)
    return {"url": savepoint_of(home, job, given.pop("savepoint", "")).url, **given}


def _check_restore(_call: OperationCall, options: RestoreOptions) -> RestoreOptions:
    checkpoint_of(options.checkpoint_dir, options.name)
    return options


def _restore(call: OperationCall, options: RestoreOptions) -> Result:
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.savepoints.commands import restore_to

    return restore_to(
        call.home, options.url, checkpoint_dir=options.checkpoint_dir, job=options.name,
        trusts=options.trust, key_file=options.savepoint_key, clock=call.clock,
    )  # fmt: skip


def _found_restore(_call: OperationCall, options: RestoreOptions) -> Result | None:
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.savepoints.commands import find_restored

    return find_restored(options.url, checkpoint_dir=options.checkpoint_dir, job=options.name)


def savepoint_line(result: Result) -> str:
    """Return one line about a savepoint that was just taken."""
    size = byte_text(result["byte_count"])
    return f"savepoint of epoch {result['epoch']}, {size}: {result['url']}"


SAVEPOINT = OperationKind(
    name="savepoint",
    command="savepoint create",
    summary="Create a savepoint of a job.",
    options=SavepointOptions,
    settle=settle_name,
    perform=take_savepoint,
    find=_found_savepoint,
    waits_for_epoch=True,
    available="running",
    path="/jobs/{job_id}/savepoints",
    button="Savepoint",
    inputs=("name",),
    question="The state of {job} at the end of an epoch (the last one is {epoch}) is copied to a "
    "savepoint. The job continues meanwhile.",
    help="A running job creates the savepoint between two epochs, and continues while files are "
    "copied. An ended job must have published its last epoch.",
    examples=(
        "bicycle savepoint create wordcount",
        "bicycle savepoint create wordcount --name before-upgrade --to s3://bucket/savepoints",
    ),
    report=lambda _job, result: savepoint_line(result),
)
DELETE_SAVEPOINT = OperationKind(
    name="delete_savepoint",
    summary="Delete a savepoint of a job; jobs that started from it have their own copies.",
    options=DeleteSavepointOptions,
    settle=_check_deletion,
    perform=_delete_savepoint,
    find=_found_deletion,
    path="/jobs/{job_id}/savepoints/{name}",
    method="DELETE",
    button="Delete savepoint",
    tab="savepoints",
    is_destructive=True,
    question="Savepoint {name} of {job} is deleted. Jobs that started from it have their own "
    "copies.",
    command="savepoint delete",
    job_option="Treat NAME as the name of a savepoint of this job.",
    positional=("name",),
    help="NAME is the directory or URL of a complete or incomplete savepoint. With --job, NAME is "
    "the name of a savepoint of this job. Other files are never deleted.",
    examples=(
        "bicycle savepoint delete savepoints/before-upgrade",
        "bicycle savepoint delete before-upgrade --job wordcount",
    ),
    report=lambda _job, result: f"removed {result['url']}",
)
RESTORE = OperationKind(
    name="restore",
    summary="Copy a savepoint into the empty checkpoint directory of a job.",
    options=RestoreOptions,
    settle=_check_restore,
    perform=_restore,
    find=_found_restore,
    title="Restoring a savepoint for {job}",
    progress="The service copies the files of the savepoint.",
    path="/savepoints/restore",
    button="Restore savepoint",
    tab="savepoints",
    inputs=("name", "checkpoint_dir"),
    from_form=_restore_from_form,
    command="savepoint restore",
    positional=("url",),
    locations=("url", "checkpoint_dir", "savepoint_key"),
    help="The savepoint becomes the last epoch of the directory, and a job that runs with the same "
    "--checkpoint-dir and --name continues from it. `bicycle run --from` does both in one step. "
    "With --service, paths are paths on the machine of the service.",
    examples=("bicycle savepoint restore savepoints/v1 --checkpoint-dir cp --name wordcount",),
    question="Savepoint {name} of {job} is copied into the empty checkpoint directory of another "
    "job, as its last epoch. No job is started: a job of that name continues from the savepoint "
    "when it is started with the same directory.",
    report=lambda _job, result: (
        f"epoch {result['epoch']} is the last one of job {result['job']} in {result['url']}"
    ),
)
