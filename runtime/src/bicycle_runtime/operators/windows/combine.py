"""The step before the shuffle: one content per key and window travels instead of its records.

It folds as the window would. Records whose window may be closed are not folded: they travel as
they are, so that the window can count them and tell how late they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bicycle_runtime.operators.batch import Batch, ExchangeTrail
from bicycle_runtime.operators.calling.policy import RecordPolicy
from bicycle_runtime.operators.folding.aggregates import Folding
from bicycle_runtime.operators.folding.blocks import Block, Partials, RawRecords, seal_block
from bicycle_runtime.operators.folding.gathering import FoldedContents
from bicycle_runtime.operators.folding.intervals import session_ends
from bicycle_runtime.operators.folding.rows import Rows, rows_of
from bicycle_runtime.operators.folding.slots import SessionSlots, WindowSlots
from bicycle_runtime.operators.functions.contexts import WorkerContext
from bicycle_runtime.operators.functions.operator import Advance, EpochTime, Operator, Timed
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.operators.windows.field_fold import FieldFold, field_fold
from bicycle_runtime.operators.windows.meaning import complete_end
from bicycle_runtime.operators.windows.strips import Strips
from bicycle_runtime.records.blobs import BYTE_GROUPS_MAX
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.windows import AlignedWindows, SessionWindows, WindowPlan

__all__ = ["CombineOperator"]

_SLOTS_MAX = 1 << 17  # contents that are held back at most; then what there is travels


class CombineOperator(Operator, Timed):
    """Folds the records of an epoch by key and window.

    Args:
        spec: Which operator this is.
        policy: Settles records that a function refuses, as the window's own policy says.
        context: Task info and time.
        plan: The window.
        key_selector: Gives the key of a record.
        record_type: Declared type of the records, None when unknown.
    """

    def __init__(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext, plan: WindowPlan,
        *, key_selector: Callable[[Any], Any], record_type: Any,
    ) -> None:  # fmt: skip
        super().__init__(spec, policy, context)
        self._plan = plan
        self._key_of = key_selector
        folding = Folding(plan, record_type)
        contents = FoldedContents(folding, policy)
        self._step: _Step
        if isinstance(plan.assigner, AlignedWindows):
            self._step = _AlignedStep(plan.assigner, contents)
        else:
            assert isinstance(plan.assigner, SessionWindows)
            self._step = _SessionStep(plan.assigner, contents, policy)
        self._functions, self._record_type = folding.functions, record_type
        self._fields: FieldFold | None = None
        self._closed = WATERMARK_MIN
        self._last_ms = 0

    def fold_fields(
        self, key: str | None, time: str | None, *, by_record: Callable[[Batch], Batch]
    ) -> bool:
        """Fold by field what comes without key groups; tell whether that is possible.

        Args:
            key: Field of the key, None when the key is something else.
            time: The same for the event time.
            by_record: Gives the records of a batch their key groups, to be folded one by one.
        """
        self._by_record = by_record
        self._fields = field_fold(
            self._plan, self._functions, self._record_type,
            key=key, time=time, group_count=self.spec.group_count,
        )  # fmt: skip
        return self._fields is not None

    def begin_epoch(self, time: EpochTime) -> None:
        super().begin_epoch(time)
        self._step.slots.clear()
        if self._fields is not None:
            self._fields.clear()

    def begin_time(self, advance: Advance) -> None:
        self._closed = complete_end(self._plan, advance.previous) - self._plan.lateness_ms

    def apply(self, batch: Batch) -> Batch:
        if self._fields is not None and batch.groups is None:
            last_ms = self._fields.add(batch.values, self._closed)
            if last_ms is not None:
                self._last_ms = last_ms
                return self._batch(self._fields.take() if self._fields.is_full else [])
            batch = self._by_record(batch)
        window = self.spec.uid.removesuffix("-combine")  # That one the user knows.
        rows = rows_of(batch, self._key_of, self.policy, operator=window)
        if rows.keys:
            self._last_ms = rows.times[-1]
        rows, doubtful = self._step.split(rows, self._closed)
        if rows.keys:
            self._step.slots.add(rows)
        sent: list[tuple[int, Block]] = [*_raw_blocks(doubtful)]
        if len(self._step.slots) >= _SLOTS_MAX:
            sent += self._step.blocks()
        return self._batch(sent)

    def advance(self, advance: Advance) -> Iterator[Batch]:  # noqa: ARG002  # what is held back travels whatever the time
        by_field = [] if self._fields is None else self._fields.take()
        yield self._batch([*by_field, *self._step.blocks()])

    def next_event_ms(self) -> int | None:
        return None

    def next_timer_ms(self) -> int | None:
        return None

    def _batch(self, blocks: Iterable[tuple[int, Block]]) -> Batch:
        sealed = [(group, seal_block(block)) for group, block in blocks]
        groups = [group for group, _ in sealed]
        column = bytes(groups) if self.spec.group_count <= BYTE_GROUPS_MAX else groups
        times = [self._last_ms] * len(sealed)
        return Batch([data for _, data in sealed], ExchangeTrail(None, times), column)


class _AlignedStep:
    """Combining for tumbling and sliding windows."""

    def __init__(self, windows: AlignedWindows, contents: FoldedContents) -> None:
        self._strips = Strips(windows)
        self.slots = WindowSlots(contents)

    def split(self, rows: Rows, closed: int) -> tuple[Rows, Rows]:
        """Return the rows to fold, and those whose windows are closed."""
        rows.places = starts = self._strips.starts(rows.times)
        outside = set(self._strips.outside(starts))
        if outside:
            rows = rows.picked([i for i in range(len(starts)) if i not in outside])
        return _split(rows, self._strips.least_open(closed))

    def blocks(self) -> list[tuple[int, Partials | RawRecords]]:
        """Return what was folded, a block per key group, and start anew."""
        parts: dict[int, list[Any]] = {}
        for start, group, keys, contents in self.slots.take():
            parts.setdefault(group, []).append((start, keys, contents))
        return [(group, Partials(found)) for group, found in sorted(parts.items())]


class _SessionStep:
    """Combining for sessions."""

    def __init__(
        self, windows: SessionWindows, contents: FoldedContents, policy: RecordPolicy
    ) -> None:
        self._windows, self._policy = windows, policy
        self.slots = SessionSlots(contents)

    def split(self, rows: Rows, closed: int) -> tuple[Rows, Rows]:
        """Return the rows to fold, and those whose own interval is closed."""
        rows = session_ends(rows, self._windows, self._policy)
        return _split(rows, closed + 1)

    def blocks(self) -> list[tuple[int, Partials | RawRecords]]:
        """Return what was folded, a block per key group, and start anew."""
        parts: dict[int, list[Any]] = {}
        for session in self.slots.take():
            parts.setdefault(session.group, []).append(session)
        return [(group, _of_sessions(found)) for group, found in sorted(parts.items())]


_Step = _AlignedStep | _SessionStep


def _split(rows: Rows, least: int) -> tuple[Rows, Rows]:
    """Divide rows by whether their place is at least ``least``."""
    places: Sequence[int] = rows.places
    if not places or min(places) >= least:
        return rows, rows.picked([])
    return (
        rows.picked([i for i, place in enumerate(places) if place >= least]),
        rows.picked([i for i, place in enumerate(places) if place < least]),
    )


def _of_sessions(sessions: list[Any]) -> Partials:
    starts = [session.start for session in sessions]
    ends = [session.end for session in sessions]
    keys = [session.key for session in sessions]
    return Partials([((starts, ends), keys, [session.content for session in sessions])])


def _raw_blocks(rows: Rows) -> list[tuple[int, Partials | RawRecords]]:
    by_group: dict[int, RawRecords] = {}
    for group, time, value in zip(rows.groups, rows.times, rows.batch.values, strict=True):
        block = by_group.setdefault(group, RawRecords([], []))
        block.values.append(value)
        block.times.append(time)
    return sorted(by_group.items(), key=lambda item: item[0])
