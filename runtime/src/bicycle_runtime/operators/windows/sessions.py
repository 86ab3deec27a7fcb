"""Session windows in state.

Sessions of a key are joined when their intervals touch. A record at or before the watermark joins
an open session that it touches, or opens a session if its own interval is still open. It is late if
neither applies, or if it touches a session that has ended: otherwise two sessions of a key would
overlap. The operator decides after all records of the epoch, so that the order of arrival within
an epoch does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from types import GenericAlias
from typing import Any

from bicycle_runtime.layouts.state import WindowKey
from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.columnar.field_columns import field_columns
from bicycle_runtime.operators.columnar.merge import ColumnMerge
from bicycle_runtime.operators.preaggregation.accumulators import Session
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.preaggregation.batch_rows import Rows
from bicycle_runtime.operators.windows.base import WindowOperator
from bicycle_runtime.operators.windows.blocks import Partials
from bicycle_runtime.operators.windows.ended_sessions import is_ended, keep_until, last_end
from bicycle_runtime.operators.windows.firing import Fired, Unkept
from bicycle_runtime.operators.windows.kept_windows import KeptWindows
from bicycle_runtime.operators.windows.placements import Placement, SessionPlacement
from bicycle_runtime.state.memory.windows import WindowEntries, WindowTables
from bicycle_sdk.state import TimeDomain
from bicycle_sdk.windows import SessionWindows, Window, WindowPlan

_NAMESPACE = 0  # sessions belong to keys, not to stretches of time
# Start, end and content of the sessions of one key, and of the last ended one (ended_sessions).
Open = list[tuple[int, int, Any]]


class KeptSessions(KeptWindows):
    """Keeps the open sessions of each key. When they are due is looked up in them once more."""

    def __init__(self, window: WindowOperator, placement: Placement) -> None:
        super().__init__(window, placement)
        assert isinstance(placement, SessionPlacement)
        assert isinstance(self.plan.assigner, SessionWindows)
        self._assigner, self._accumulators = self.plan.assigner, placement.accumulators
        self.columns = ColumnMerge(field_columns(self.folding.functions) or [])
        self._doubtful: list[tuple[int, Rows]] = []  # end and its only row
        self._touched: set[tuple[int, Any, int]] = set()

    @classmethod
    def new_entries(
        cls, plan: WindowPlan, folding: Folding, windows: WindowTables
    ) -> WindowEntries:
        folded = type(None) if plan.keeps_records else folding.state_type
        session = GenericAlias(tuple, (int, int, folded))
        return windows.entries("s", None if folded is None else GenericAlias(list, (session,)))

    def moments(self, entry: Any) -> Iterator[tuple[TimeDomain, int]]:
        lateness = self.plan.lateness_ms
        for start, end, _ in entry:
            if is_ended(start, end):
                yield "event", start
                continue
            yield "event", end
            if lateness:
                yield "event", end + lateness

    def clear(self) -> None:
        self.columns.clear()
        self._doubtful.clear()
        self._touched.clear()

    def take_late(self, rows: Rows) -> None:
        for index, end in enumerate(rows.namespaces):
            self._doubtful.append((end, rows.take([index])))

    def take_partials(self, group: int, block: Partials) -> None:
        for (starts, ends), keys, contents in block.parts:
            for session in zip(keys, starts, ends, contents, strict=True):
                self._join(Session(group, *session))

    def settle(self) -> None:
        for session in chain(self.columns.take_sessions(), self._accumulators.take()):
            self._join(session)
        self._decide_doubtful()

    def fire(self) -> Iterator[Batch]:
        yield self.window.fired(list(self._due()))

    def expire(self) -> None:
        self._touched.clear()  # Windows that are over were removed when due.

    def next_event_ms(self) -> int | None:
        return self.window.event_times.first(self._is_waiting)

    # --- records in --------------------------------------------------------------------------

    def _decide_doubtful(self) -> None:
        """Join records at or before the watermark to sessions, or count them as late.

        The latest go first: each may lengthen a session backwards to the next.
        """
        for end, row in sorted(self._doubtful, key=lambda item: (-item[0], -item[1].times[0])):
            group, key, start = row.groups[0], row.keys[0], row.times[0]
            sessions: Open = self.table.entries.find(_NAMESPACE, group, key) or []
            is_open = not self.window.is_closed(end) or any(
                start <= other_end and other <= end for other, other_end, _ in sessions
            )
            if is_open and start > last_end(sessions):
                self._accumulators.add(row)
                for session in self._accumulators.take():
                    self._join(session)
            else:
                self.window.count_late(row, [Window(start, end)])
        self._doubtful.clear()

    def _join(self, new: Session) -> None:
        kept = self.table.entries.group(_NAMESPACE, new.group)
        sessions: Open = kept.get(new.key, [])
        touching = [one for one in sessions if one[0] <= new.end and new.start <= one[1]]
        start, end, content = new.start, new.end, new.content
        if self.keeps_records:
            self.table.records.add(_NAMESPACE, new.group, new.key, content)
            content = None
        for one in touching:
            start, end = min(start, one[0]), max(end, one[1])
            if content is not None:
                content = self.folding.merged(one[2], content)
        others = [one for one in sessions if one not in touching] if touching else sessions
        kept[new.key] = sorted([*others, (start, end, content)], key=lambda one: one[0])
        self.table.entries.touch(_NAMESPACE, new.group, (new.key,))
        self._touched.add((new.group, new.key, end))
        self._remember(end, new.group, new.key)

    # --- results out -------------------------------------------------------------------------

    def _remember(self, end: int, group: int, key: Any) -> None:
        self.window.event_times.add(end, (_NAMESPACE, group, key))

    def _due(self) -> Iterator[Fired]:
        for moment, (_, group, key) in self.window.event_times.due(self.window.complete):
            yield from self._due_of(moment, group, key)

    def _due_of(self, moment: int, group: int, key: Any) -> Iterator[Fired]:
        """Fire a key's session that ends at a moment, or drop it if its time is over."""
        sessions: Open = self.table.entries.find(_NAMESPACE, group, key) or []
        for session in sessions:
            start, end, content = session
            if (
                end == moment
                and not is_ended(start, end)
                and (end > self.window.complete_before or (group, key, end) in self._touched)
            ):
                if self.keeps_records:
                    content = self._row(group, key, start, end)
                count = (
                    len(content[0]) if self.keeps_records else content[self.folding.count_position]
                )
                if count >= self._assigner.min_records:
                    yield Fired(key, Window(start, end), content, Unkept())
        lateness = self.plan.lateness_ms
        over = [session for session in sessions if self._is_over(session, sessions, moment)]
        if over:
            left = [one for one in sessions if not self._is_over(one, sessions, moment)]
            ended = max(over, key=lambda one: one[1])
            if not is_ended(ended[0], ended[1]):
                left = self._with_ended(left, self._remember_end(group, key, ended))
            self._drop(group, key, left)
        if lateness and any(end == moment for _, end, _ in sessions):
            self._remember(moment + lateness, group, key)

    def _is_over(self, session: tuple[int, int, Any], sessions: Open, moment: int) -> bool:
        """Return whether a session, or the trace of an ended one, goes at a moment.

        The trace stays while another session is open: a record may touch both.
        """
        start, end, _ = session
        if is_ended(start, end):
            return start <= moment and len(sessions) == 1
        return end + self.plan.lateness_ms <= moment

    def _remember_end(self, group: int, key: Any, session: tuple[int, int, Any]) -> Any:
        start, end, _ = session
        until = keep_until(self.plan, start, end)
        self._remember(until, group, key)
        return (until, end, None if self.keeps_records else self.folding.fresh())

    def _with_ended(self, left: Open, ended: Any) -> Open:
        """Return open sessions with the trace of the last ended one, if still needed."""
        left = [one for one in left if not is_ended(one[0], one[1])]
        return [*left, ended] if left or ended[0] > self.window.complete else []

    def _is_waiting(self, moment: int, window_key: WindowKey) -> bool:
        """Return whether a session of the key fires or is dropped at a moment to come."""
        sessions: Open = self.table.entries.find(*window_key) or []
        return any(
            self._is_over(session, sessions, moment)
            if is_ended(session[0], session[1])
            else moment in (session[1], session[1] + self.plan.lateness_ms)
            for session in sessions
        )

    def _drop(self, group: int, key: Any, left: Open) -> None:
        if self.keeps_records:
            times, values = self.table.records.row(_NAMESPACE, group, key)
            kept = [i for i, t in enumerate(times) if any(s <= t < e for s, e, _ in left)]
            row = [times[i] for i in kept], [values[i] for i in kept]
            self.table.records.replace(_NAMESPACE, group, key, row)
        if left:
            self.table.entries.group(_NAMESPACE, group)[key] = left
            self.table.entries.touch(_NAMESPACE, group, (key,))
        else:
            self.table.entries.remove(_NAMESPACE, group, key)

    def _row(self, group: int, key: Any, start: int, end: int) -> tuple[list[int], list[Any]]:
        times, values = self.table.records.row(_NAMESPACE, group, key)
        inside = [i for i, time in enumerate(times) if start <= time < end]
        return [times[i] for i in inside], [values[i] for i in inside]


