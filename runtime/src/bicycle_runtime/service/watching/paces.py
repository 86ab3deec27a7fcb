"""Rates of a job over the last seconds: load, and throughput of operators.

A status has counts since the start of the run; two statuses, some seconds apart, result in a rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from bicycle_runtime.jobs.status import JobStatus

_WINDOW_MS = 10_000
_SPAN_MIN_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPace:
    """Records per second into an operator, and out of it."""

    records_in: float
    records_out: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """Paces of the last seconds; nothing while a job has not run for so long.

    Attributes:
        load: Share of the time that passed in epochs, 0 to 1.
        operators: By uid.
    """

    load: float | None = None
    operators: Mapping[str, OperatorPace] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """The counts of one status."""

    run: int
    at_ms: int
    epochs_s: float
    counts: Mapping[str, tuple[int, int]]


class PaceWindow:
    """Takes statuses of one job as they come."""

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()

    def take(self, status: JobStatus) -> None:
        """Add a status."""
        counts = {
            uid: (each.records_in, each.records_out) for uid, each in status.operators.items()
        }
        mark = _Mark(
            run=status.started_ms, at_ms=status.updated_ms, epochs_s=status.epoch_times.seconds,
            counts=counts,
        )  # fmt: skip
        if self._marks and not _goes_on(self._marks[-1], mark):
            self._marks.clear()
        self._marks.append(mark)
        while len(self._marks) > 1 and mark.at_ms - self._marks[1].at_ms >= _WINDOW_MS:
            self._marks.popleft()

    def paces(self) -> Paces:
        """Return the paces between the first status of the window and the last."""
        if len(self._marks) < 2:
            return Paces()
        first, last = self._marks[0], self._marks[-1]
        span_ms = last.at_ms - first.at_ms
        if span_ms < _SPAN_MIN_MS:
            return Paces()
        span_s = span_ms / 1_000
        found = {}
        for uid, (records_in, records_out) in last.counts.items():
            former_in, former_out = first.counts.get(uid, (0, 0))
            found[uid] = OperatorPace(
                records_in=(records_in - former_in) / span_s,
                records_out=(records_out - former_out) / span_s,
            )
        load = (last.epochs_s - first.epochs_s) / span_s
        return Paces(load=min(1.0, load), operators=found)


def _goes_on(former: _Mark, mark: _Mark) -> bool:
    """Return whether counts were not begun again."""
    is_same = former.run == mark.run and former.epochs_s <= mark.epochs_s
    return is_same and all(
        number <= later
        for uid, pair in former.counts.items()
        for number, later in zip(pair, mark.counts.get(uid, (0, 0)), strict=True)
    )
