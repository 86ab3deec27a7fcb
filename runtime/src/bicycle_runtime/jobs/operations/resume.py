"""The operation that starts an ended job again."""

from __future__ import annotations

import sys

from bicycle_runtime.jobs.control.submitting import resume_job, resumed_request
from bicycle_runtime.jobs.operations.operation import (
    NoOptions,
    OperationCall,
    OperationKind,
    Result,
)

__all__ = ["RESUME"]


def _check(call: OperationCall, options: NoOptions) -> NoOptions:
    resumed_request(call.home, call.job)
    return options


def _resume(call: OperationCall, _options: NoOptions) -> Result:
    status = resume_job(call.home, call.job, python=sys.executable)
    return {"job_id": status.id, "state": status.state.value, "epoch": status.epoch}


RESUME = OperationKind(
    name="resume",
    command="resume",
    summary="Start an ended job again from its last sealed epoch.",
    settle=_check,
    perform=_resume,
    available="ended",
    path="/jobs/{job_id}/resume",
    button="Start again",
    question="{job} is started with the plugin, parameters and options of its last start. It "
    "continues after epoch {epoch}: no record is lost, and none is read twice.",
    help="The job uses the plugin, parameters, options and working directory of its last start, "
    "and runs in the background. No record is lost or read twice. Environment variables come "
    "from this command, or from the service with --service.",
    examples=("bicycle resume wordcount", "bicycle resume wordcount --service URL"),
)