# Session windows of limited length: a longer session is split, counted from its first record.
#
# A session is cut when the watermark reaches the cut. Its *rest* stays open from there to its end,
# so that records which belong to it still find it. Records before the cut of an open rest are late.
# Nothing is folded before it fires: where a session is cut is known only then.


# Start, end, and: whether it is the rest of a session that was cut, time of its first record.
_Part = tuple[int, int, tuple[bool, int | None]]


class CutSessions(KeptSessions):
    """Stored open sessions of each key with records, which are split as they fire."""

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

    def admit(self, rows: Rows) -> Rows:
        """Return the rows after all splits; earlier rows are late, their window fired."""
        if min(rows.times) > self.window.complete_before:
            return rows
        late = [
            index
            for index, (group, key, time) in enumerate(
                zip(rows.groups, rows.keys, rows.times, strict=True)
            )
            if any(
                about[0] and time < start and not is_ended(start, end)
                for start, end, about in self._parts(group, key)
            )
        ]
        if not late:
            return rows
        namespaces = rows.namespaces
        windows = [Window(rows.times[index], namespaces[index]) for index in late]
        self.window.count_late(rows.take(late), windows)
        gone = set(late)
        return rows.take([index for index in range(len(namespaces)) if index not in gone])

    def _join(self, new: Session) -> None:
        parts = self._parts(new.group, new.key)
        touching = [one for one in parts if one[0] <= new.end and new.start <= one[1]]
        firsts = [first for _, _, (_, first) in touching if first is not None]
        joined: _Part = (
            min([new.start, *(start for start, _, _ in touching)]),
            max([new.end, *(end for _, end, _ in touching)]),
            (any(is_rest for _, _, (is_rest, _) in touching), min([new.start, *firsts])),
        )
        self.table.records.add(_NAMESPACE, new.group, new.key, new.content)
        self._put(new.group, new.key, [*(one for one in parts if one not in touching), joined])
        self._remember(self._due_ms(joined), new.group, new.key)

    # --- results out -------------------------------------------------------------------------

    def _due_of(self, moment: int, group: int, key: Any) -> Iterator[Fired]:
        """Fire and drop the part of a key that is due at a moment."""
        for part in self._parts(group, key):
            if self._due_ms(part) != moment:
                continue
            start, end, (_, first) = part
            left = [one for one in self._parts(group, key) if one != part]
            if is_ended(start, end):
                left = [*left, part] if left else []
            elif first is None:
                left = self._with_ended(
                    left, self._remember_end(group, key, (start, start - 1, None))
                )
            else:
                row = self._row(group, key, start, moment)
                if len(row[0]) >= self._assigner.min_records:
                    yield Fired(key, Window(first, moment), row, Unkept())
                if moment < end:
                    rest = self._rest(group, key, moment, end)
                    left.append(rest)
                    self._remember(self._due_ms(rest), group, key)
                else:
                    left = self._with_ended(
                        left, self._remember_end(group, key, (first, end, None))
                    )
            self._drop(group, key, sorted(left, key=lambda one: one[0]))

    def _remember_end(self, group: int, key: Any, session: tuple[int, int, Any]) -> _Part:
        until, end, _ = super()._remember_end(group, key, session)
        return (until, end, (True, None))

    def _is_waiting(self, moment: int, window_key: WindowKey) -> bool:
        _, group, key = window_key
        parts = self._parts(group, key)
        return any(
            self._due_ms(part) == moment and (len(parts) == 1 or not is_ended(part[0], part[1]))
            for part in parts
        )

    def _rest(self, group: int, key: Any, start: int, end: int) -> _Part:
        times, _ = self._row(group, key, start, end)
        return (start, end, (True, min(times, default=None)))

    def _due_ms(self, part: _Part) -> int:
        """Return when the part fires or, being without records, is forgotten."""
        start, end, (_, first) = part
        assert self._assigner.max_duration_ms is not None
        if is_ended(start, end):
            return start
        return end if first is None else min(end, first + self._assigner.max_duration_ms)

    def _parts(self, group: int, key: Any) -> list[_Part]:
        return list(self.table.entries.find(_NAMESPACE, group, key) or ())

    def _put(self, group: int, key: Any, parts: list[_Part]) -> None:
        kept = self.table.entries.group(_NAMESPACE, group)
        kept[key] = sorted(parts, key=lambda one: one[0])
        self.table.entries.touch(_NAMESPACE, group, (key,))
