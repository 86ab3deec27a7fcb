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
from bicycle_runtime.jobs.upgrading.notes import forget_ended, require_no_upgrade
from bicycle_runtime.jobs.upgrading.upgrade import UpgradeOptions, plan_upgrade, upgrade_job
from bicycle_runtime.service.plugins.uploaded_plugins import plugin_environment
from bicycle_sdk.options import option
from bicycle_sdk.quantities import duration_text


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOptions(UpgradeOptions):
    """The new version, and its strategy to replace the previous version."""

    digest: str = option(doc="New version: digest of an uploaded plugin.")
    plugin: str | None = option(None, doc="Name of the plugin in the wheel. Default: unchanged.")
    allow_dropped_state: bool = option(
        default=False, doc="Drop the state of operators that the new version does not contain."
    )


def _check(call: OperationCall, options: VersionOptions) -> VersionOptions:
    require_no_upgrade(call.home, call.job, tokens=call.open_tokens("upgrade"))
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
    forget_ended(home, job, tokens=call.open_tokens("upgrade"))

    def start(request: JobRequest, *, is_trial: bool = False) -> JobStatus:
        return submit(request, home, python=sys.executable, is_trial=is_trial)

    def prepare() -> PreparedStart:
        return PreparedStart(home.find(job), home, python=sys.executable)

    return upgrade_job(
        home, job, _request(home, job, options), options, token=call.token, clock=call.clock,
        start=start, prepare=prepare,
    )  # fmt: skip


def _report(job: str, result: Result) -> str:
    version = result["plugin_version"]
    if result["changes"] is None:
        return f"{job} already runs version {version}"
    operators = result["changes"]["operators"]
    lines = [f"  {each['verdict']:<9}{each['operator']}" for each in operators]
    if "gap_ms" not in result:
        return "\n".join(
            [*lines, f"{job} would continue with version {version}; nothing was changed"]
        )
    gap = "unknown" if result["gap_ms"] is None else duration_text(result["gap_ms"])
    saved = f", savepoint {result['savepoint']}" if result["savepoint"] else ""
    done = f"{job} continues with version {version} after epoch {result['epoch']}"
    return "\n".join([*lines, f"{done}; gap in the output: {gap}{saved}"])


_INPUTS = ("digest", "plugin", "strategy", "epochs", "watch_ms", "skip_savepoint",
           "allow_dropped_state")  # fmt: skip
PLAN_UPGRADE = OperationKind(
    name="plan_upgrade",
    summary="Compare another version of the plugin with the last epoch; nothing is changed.",
    options=VersionOptions,
    settle=_check,
    perform=_plan,
    is_repeatable=True,
    needs_running=True,
    available="running",
    path="/jobs/{job_id}/upgrade/plan",
    report=_report,
    title="Upgrade of {job}",
    progress="The service builds the new version and compares it with the last epoch of the job.",
)
UPGRADE = replace(
    PLAN_UPGRADE,
    name="upgrade",
    summary="Upgrade a running job to another version of its plugin.",
    perform=_upgrade,
    path="/jobs/{job_id}/upgrade",
    command="upgrade",
    rpc="UpgradeJob",
    is_exception=True,
    wheel="digest",
    plan=PLAN_UPGRADE,
    button="Upgrade",
    inputs=_INPUTS,
    question="The next page compares the selected version with the last epoch of {job}, and shows "
    "the effect on each state. The upgrade starts only after you confirm it there.",
    help="The wheel is uploaded to the service of the job and compared with the last epoch: if the "
    "version does not match the state, the job is unchanged. Otherwise the job stops after an "
    "epoch, and the new version continues after it and is monitored. If it fails or restarts, the "
    "previous version continues after the last sealed epoch, and the command fails. No record is "
    "read or published twice.\n\nWith the strategy blue-green, the new version first runs in "
    "parallel with the job: it reads the same input and builds separate state without visible "
    "output. When it has caught up and is stable, the job stops, and the new version continues at "
    "the same position with its state.",
    examples=(
        "bicycle upgrade clicks --wheel dist/clicks-2.0-py3-none-any.whl",
        "bicycle upgrade clicks --wheel clicks-2.0-py3-none-any.whl --plan-only",
        "bicycle upgrade clicks --wheel clicks-2.0-py3-none-any.whl --strategy blue-green",
    ),
)
