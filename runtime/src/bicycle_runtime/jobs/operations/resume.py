"""The operation that resumes a paused job, or starts an ended one again."""

from __future__ import annotations

import sys

from bicycle_runtime.jobs.control.submitting import resume_job, resumed_request
from bicycle_runtime.jobs.operations.operation import (
    NoOptions,
    OperationCall,
    OperationKind,
    Result,
)


def _check(call: OperationCall, options: NoOptions) -> NoOptions:
    resumed_request(call.home, call.job)
    return options


def _resume(call: OperationCall, _options: NoOptions) -> Result:
    status = resume_job(call.home, call.job, python=sys.executable)
    return {"job_id": status.id, "state": status.state.value, "epoch": status.epoch}


RESUME = OperationKind(
    name="resume",
    command="resume",
    starts_job=True,
    summary="Resume a paused job, or start an ended job again.",
    settle=_check,
    perform=_resume,
    available="ended",
    path="/jobs/{job_id}/resume",
    button="Resume",
    question="{job} is started with the plugin, parameters and options of its last start. It "
    "continues after epoch {epoch}: no record is lost, and none is read twice.",
    help="The job continues after its last sealed epoch, and no record is lost or read twice. It "
    "uses the plugin, parameters, options and working directory of its last start, and runs in the "
    "background. Environment variables come from this command, or from the service with "
    "--service.",
    examples=("bicycle resume wordcount", "bicycle resume wordcount --service URL"),
)
