"""The base of window operators: plan, table, late records, results as batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.frames.record_shapes import RESULT_SHAPE, RecordShape
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.operators.batch import Batch, ExchangeLineage, new_batch
from bicycle_runtime.operators.columnar.field_columns import window_problem
from bicycle_runtime.operators.functions.answers import ColumnAnswer, Load, loaded_function
from bicycle_runtime.operators.functions.declarations import texts_in
from bicycle_runtime.operators.functions.operator import (
    Advance,
    EpochTime,
    Operator,
    SideBatch,
    Stateful,
    Timed,
)
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.preaggregation.batch_rows import Rows
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.operators.user_calls.policy import RecordPolicy
from bicycle_runtime.operators.windows.firing import Fired, Firing
from bicycle_runtime.operators.windows.meaning import complete_end, due_rules, window_settings
from bicycle_runtime.state.memory.composite import CompositeTable
from bicycle_runtime.state.memory.due import DueTimes
from bicycle_runtime.state.memory.windows import WindowEntries, WindowTable, WindowTables
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.state import TimeDomain
from bicycle_sdk.windows import LateRecord, Window, WindowPlan

if TYPE_CHECKING:
    from bicycle_runtime.operators.functions.keyed_contexts import KeyedContext


class WindowOperator(Operator, Stateful, Timed):
    """A window vertex; subclasses place records and fire windows.

    Args:
        spec: Which operator this is.
        policy: Settles records and windows whose function failed.
        context: Task info, time, and the states that a window function keeps per key.
        plan: The window.
        key_selector: Returns the key of a record.
        record_type: Declared type of the records, None when unknown.
        storage: The location of the state.
    """

    # Whether each key has windows of its own, with times and records that are replaced one by one.
    is_by_key: bool = True
    context: KeyedContext

    def __init__(
        self, spec: OperatorSpec, policy: RecordPolicy, context: KeyedContext, plan: WindowPlan,
        *, key_selector: Callable[[Any], Any], record_type: Any, storage: Storage,
    ) -> None:  # fmt: skip
        super().__init__(spec, policy, context)
        self.plan = plan
        self.keeps_records = plan.keeps_records
        self.key_of = key_selector
        policy.key_of = self._key_in
        self.record_type = record_type
        self.folding = Folding(plan, record_type, undoes=policy.undoes)
        context.registry.texts = frozenset(texts_in(plan.process))
        self.firing = Firing(plan, self.folding, policy, context, record_type=record_type)
        windows = context.tables.windows
        self.event_times = windows.due_times("event")
        self.processing_times = windows.due_times("processing")
        self._has_kept_times = False
        self.has_times = True  # Whether the latest records have event times.
        self._store = context.tables.store(spec.uid, storage, self._new_table)
        self.table = self._new_table().main
        self._seen: tuple[WindowTable, int] | None = None
        self._state: RangeState | None = None
        self._late: list[tuple[LateRecord[Any], int]] = []
        self.watermark = WATERMARK_MIN
        # Windows that ended by then are complete: when the epoch began, and now.
        self.complete_before = self.complete = WATERMARK_MIN
        self.now_ms = 0
        self._epoch = 0

    @classmethod
    def answer(cls, spec: OperatorSpec, load: Load, shape: RecordShape | None) -> ColumnAnswer:  # noqa: ARG003  # Its input is partial results, or records.
        plan = loaded_function(spec, load)
        is_combined = bool(spec.vertex.details.get("is_combined", False))
        emits_records = plan.process is not None or plan.keeps_records
        return ColumnAnswer(
            window_problem(plan, is_combined=is_combined),
            gives=None if emits_records else RESULT_SHAPE,
        )

    @abstractmethod
    def new_entries(self, windows: WindowTables) -> WindowEntries:
        """Return empty entries of the shape that the operator keeps."""

    @abstractmethod
    def moments(self, entry: Any) -> Iterable[tuple[TimeDomain, int]]:
        """Return the times that an entry waits for. They follow from the plan and the entry."""

    def _new_table(self) -> CompositeTable[WindowTable]:
        """Return an empty table; the handles that a window function holds stay good."""
        keyed = self.context.keyed
        keyed.reset()
        windows = self.context.tables.windows
        entries = self.new_entries(windows)
        records = windows.records(self.record_type, is_by_key=self.is_by_key)
        table = windows.table(entries, records)
        settings = window_settings(self.plan, self.folding)
        table.open(self.context.registry, settings, keeps_records=self.keeps_records)
        if self.is_by_key:
            rules = due_rules(self.plan)
            self._has_kept_times = windows.keep_due_times(entries, self.moments, rules)
        return CompositeTable(table, keyed)

    def index(self) -> None:
        """Find out when windows are due. Called when sealed changes were put in."""
        self.event_times.reset()
        self.processing_times.reset()
        if self._has_kept_times or not self.is_by_key:
            return
        for namespace, group, key, entry in self.table.entries.all():
            for domain, time_ms in self.moments(entry):
                self.times_of(domain).add(time_ms, (namespace, group, key))

    def times_of(self, domain: TimeDomain) -> DueTimes:
        """Return when windows are due in one domain of time."""
        return self.event_times if domain == "event" else self.processing_times

    def begin_epoch(self, time: EpochTime) -> None:
        super().begin_epoch(time)
        self._epoch = time.epoch

    def restore(self, state: RangeState) -> None:
        self.table = self._store.at(state).main
        self.table.begin()
        self.table.records.epoch = self._epoch
        self._state = state

    def begin_time(self, advance: Advance) -> None:
        self._previous = advance.previous
        self.let_come(advance.previous)
        self.complete_before = self.complete
        self.now_ms = advance.now_ms
        self.begin_firing()
        if self._seen != (self.table, self.table.generation):
            self.index()
            self._seen = (self.table, self.table.generation)

    def let_come(self, watermark: int) -> None:
        """Take note of how far event time has come."""
        self.watermark, self.complete = watermark, complete_end(self.plan, watermark)

    def watermark_for(self, end: int) -> int:
        """Return the least watermark at which windows that end then are complete."""
        return end - (self.complete - self.watermark)

    def begin_firing(self) -> None:
        """Set the time for window functions; state of keys is unchanged."""
        # Windows fire in the order of their ends, so the time of each is behind this one.
        self.context.watermark = self._previous
        self.firing.begin(now_ms=self.now_ms, watermark=self.watermark, random=self.context.random)

    def commit(self, epoch: int, attempt: str, *, is_interval_over: bool) -> RangeState:
        assert self._state is not None
        self.context.watermark = self.watermark
        return self._store.commit(
            self._state, epoch=epoch, attempt=attempt, is_interval_over=is_interval_over
        )

    def take_sides(self) -> list[SideBatch]:
        sent = [*self.firing.sides]
        if self.plan.late_tag is not None:
            sent += [(self.plan.late_tag, record, time) for record, time in self._late]
        self.firing.sides, self._late = [], []
        by_tag: dict[str, tuple[list[Any], list[int]]] = {}
        for tag, value, time in sent:
            values, times = by_tag.setdefault(tag, ([], []))
            values.append(value)
            times.append(time)
        return [
            SideBatch(tag, Batch(values, ExchangeLineage(None, times if self.has_times else None)))
            for tag, (values, times) in by_tag.items()
        ]

    def next_timer_ms(self) -> int | None:
        return self.context.keyed.next_due_ms()

    @property
    def function(self) -> Any:
        """The window function, or None."""
        return self.firing.function

    def key_count(self) -> int:
        return self._store.key_count()

    def release(self) -> None:
        self._store.close()

    def is_closed(self, end: int) -> bool:
        """Return whether a window with this end was closed before this epoch."""
        return end + self.plan.lateness_ms <= self.complete_before

    def count_late(self, rows: Rows, windows: Sequence[Window]) -> None:
        """Count records of closed windows, and emit them to the late output if it exists."""
        self.late += len(windows)
        if self.plan.late_tag is None:
            return
        for value, time, window in zip(rows.batch.values, rows.times, windows, strict=True):
            record = LateRecord(value, time, window, self._previous, self._previous - time)
            self._late.append((record, time))

    def fired(self, windows: Sequence[Fired]) -> Batch:
        """Return the results of windows as a batch."""
        values, times = self.firing.results(windows)
        return new_batch(values, times)

    def _key_in(self, value: Any) -> Any:
        return value.key if type(value) is Fired else self.key_of(value)
