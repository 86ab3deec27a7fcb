"""The operations that plan and run an upgrade to an uploaded plugin."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.control.submitting import PreparedStart, submit
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.operations.operation import OperationCall, OperationKind, Result
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.jobs.upgrading.notes import require_no_upgrade
from bicycle_runtime.jobs.upgrading.upgrade import UpgradeOptions, plan_upgrade, upgrade_job
from bicycle_runtime.service.plugins.uploaded_plugins import plugin_environment
from bicycle_sdk.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOptions(UpgradeOptions):
    """The new version, and its strategy to replace the previous version."""

    digest: str = option(doc="Digest of an uploaded plugin.")
    plugin: str | None = option(None, doc="Name of the plugin in the wheel. Default: unchanged.")
    allow_dropped_state: bool = option(
        default=False, doc="Drop the state of operators that the new version does not contain."
    )


def _check(call: OperationCall, options: VersionOptions) -> VersionOptions:
    require_no_upgrade(call.home, call.job)
    _request(call.home, call.job, options)
    return options


def _request(home: Home, job: str, options: VersionOptions) -> JobRequest:
    """Return the request of a job with another version of its plugin."""
    former = home.find(job).read_request()
    plugin = options.plugin or former.options.plugin
    changed = replace(
        former.options, plugin=plugin, plugin_env=plugin_environment(home, options.digest, plugin),
        name=job_status(home, job).job, from_=None, trust=False,
        allow_dropped_state=options.allow_dropped_state,
    )  # fmt: skip
    return replace(former, options=changed)


def _plan(call: OperationCall, options: VersionOptions) -> Result:
    """Compare the version with the last epoch; nothing is changed."""
    status, wanted = job_status(call.home, call.job), _request(call.home, call.job, options)
    plan = plan_upgrade(
        call.home, wanted, checkpoint=status.checkpoint, job=call.job,
        is_followed=options.strategy == "blue-green",
    )  # fmt: skip
    return {
        "changes": plan["changes"], "plugin_version": plan["plugin_version"],
        "epoch": status.epoch, "former_version": status.plugin_version,
    }  # fmt: skip


def _upgrade(call: OperationCall, options: VersionOptions) -> Result:
    home, job = call.home, call.job

    def start(request: JobRequest, *, is_trial: bool = False) -> JobStatus:
        return submit(request, home, python=sys.executable, is_trial=is_trial)

    def prepare() -> PreparedStart:
        return PreparedStart(home.find(job), home, python=sys.executable)

    return upgrade_job(
        home, job, _request(home, job, options), options, token=call.token, clock=call.clock,
        start=start, prepare=prepare,
    )  # fmt: skip


UPGRADE = OperationKind(
    name="upgrade",
    summary="Continue a job with another version of its plugin.",
    options=VersionOptions,
    settle=_check,
    perform=_upgrade,
    is_repeatable=True,
    needs_running=True,
    available="running",
    path="/jobs/{job_id}/upgrade",
)
PLAN_UPGRADE = replace(
    UPGRADE,
    name="plan_upgrade",
    summary="Compare another version of the plugin with the last epoch; nothing is changed.",
    perform=_plan,
    path="/jobs/{job_id}/upgrade/plan",
)
