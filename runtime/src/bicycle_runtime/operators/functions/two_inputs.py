"""The operator of functions with several inputs, with common state and timers.

A batch comes from one input at a time, its ordinal; it decides which method is called and by which
selector the records are keyed. Joins are such functions, too: they set the time of each of their
results, and count late records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.operators.batch import Batch, StampedLineage
from bicycle_runtime.operators.errors import NO_EVENT_TIME
from bicycle_runtime.operators.functions.keyed_contexts import KeyedContext
from bicycle_runtime.operators.functions.operator import Advance, EpochTime
from bicycle_runtime.operators.functions.process import StatefulOperator
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.operators.user_calls.calls import Calls, Settle
from bicycle_runtime.operators.user_calls.direct import direct
from bicycle_runtime.operators.user_calls.policy import RecordPolicy
from bicycle_runtime.operators.user_calls.user_functions import eager
from bicycle_runtime.state.memory.composite import CompositeTable
from bicycle_runtime.state.memory.keyed import BroadcastTable
from bicycle_runtime.state.memory.tables import FunctionTable
from bicycle_sdk.connected import BuiltInFunction, InputRecords, input_methods


class CoProcessOperator(StatefulOperator):
    """A function with several inputs.

    Args:
        spec: Which operator this is.
        policy: Settles failed records and timers.
        context: The context of the function.
        function: The function.
        selectors: The key selector of each input, by ordinal.
        storage: The location of state.
    """

    def __init__(
        self, spec: OperatorSpec, policy: RecordPolicy, context: KeyedContext, function: Any,
        *, selectors: Sequence[Callable[[Any], Any] | None], storage: Storage,
    ) -> None:  # fmt: skip
        if spec.vertex.details.get("has_broadcast"):
            context.broadcast = BroadcastTable(context.state_time, registry=context.registry)
        methods = input_methods(function, len(selectors))
        self._input_count = len(selectors)
        super().__init__(spec, policy, context, function, method=methods[0][0], storage=storage)
        self._selectors = selectors
        self._calls = [self.prepare(call) for _, call in methods]
        self._is_direct = [direct(eager(call)) is not None for _, call in methods]
        self._built_in = function if isinstance(function, BuiltInFunction) else None
        always = self._built_in is not None and self._built_in.awaits
        self._awaiting = [always or is_async(eager(call)) for _, call in methods]
        self._each: Callable[..., None] | None = None
        if not always and context.attempts is None:
            self._each = getattr(self._built_in, "process_each", None)
        fires_each: Any = self._built_in
        self.fires_each = fires_each if hasattr(fires_each, "fire_each") else None
        self.fires_one_by_one = always or context.attempts is not None
        self._ordinal = 0
        self._turn_to(0)

    def begin_epoch(self, time: EpochTime) -> None:
        super().begin_epoch(time)
        if self._built_in is not None:
            self._built_in.begin_epoch()

    def apply(self, batch: Batch) -> Batch:
        self._turn_to(batch.ordinal)
        built_in = self._built_in
        if built_in is None:
            return super().apply(batch)
        if built_in.needs_times and batch.lineage.times() is None:
            raise NO_EVENT_TIME(operator=self.spec.uid)
        output = super().apply(batch)
        self.late = built_in.late
        return _stamp(output) if built_in.stamps else output

    def advance(self, advance: Advance) -> Iterator[Batch]:
        self.context.can_broadcast = False
        is_stamped = self._built_in is not None and self._built_in.stamps
        for output in super().advance(advance):
            yield _stamp(output) if is_stamped else output

    def calls_of(self, batch: Batch, groups: Sequence[int] | None) -> Calls:
        calls = super().calls_of(batch, groups)
        if self._each is None:
            return calls
        keys, times = self.context.batch_keys(), batch.lineage.times()
        records = InputRecords(batch.ordinal, batch.values, keys, times)
        return replace(calls, each=partial(self._each, records))

    def call_groups(self, batch: Batch) -> Sequence[int]:
        # Only records of keyed inputs have key groups; other records are called the same way.
        if batch.groups is None:
            return [self.context.task_info.subtask_index] * len(batch.values)
        return batch.groups

    def user_calls(self, function: Any) -> list[Callable[..., Any]]:
        methods = input_methods(function, self._input_count)
        return [*(call for _, call in methods), *super().user_calls(function)]

    def methods_in_order(
        self,
        groups: Sequence[int],  # noqa: ARG002  # no state per group
        ordinals: Sequence[int],
    ) -> tuple[list[Callable[..., Any]], bool, bool]:
        awaits = any(self._awaiting)
        is_direct = awaits and all(
            is_direct or not waits
            for is_direct, waits in zip(self._is_direct, self._awaiting, strict=True)
        )
        methods = self._calls
        if awaits and not is_direct:
            methods = [
                call if waits else _later(call)
                for call, waits in zip(self._calls, self._awaiting, strict=True)
            ]
        return list(map(methods.__getitem__, ordinals)), awaits, is_direct

    def settle_in_order(self, ordinals: Sequence[int]) -> Settle:
        async def settle(
            error: BaseException, index: int, call: Callable[[], Any]
        ) -> Sequence[Any]:
            self.policy.key_of = self._selectors[ordinals[index]]
            return await self.settle(error, index, call)

        return settle

    def _method_of(self, group: int) -> Callable[..., Any]:  # noqa: ARG002  # no state per group
        return self._calls[self._ordinal]

    def _new_table(self) -> CompositeTable[FunctionTable]:
        table, broadcast = super()._new_table(), self.context.broadcast
        if broadcast is None:
            return table
        broadcast.reset()
        return CompositeTable(table.main, self.context.keyed, self.context.timers, broadcast)

    def _turn_to(self, ordinal: int) -> None:
        selector = self._selectors[ordinal]
        self.context.select_keys_by(selector)
        self.policy.key_of = selector
        self.awaits = self._awaiting[ordinal]
        self.is_direct = self._is_direct[ordinal]
        self.context.can_broadcast = ordinal > 0
        if ordinal != self._ordinal:
            self._ordinal = ordinal
            self._methods.clear()


def _later(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is awaited, for one that is not."""

    async def called(value: Any, ctx: Any) -> Any:
        return call(value, ctx)

    return called


def _stamp(batch: Batch) -> Batch:
    """Return the records of ``(event time, record)`` pairs, with these times."""
    times = [time for time, _ in batch.values]
    return Batch([value for _, value in batch.values], StampedLineage(batch.lineage, times))
