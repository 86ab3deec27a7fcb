"""The operators of windows: the folding one, and the one that asks a trigger or an evictor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import GenericAlias
from typing import Any

from bicycle_runtime.layouts.state import WindowKey
from bicycle_runtime.operators.preaggregation.accumulators import Session
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.preaggregation.rows import Rows
from bicycle_runtime.operators.windows.base import WindowOperator
from bicycle_runtime.operators.windows.firing import Fired, Unkept
from bicycle_runtime.operators.windows.folding_operator import FoldingOperator, KeptWindows
from bicycle_runtime.operators.windows.kept_slices import KeptSlices
from bicycle_runtime.operators.windows.sessions import PLACE, KeptSessions
from bicycle_runtime.operators.windows.triggered import TriggeredOperator, pane_entries
from bicycle_runtime.state.memory.space import MemorySpace
from bicycle_runtime.state.memory.windows import WindowEntries, WindowTable, WindowTables
from bicycle_sdk.state import TimeDomain
from bicycle_sdk.windows import SessionWindows, Window, WindowPlan

__all__ = ["window_operator", "window_table"]


def window_operator(plan: WindowPlan) -> Callable[..., WindowOperator]:
    """Return what makes the operator of a window, from what a ``WindowOperator`` is made of."""
    kind = _kind_of(plan)
    return TriggeredOperator if kind is None else partial(FoldingOperator, kind=kind)


def window_table(plan: WindowPlan, folding: Folding, record_type: Any) -> WindowTable:
    """Return an empty table for the state of a window.

    Args:
        plan: The window.
        folding: Its aggregates.
        record_type: Declared type of the records, None when unknown.
    """
    kind, windows = _kind_of(plan), MemorySpace()
    records = windows.records(record_type, is_by_key=kind is None or kind.is_by_key)
    new_entries = pane_entries if kind is None else kind.new_entries
    return windows.table(new_entries(plan, folding, windows), records)


def _kind_of(plan: WindowPlan) -> type[KeptWindows] | None:
    """Return what is kept of windows that fire by the watermark; None of those with a trigger."""
    if plan.is_triggered:
        return None
    if not isinstance(plan.assigner, SessionWindows):
        return KeptSlices
    return KeptSessions if plan.assigner.max_duration_ms is None else CutSessions


# Session windows of limited length: what is longer is cut, from its first record on.
#
# A session is cut when the watermark reaches the cut. Its *rest* stays open from there to its end,
# so that records which belong to it still find it. Records before the cut of an open rest are late.
# Nothing is folded before it fires: where a session is cut is known only then.


# Start, end, and: whether it is the rest of a session that was cut, time of its first record.
_Part = tuple[int, int, tuple[bool, int | None]]


class CutSessions(KeptSessions):
    """Keeps the open sessions of each key with their records, and cuts them as they fire."""

    @classmethod
    def new_entries(
        cls,
        plan: WindowPlan,  # noqa: ARG003  # the contract
        folding: Folding,  # noqa: ARG003  # the contract
        windows: WindowTables,
    ) -> WindowEntries:
        about = GenericAlias(tuple, (bool, int | None))
        return windows.entries("s", GenericAlias(list, (GenericAlias(tuple, (int, int, about)),)))

    def moments(self, entry: Any) -> Iterator[tuple[TimeDomain, int]]:
        return (("event", self._due_ms(part)) for part in entry)

    # --- records in --------------------------------------------------------------------------

    def admitted(self, rows: Rows) -> Rows:
        """Return the rows that come before no cut; the others are late: their window has fired."""
        if min(rows.times) >= self.window.complete_before:
            return rows
        late = [
            index
            for index, (group, key, time) in enumerate(
                zip(rows.groups, rows.keys, rows.times, strict=True)
            )
            if any(about[0] and time < start for start, _, about in self._parts(group, key))
        ]
        if not late:
            return rows
        namespaces = rows.namespaces
        windows = [Window(rows.times[index], namespaces[index]) for index in late]
        self.window.count_late(rows.picked(late), windows)
        gone = set(late)
        return rows.picked([index for index in range(len(namespaces)) if index not in gone])

    def _join(self, new: Session) -> None:
        parts = self._parts(new.group, new.key)
        touching = [one for one in parts if one[0] <= new.end and new.start <= one[1]]
        firsts = [first for _, _, (_, first) in touching if first is not None]
        joined: _Part = (
            min([new.start, *(start for start, _, _ in touching)]),
            max([new.end, *(end for _, end, _ in touching)]),
            (any(is_rest for _, _, (is_rest, _) in touching), min([new.start, *firsts])),
        )
        self.table.records.add(PLACE, new.group, new.key, new.content)
        self._put(new.group, new.key, [*(one for one in parts if one not in touching), joined])
        self._remember(self._due_ms(joined), new.group, new.key)

    # --- results out -------------------------------------------------------------------------

    def _due_of(self, moment: int, group: int, key: Any) -> Iterator[Fired]:
        """Fire what is due of a key at a moment, and let go of it."""
        for part in self._parts(group, key):
            if self._due_ms(part) != moment:
                continue
            start, end, (_, first) = part
            left = [one for one in self._parts(group, key) if one != part]
            if first is not None:
                row = self._row(group, key, start, moment)
                if len(row[0]) >= self._assigner.min_records:
                    yield Fired(key, Window(first, moment), row, Unkept())
                if moment < end:
                    rest = self._rest(group, key, moment, end)
                    left.append(rest)
                    self._remember(self._due_ms(rest), group, key)
            self._drop(group, key, sorted(left, key=lambda one: one[0]))

    def _is_waiting(self, moment: int, window_key: WindowKey) -> bool:
        _, group, key = window_key
        return any(self._due_ms(part) == moment for part in self._parts(group, key))

    def _rest(self, group: int, key: Any, start: int, end: int) -> _Part:
        times, _ = self._row(group, key, start, end)
        return (start, end, (True, min(times, default=None)))

    def _due_ms(self, part: _Part) -> int:
        """Return when the part fires or, being without records, is forgotten."""
        _, end, (_, first) = part
        assert self._assigner.max_duration_ms is not None
        return end if first is None else min(end, first + self._assigner.max_duration_ms)

    def _parts(self, group: int, key: Any) -> list[_Part]:
        return list(self.table.entries.find(PLACE, group, key) or ())

    def _put(self, group: int, key: Any, parts: list[_Part]) -> None:
        kept = self.table.entries.group(PLACE, group)
        kept[key] = sorted(parts, key=lambda one: one[0])
        self.table.entries.touch(PLACE, group, (key,))
