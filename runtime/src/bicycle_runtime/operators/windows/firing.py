"""The output of a firing window: results with key, bounds and time.

Windows fire in the order of their ends, within one end by key group and key, so that neither the
order of arrival nor a restart shows in the order of results.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bicycle_runtime.base.user_code import is_async, until_failure
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.vectors import TupleVector, Vector
from bicycle_runtime.operators.batch import NO_INPUT, Batch, ExchangeLineage
from bicycle_runtime.operators.errors import WINDOW_STATE_UNMERGEABLE
from bicycle_runtime.operators.functions.operator import as_sequences
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.user_calls.attempts import prepare_attempts, undoing
from bicycle_runtime.operators.user_calls.batches import each
from bicycle_runtime.operators.user_calls.policy import DROPPED, RecordPolicy
from bicycle_runtime.operators.user_calls.user_functions import eager, resolve
from bicycle_runtime.state.undo import Attempts, UndoLog
from bicycle_sdk.errors import StateDefinitionError
from bicycle_sdk.functions import full_name
from bicycle_sdk.state import StateDescriptor, TimeDomain
from bicycle_sdk.state.frozen import is_frozen_type
from bicycle_sdk.state.separation import separate
from bicycle_sdk.windows import AlignedWindows, Window, WindowContext, WindowPlan, WindowResult

if TYPE_CHECKING:
    from bicycle_runtime.operators.functions.keyed_contexts import KeyedContext


class Fired(NamedTuple):
    """A firing window of one key: accumulators or records, and kept values."""

    key: Any
    window: Window
    content: Any
    values: dict[str, Any]


class Unkept(dict[str, Any]):
    """The values of a window that cannot keep any, such as a session that may merge."""

    def __setitem__(self, name: str, value: Any) -> None:
        raise WINDOW_STATE_UNMERGEABLE(name=name)


class FiringContext(WindowContext[Any]):
    """The context of window functions on a worker, with the operator's keyed state.

    Args:
        operator: The operator's context; the time by which its states expire is kept up to date.
    """

    def __init__(self, operator: KeyedContext) -> None:
        super().__init__(
            task_info=operator.task_info,
            processing_time=operator.processing_time,
            metrics=operator.metrics,
        )
        self._operator = operator
        self._is_firing = False

    def begin(self, fired: Fired, watermark: int) -> None:
        """Turn to a window that fires."""
        self.enter(key=fired.key, window=fired.window, watermark=watermark, values=fired.values)
        # Not the watermark, which is as far as epochs are long: states would expire by chance.
        # Nor the time of a record in the batch: a trigger may fire at any of them.
        self._operator.batch = None
        self._operator.timestamp = fired.window.end - 1
        self._is_firing = True

    def note_values(self, log: UndoLog) -> None:
        """Save the window's kept values at the beginning of an attempt."""
        log.append((_refill, self._values, copy.deepcopy(dict(self._values))))

    def end(self) -> None:
        """Clear the current window."""
        self._operator.timestamp = None
        self._is_firing = False

    def state_entries(self, descriptor: StateDescriptor) -> Any:
        """Return the entries of a state of the key."""
        return self._operator.state_entries(descriptor)

    def state_key(self) -> Hashable:
        """Return the key of the window.

        Raises:
            StateDefinitionError: no window fires.
        """
        if not self._is_firing:
            raise StateDefinitionError(
                state="current key",
                problem="no window is being processed",
                hint="create handles in open(), and use them in process()",
            )
        return super().state_key()

    def state_time(self, domain: TimeDomain) -> int:
        """Return the time in ms by which states expire."""
        return self._operator.state_time(domain)


