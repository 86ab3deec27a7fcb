"""The use of reports: failures become one error, mixed attempts run again.

The error is the first, with a count and its position in words.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.contract import Source
from bicycle_runtime.engine.errors import EpochFailedError, EpochMixedError
from bicycle_runtime.engine.executor import Executor
from bicycle_runtime.operators.tasks.orders import EpochOrder
from bicycle_runtime.operators.tasks.task_reports import TaskReport
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_MIXED_RUNS_MAX = 3


def run_unmixed(
    executor: Executor, orders: list[EpochOrder], sources: Mapping[str, Source], *, job: str
) -> list[TaskReport]:
    """Run the tasks of an epoch, again as a whole if parts were computed twice.

    Raises:
        EpochMixedError: it happened in every run.
        BicycleError: a task failed.
    """
    epoch = orders[0].epoch
    for _ in range(_MIXED_RUNS_MAX):
        try:
            reports = executor.run(orders)
        except EpochFailedError as error:
            _add_position(error, sources)
            raise
        raise_first_failure(reports, sources)
        try:
            raise_if_mixed(reports, epoch=epoch, job=job)
            return reports
        except EpochMixedError as error:
            mixed = error
            log_event(_LOG, "epoch_mixed", level=logging.WARNING, job=job, error=error)
    raise mixed


def raise_if_mixed(reports: Sequence[TaskReport], *, epoch: int, job: str) -> None:
    """Raise an error if the tasks of a level read different attempts of the last one.

    That happens when output of a stage was lost and a part of it computed again: a function that is
    not deterministic may then have sent a record elsewhere the second time, and it would be counted
    twice, or never. Such an epoch must not be sealed.

    Raises:
        EpochMixedError: attempts differ; the epoch can simply be run again.
    """
    attempts = {(report.level, report.subtask): report.attempt for report in reports}
    for report in reports:
        for sender, attempt in report.senders.items():
            if attempts.get((report.level - 1, sender)) != attempt:
                raise EpochMixedError(epoch=epoch, job=job, level=report.level - 1, subtask=sender)


def raise_first_failure(reports: Sequence[TaskReport], sources: Mapping[str, Source]) -> None:
    """Raise the error of the first failed task, if any.

    The position of the record is described by its source (``lines.txt line 17``); when several
    tasks failed alike, the fact ``task_count`` is their number.
    """
    failed = sorted(
        (report for report in reports if report.failure),
        key=lambda report: (report.level, report.subtask),
    )
    if not failed:
        return
    error = error_from_json(failed[0].failure or {})
    _add_position(error, sources)
    error.facts["task_count"] = sum(
        (report.failure or {}).get("code") == error.code for report in failed
    )
    raise error


def _add_position(error: BicycleError, sources: Mapping[str, Source]) -> None:
    """Add the source's description of an input position to an error."""
    source, shard, offset = (error.facts.get(name) for name in ("source", "shard", "offset"))
    if isinstance(source, str) and source in sources and shard is not None and offset is not None:
        error.facts["position"] = _position(
            sources[source], shard, offset, error.facts.get("end_offset")
        )


def _position(source: Source, shard: str, offset: int, end_offset: int | None) -> str:
    """Return the position of a record; after an exchange only its batch's span."""
    first = source.describe(shard, offset)
    if end_offset is None:
        return first
    return f"{first} or later, before {source.describe(shard, end_offset)}"
