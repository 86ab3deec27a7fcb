"""The kinds of operations of the service, by name.

Each runs in a thread and may take minutes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.operations.operation import (
    NoOptions,
    OperationCall,
    OperationKind,
    Result,
)
from bicycle_runtime.jobs.operations.table import JOB_OPERATIONS
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.service.operations.starting import SUBMIT, with_slots
from bicycle_runtime.service.operations.upgrading import PLAN_UPGRADE, UPGRADE
from bicycle_runtime.service.plugins.uploaded_plugins import (
    InstallFacts,
    install_plugin,
    remove_plugin,
    require_unused,
)
from bicycle_runtime.service.watching.summaries import Dismissal


class RemoveFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``digest`` of an uploaded plugin."""

    digest: str


def _dismiss(call: OperationCall, _options: NoOptions) -> Result:
    """Return the errors of a job so far, which no longer need attention."""
    status = job_status(call.home, call.job)
    is_failed = status.state is JobState.FAILED
    return {"dismissed": msgspec.to_builtins(Dismissal.of(status, is_failed=is_failed))}


def _install(call: OperationCall, facts: InstallFacts) -> Result:
    plugin, is_new = install_plugin(call.home, facts, clock=call.clock)
    return {"plugin": msgspec.to_builtins(plugin), "is_new": is_new}


def _check_remove(call: OperationCall, facts: RemoveFacts) -> RemoveFacts:
    require_unused(call.home, facts.digest)
    return facts


def _remove(call: OperationCall, facts: RemoveFacts) -> Result:
    return {"plugin": msgspec.to_builtins(remove_plugin(call.home, facts.digest))}


_DISMISS = OperationKind(
    name="dismiss",
    summary="Dismiss that a job needs attention, until another error or failed run.",
    perform=_dismiss,
    is_repeatable=True,
    available="attention",
    path="/jobs/{job_id}/dismiss",
    button="Dismiss",
    question="{job} no longer counts as a job that needs attention for its failure, errors and "
    "late records so far. A new error, more late records or another failed run need attention "
    "again. The job itself does not change.",
)
_INSTALL = OperationKind(
    name="install", summary="Install an uploaded wheel.", options=InstallFacts, perform=_install,
    is_repeatable=True, title="Installing {file}",
    progress="The service creates the environment, and loads each plugin of the wheel in a "
    "separate process.",
)  # fmt: skip
_REMOVE = OperationKind(
    name="remove_plugin", summary="Remove an uploaded plugin that no job needs.",
    options=RemoveFacts, settle=_check_remove, perform=_remove, title="Removing a plugin",
    progress="The service deletes the files.",
)  # fmt: skip

KINDS: Mapping[str, OperationKind] = {
    **{
        each.name: with_slots(each) if each.starts_job else each for each in JOB_OPERATIONS.values()
    },
    **{each.name: each for each in (SUBMIT, UPGRADE, PLAN_UPGRADE, _DISMISS, _INSTALL, _REMOVE)},
}
STARTING = tuple(kind.name for kind in KINDS.values() if kind.starts_job)
EXCEPTIONS = frozenset(kind.name for kind in KINDS.values() if kind.is_exception)
