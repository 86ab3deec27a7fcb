"""Sentences that explain the figures of a job."""

from __future__ import annotations

from collections.abc import Mapping

from bicycle_runtime.service.watching.states import State
from bicycle_runtime.service.watching.summaries import JobSummary, KnownJob
from bicycle_runtime.webui.formats import amount
from bicycle_sdk.quantities import share_text

_FULL_LOAD = 0.8
_UNEVEN = 1.5
_ATTENTION_TEXTS = {
    "stalled": "no progress in reading or publishing",
    "failed": "",  # The state and the reason are shown anyway.
    "failing": "",
    "restarting": "restarting after a failure",
    "frozen": "the process is suspended by a signal",
    "silent_source": "a source does not respond",
    "silent_storage": "the checkpoint storage does not respond or rejects writes",
    "lag_growing": "the lag is growing",
}


def why_text(job: JobSummary) -> str:
    """Return the problems of a job and the reason for its state, empty without any."""
    counted = {
        "errors": f"{_records(job.errors)} failed",
        "late": f"{_records(job.late)} late",
    }
    texts = {**_ATTENTION_TEXTS, **counted}
    words = ", ".join(filter(None, (texts[word] for word in job.attention)))
    return ": ".join(filter(None, (words, job.reason)))


def limit_text(job: KnownJob, names: Mapping[str, str]) -> str:
    """Return the bottleneck of a running job, empty if unknown.

    Args:
        job: The job.
        names: Names of its operators, by their ids in a status.
    """
    operators = job.status.operators
    busy = {uid: each.busy_share for uid, each in operators.items() if each.busy_share is not None}
    load = job.paces.load
    if State(job.summary.state) is not State.RUNNING or not busy or load is None:
        return ""
    uid = max(busy, key=lambda each: busy[each])
    name, part = names.get(uid, uid), share_text(busy[uid])
    skew = operators[uid].skew or 0.0
    uneven = f"; the busiest subtask gets {skew:.1f} times the mean load" if skew >= _UNEVEN else ""
    if load >= _FULL_LOAD:
        return f"Bottleneck: {name!r} is busy for {part} of its task time{uneven}."
    return f"Load: epochs run {share_text(load)} of the time, mostly in {name!r} ({part}){uneven}."


def _records(number: int) -> str:
    return amount(number, "record")
