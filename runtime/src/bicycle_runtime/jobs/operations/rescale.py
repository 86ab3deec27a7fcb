"""The operation that changes the parallelism of a running job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.control.rescaling import RescaleOptions, ask_for_rescale
from bicycle_runtime.jobs.operations.operation import OperationCall, OperationKind, Result
from bicycle_runtime.jobs.status import JobStatus
from bicycle_sdk.quantities import byte_text, duration_text


def _rescale(call: OperationCall, options: RescaleOptions) -> Result:
    return asdict(ask_for_rescale(call.home, call.job, options, clock=call.clock))


def _found_rescale(call: OperationCall, options: RescaleOptions) -> Result | None:
    """Return the parallelism of the operators if it is the requested one."""
    operators = job_status(call.home, call.job).operators.items()
    parallelisms = {uid: each.parallelism for uid, each in operators}
    wanted = options.operators or {}
    if not wanted or any(parallelisms.get(uid) != width for uid, width in wanted.items()):
        return None
    return {"new": parallelisms}


def _current(status: JobStatus) -> Mapping[str, Any]:
    widths = [each.parallelism or 1 for each in status.operators.values()]
    return {"parallelism": max(widths, default=1)}


def _report(job: str, result: Result) -> str:
    old, new = result["old"], result["new"]
    if new == old:
        return f"{job} already has this parallelism"
    lines = [
        f"{job}: rescaled in epoch {result['epoch']}, paused for "
        f"{duration_text(result['pause_ms'])}, state {byte_text(result['state_bytes'])}"
    ]
    lines += [f"  {uid}: {old[uid]} -> {new[uid]}" for uid in new if new[uid] != old[uid]]
    return "\n".join(lines)


RESCALE = OperationKind(
    name="rescale",
    command="rescale",
    summary="Change the parallelism of a running job.",
    options=RescaleOptions,
    perform=_rescale,
    find=_found_rescale,
    needs_running=True,
    waits_for_epoch=True,
    available="running",
    path="/jobs/{job_id}/rescale",
    button="Rescale",
    inputs=("parallelism",),
    current=_current,
    question="At the end of an epoch the state of {job} is divided among another number of "
    "subtasks. The job continues, and no input is read again. Sources that cannot be divided keep "
    "their parallelism.",
    positional=("parallelism",),
    help="JOB is an id from `bicycle list`, and NUMBER is the new parallelism. The job rescales "
    "between two epochs, without a restart, and reads no input again. If the change is not "
    "possible, the job continues as before.",
    examples=("bicycle rescale wordcount 8", "bicycle rescale wordcount --operator counts=16"),
    report=_report,
)
