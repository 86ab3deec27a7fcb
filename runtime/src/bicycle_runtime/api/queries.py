"""Shapes of what can be asked behind the path of an address: filters, pages, how much.

Answers have their shapes in ``shapes``; questions about state, and their answers, beside the calls
that give them.
"""

from __future__ import annotations

from bicycle_runtime.api.route import Shape

__all__ = [
    "AfterQuery",
    "DeadLetterQuery",
    "EpochQuery",
    "HistoryQuery",
    "JobQueryWords",
    "LetterQuery",
    "LimitQuery",
    "LogQuery",
    "SamplesQuery",
    "SavepointQuery",
    "WaitQuery",
]


class JobQueryWords(Shape, frozen=True, kw_only=True):
    """Which jobs, in which order: see ``JobQuery``. ``state`` may be given several times."""

    state: tuple[str, ...] = ()
    owner: str = ""
    text: str = ""
    sort: str = "-start_time"
    limit: int = 50
    after: str | None = None


class LimitQuery(Shape, frozen=True, kw_only=True):
    """How many entries at most, 1 to 500."""

    limit: int = 50


class AfterQuery(Shape, frozen=True, kw_only=True):
    """Entries behind this number, and how many of them, 1 to 500."""

    after: int = 0
    limit: int = 200


class EpochQuery(Shape, frozen=True, kw_only=True):
    """Epochs older than ``after``, and how many of them, 1 to 500."""

    after: int | None = None
    limit: int = 50


class DeadLetterQuery(Shape, frozen=True, kw_only=True):
    """Letters of ``operator`` behind the one named ``after``, and how many of them, 1 to 500."""

    operator: str | None = None
    after: str | None = None
    limit: int = 50


class SamplesQuery(Shape, frozen=True, kw_only=True):
    """``tier`` is 5s (the last hour) or 5m (the last seven days)."""

    tier: str = "5s"


class HistoryQuery(Shape, frozen=True, kw_only=True):
    """How many minutes back, 1 to 10,080; points are 5 s apart up to an hour, else 5 minutes."""

    minutes: int = 30


class LogQuery(Shape, frozen=True, kw_only=True):
    """Lines from byte ``after`` on, or the last ones; with ``follow`` a stream of events."""

    after: int | None = None
    limit: int = 200
    follow: bool = False


class WaitQuery(Shape, frozen=True, kw_only=True):
    """How many seconds to wait for the end of the operation, 0 to 60."""

    wait: float = 0.0


class SavepointQuery(Shape, frozen=True, kw_only=True):
    """``verify`` reads every file and compares checksums."""

    verify: bool = False


class LetterQuery(Shape, frozen=True, kw_only=True):
    """``reveal`` tells the value of the record, too: for operators, and noted in the audit log."""

    reveal: bool = False