class Firing:
    """The conversion of firing windows to records, by aggregates or a window function.

    Args:
        plan: The window.
        folding: Its aggregates.
        policy: Settles windows whose function failed, as it does records elsewhere.
        context: That of the operator.
        record_type: Declared type of the records, None when unknown.
    """

    def __init__(
        self, plan: WindowPlan, folding: Folding, policy: RecordPolicy, context: KeyedContext,
        *, record_type: Any = None,
    ) -> None:  # fmt: skip
        self._plan, self._folding, self._policy = plan, folding, policy
        self._context = FiringContext(context)
        self._keeps_records = plan.keeps_records
        # Functions may change records in place, of which windows may have need later.
        is_frozen = record_type is not None and is_frozen_type(record_type)
        self._copies = (plan.outlives_firing or policy.undoes) and not is_frozen
        self._sorts = plan.has_event_time
        self._watermark = 0
        self.sides: list[tuple[str, Any, int]] = []
        self.function = plan.process
        self._awaits = False
        self._process: Callable[..., Any] | None = None
        self._attempts: Attempts | None = None
        if plan.process is not None:
            called = getattr(plan.process, "process", plan.process)
            if policy.undoes:
                self._attempts = prepare_attempts(plan.process, [called])
                context.undo_attempts(self._attempts)
            if hasattr(plan.process, "open"):
                resolve(plan.process.open, self._context)
            self._process = eager(called)
            self._awaits = is_async(self._process)
            if self._attempts is not None:
                self._process = undoing(self._process, self._attempts, self._context.note_values)

    def begin(self, *, now_ms: int, watermark: int, random: Any) -> None:
        """Take note of the time that functions see from now on."""
        self._watermark = watermark
        self._context.processing_time = now_ms
        self._context.random = random

    def of_columns(
        self, starts: Any, keys: list[Any], columns: Sequence[list[Any]]
    ) -> tuple[Frame, list[int]]:
        """Return the output records of windows of one size, and their event times.

        Args:
            starts: Of the window of each result, an array.
            keys: The keys.
            columns: The folds, as ``field_columns`` describes them.
        """
        assert isinstance(self._plan.assigner, AlignedWindows)
        ends = starts + self._plan.assigner.size_ms
        bounds = Vector(len(keys), None, starts), Vector(len(keys), None, ends)
        found = self._folding.columns_of_folded(columns)
        return self._results(keys, bounds, found), (ends - 1).tolist()

    def _results(
        self, keys: list[Any], bounds: tuple[Vector, Vector], columns: Sequence[Iterable[Any]]
    ) -> Frame:
        count = len(keys)
        parts = [Vector(count, list(column)) for column in columns]
        value = TupleVector(count, parts) if self._folding.is_tuple else parts[0]
        return Frame.of(_RESULTS, [Vector(count, keys), *bounds, value], count)

    def results(self, fired: Sequence[Fired]) -> tuple[Sequence[Any], list[int]]:
        """Return the output records of windows, and their event times."""
        if not fired:
            return [], []
        ends = [item.window.end - 1 for item in fired]
        if self._process is None and not self._keeps_records:
            # The failure and its handling are found below.
            with until_failure():
                # hot path: 350 ns a result, most of it for the exact rounding of sums.
                columns = self._folding.columns([item.content for item in fired])
                bounds = (
                    Vector(len(fired), [item.window.start for item in fired]),
                    Vector(len(fired), [item.window.end for item in fired]),
                )
                return self._results([item.key for item in fired], bounds, columns), ends
        known = ends if self._sorts else None
        self._policy.batch = Batch(list(fired), ExchangeLineage(None, known), ordinal=NO_INPUT)
        if self._process is None:
            found = each(self._aggregate, fired, policy=self._policy, awaits=False)
            pairs = [(r, f) for r, f in zip(found, fired, strict=True) if r is not DROPPED]
            return [r for r, _ in pairs], [f.window.end - 1 for _, f in pairs]
        if self._attempts is not None:
            self._attempts.begin_batch()
        call = self._call_later if self._awaits else self._call
        try:
            found = each(call, fired, policy=self._policy, awaits=self._awaits)
        finally:
            self._context.end()
        listed = as_sequences(found, function=full_name(self.function), policy=self._policy)
        records = [record for records in listed for record in records]
        times = [end for end, some in zip(ends, listed, strict=True) for _ in some]
        return records, times

    def _aggregate(self, fired: Fired) -> WindowResult[Any, Any]:
        content = fired.content
        if self._keeps_records:
            content = self._folding.folded(self._elements(content))
        value = self._folding.value(content)
        return WindowResult(fired.key, fired.window.start, fired.window.end, value)

    def _call(self, fired: Fired) -> Any:
        result = resolve(self._call_function, fired)
        self._collect(fired)
        return result

    async def _call_later(self, fired: Fired) -> Any:
        result = await self._call_function(fired)
        self._collect(fired)
        return result

    def _call_function(self, fired: Fired) -> Any:
        assert self._process is not None
        self._context.begin(fired, self._watermark)
        self._context.take_side_outputs()
        return self._process(self._elements(fired.content), self._context)

    def _elements(self, row: tuple[list[int], list[Any]]) -> list[Any]:
        """Return the records of a window in order, for a function that may change them."""
        elements = _by_time(row) if self._sorts else list(row[1])
        return list(map(separate, elements)) if self._copies else elements

    def _collect(self, fired: Fired) -> None:
        time = fired.window.end - 1
        self.sides += [(tag, value, time) for tag, value in self._context.take_side_outputs()]


def _refill(values: dict[str, Any], before: dict[str, Any]) -> None:
    dict.clear(values)
    dict.update(values, before)


_RESULTS = RecordForm(WindowResult, WindowResult._fields)


def _by_time(row: tuple[list[int], list[Any]]) -> list[Any]:
    """Return records in event-time order; records of equal times keep their order."""
    times, values = row
    return [values[index] for index in sorted(range(len(times)), key=times.__getitem__)]
