"""Operators around function objects: async, process and rich functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice, repeat
from typing import Any

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.operators.batch import Batch, ExchangeLineage, join_batches, split_output
from bicycle_runtime.operators.functions.contexts import WorkerContext
from bicycle_runtime.operators.functions.declarations import declared_states, texts_in
from bicycle_runtime.operators.functions.keyed_contexts import KeyedContext
from bicycle_runtime.operators.functions.operator import (
    Advance,
    EpochTime,
    Operator,
    SideBatch,
    Stateful,
    Timed,
    expect_keys,
    side_batches,
    spread,
)
from bicycle_runtime.operators.functions.operator_lists import OperatorLists
from bicycle_runtime.operators.functions.time_order import TimeOrder
from bicycle_runtime.operators.functions.timers import FiresEach, TimerRound
from bicycle_runtime.operators.heartbeats import LAST_POSITION
from bicycle_runtime.operators.spec import OperatorSpec, StateScope
from bicycle_runtime.operators.user_calls.attempts import prepare_attempts, undoing
from bicycle_runtime.operators.user_calls.batches import call_all, refuse_stop
from bicycle_runtime.operators.user_calls.calls import Calls, CallSettings, Methods, Reserve, Settle
from bicycle_runtime.operators.user_calls.direct import direct
from bicycle_runtime.operators.user_calls.policy import RecordPolicy, user_hook
from bicycle_runtime.operators.user_calls.user_functions import eager, resolve
from bicycle_runtime.records.sizes import size_of
from bicycle_runtime.state.errors import NAMED_STATE_UNMERGEABLE, STATE_UNMERGEABLE
from bicycle_runtime.state.memory.attributes import describe_attributes
from bicycle_runtime.state.memory.composite import CompositeTable, NamedTable
from bicycle_runtime.state.memory.tables import FunctionTable
from bicycle_runtime.state.sealed.refs import with_lists
from bicycle_runtime.state.sealed.sealed_files import SealedFiles
from bicycle_runtime.state.stores.contents import parts_of
from bicycle_runtime.state.stores.store import StateStore
from bicycle_runtime.state.undo import UndoLog
from bicycle_sdk.contexts import WATERMARK_MAX
from bicycle_sdk.functions import full_name
from bicycle_sdk.graph import KEY_GROUP_COUNT_MAX

_WAVES = 16  # in a flight: at its end at most one wave of them has empty places
_WAITING_BYTES = 64 << 20
_SIZE_SAMPLES = 4


def call_settings(config: Any) -> CallSettings:
    """Read the settings of ``process_ordered`` and related calls from a vertex."""
    return CallSettings(
        is_ordered=config.get("ordered", True),
        timeout_ms=config.get("timeout_ms"),
        capacity=config.get("capacity", 1),
    )


class ProcessOperator(Operator):
    """A function without state. ``method`` is ``process`` or ``process_element``."""

    def __init__(
        self,
        spec: OperatorSpec,
        policy: RecordPolicy,
        context: WorkerContext,
        function: Any,
        *,
        method: str = "process",
    ) -> None:
        super().__init__(spec, policy, context)
        self.function = function
        self.method = method
        self.settings = call_settings(spec.vertex.config)
        if policy.undoes:
            context.undo_attempts(prepare_attempts(function, self.user_calls(function)))
        resolve(function.open, context)
        self.awaits = is_async(eager(getattr(function, method)))
        self.is_direct = direct(getattr(function, method)) is not None
        self.reserve: Reserve | None = None  # Of a rate limit directly before.
        self._sides: list[SideBatch] = []
        self._waiting = _Waiting(self)

    @property
    def gathers(self) -> bool:
        return self.awaits and self.settings.capacity > 1

    @property
    def wave(self) -> int:
        """The most records that are in flight at one time."""
        return self.settings.capacity

    def begin_epoch(self, time: EpochTime) -> None:
        super().begin_epoch(time)
        self._waiting.take()  # of an attempt that failed

    def gather(self, batch: Batch) -> Iterator[Batch]:
        batch = self.shown(batch)
        if batch.values:
            self._waiting.add(batch)
        return self.drain() if self._waiting.is_full else iter(())

    def drain(self) -> Iterator[Batch]:
        parts = self._waiting.take()
        if not parts:
            return
        joined = join_batches(parts)
        LAST_POSITION.read(joined.lineage.span())
        LAST_POSITION.enter(self.uid)
        for output in split_output(self.run(joined), joined):
            LAST_POSITION.read(output.lineage.span())
            yield output

    def apply(self, batch: Batch) -> Batch:
        groups = self.call_groups(batch)
        if self.context.attempts is not None:
            self.context.attempts.begin_batch()
        calls = self.calls_of(batch, groups)
        outcome = call_all(
            calls, self.settings, self.settle, awaits=self.awaits, reserve=self.reserve
        )
        output = spread(batch, outcome, function=full_name(self.function), policy=self.policy)
        self.take_sent(batch)
        return output

    def calls_of(self, batch: Batch, groups: Sequence[int] | None) -> Calls:
        """Return the calls for a batch.

        Args:
            batch: The batch.
            groups: Key groups by which calls are distinguished; None without key groups.
        """
        return Calls(self.methods(), batch.values, groups, self.context, self.is_direct)

    def take_sent(self, batch: Batch) -> None:
        """Build batches of the side outputs that calls over ``batch`` sent."""
        sent, self.context.sides[:] = list(self.context.sides), []
        self._sides = side_batches(batch, sent)

    def methods(self) -> Callable[..., Any] | Methods:
        """Return the function to call for each record, by key group if groups differ."""
        return self.prepare(getattr(self.function, self.method))

    def prepare(
        self, method: Callable[..., Any], note: Callable[[UndoLog], None] | None = None
    ) -> Callable[..., Any]:
        """Return the callable of a method of the function.

        Args:
            method: The method.
            note: Notes its unseen changes, if attempts can be undone.
        """
        call = direct(method) or eager(method)
        attempts = self.context.attempts
        return call if attempts is None else undoing(call, attempts, note)

    def user_calls(self, function: Any) -> list[Callable[..., Any]]:
        """Return all methods of the function that handle records or timers."""
        return [getattr(function, self.method)]

    def call_groups(self, batch: Batch) -> Sequence[int] | None:  # noqa: ARG002  # for subclasses
        """Return the key groups that distinguish calls, or None."""
        return None

    async def settle(
        self, error: BaseException, index: int, call: Callable[[], Any]
    ) -> Sequence[Any]:
        """Settle a failed call according to the policy."""
        return await self.policy.settle(error, index, call)

    def take_sides(self) -> list[SideBatch]:
        sides, self._sides = self._sides, []
        return sides


class _Waiting:
    """Batches whose records wait for calls, until there are enough for a long flight.

    Places of a flight stay empty only while its last calls end. So each flight takes many waves,
    but not more than a bounded number of bytes, unless a single wave is larger.
    """

    def __init__(self, operator: ProcessOperator) -> None:
        self._operator = operator
        self._batches: list[Batch] = []
        self._record_count = self._byte_count = 0

    def take(self) -> list[Batch]:
        """Return the batches that wait, and forget them."""
        batches, self._batches = self._batches, []
        self._record_count = self._byte_count = 0
        return batches

    def add(self, batch: Batch) -> None:
        """Keep a batch until its calls are made."""
        values = batch.to_list()
        samples = values[:: max(len(values) // _SIZE_SAMPLES, 1)]
        self._batches.append(replace(batch, values=values))
        self._record_count += len(values)
        self._byte_count += sum(map(size_of, samples)) * len(values) // len(samples)

    @property
    def is_full(self) -> bool:
        """True when it is time for their calls."""
        count, wave = self._record_count, self._operator.wave
        return count >= _WAVES * wave or (count >= wave and self._byte_count >= _WAITING_BYTES)


def _call_each(
    method: Callable[..., Any], values: Sequence[Any], results: list[Any], context: Any
) -> None:
    """Call a method common to all key groups for the values without results yet."""
    # hot path: a call made by a loop in C takes 80 ns less.
    results.extend(map(method, islice(values, len(results), None), repeat(context)))
    refuse_stop(results, values)


class _GroupMethods(dict[int, Callable[..., Any]]):
    """The bound method of each key group touched in this epoch, made when first used."""

    def __init__(self, make: Callable[[int], Callable[..., Any]]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, group: int) -> Callable[..., Any]:
        method = self[group] = self._make(group)
        return method


class StatefulOperator(ProcessOperator, Stateful, Timed):
    """The operator of a rich or process function with state and timers."""

    context: KeyedContext
    fires_each: FiresEach | None = None
    fires_one_by_one = False

    def __init__(  # an operator's four parts, the method, and the location of its state
        self, spec: OperatorSpec, policy: RecordPolicy, context: KeyedContext, function: Any,
        *, method: str, storage: Storage,
    ) -> None:  # fmt: skip
        self._is_rich = method == "process"
        context.registry.texts = frozenset(texts_in(function))
        self._attributes = describe_attributes(function, context.registry) if self._is_rich else []
        on_timer = getattr(function, "on_timer", None)
        context.has_timers = on_timer is not None
        if spec.scope is StateScope.SUBTASK:
            context.lists = OperatorLists(context.task_info, context.registry)
        super().__init__(spec, policy, context, function, method=method)
        if context.lists is not None:
            context.lists.end_open()
        self._files = SealedFiles(spec.uid, storage)
        self.timer_lead_ms: int = getattr(function, "timer_lead_ms", 0)
        if spec.scope is StateScope.KEY_GROUPS and context.broadcast is None:
            # Expired entries are removed also in epochs, and in a replay, that do not read them.
            for state in declared_states(function):
                if state.time_to_live is not None:
                    context.keyed.entries_of(state)
        self._on_timer = None if on_timer is None else eager(on_timer)
        if self._on_timer is not None and context.attempts is not None:
            self._on_timer = undoing(self._on_timer, context.attempts)
        self._store = context.tables.store(spec.uid, storage, self._new_table)
        self._table = self._new_table().main
        self._shared_method = self.prepare(getattr(self.function, method))
        self._methods = _GroupMethods(self._method_of)
        self.order: TimeOrder | None = None
        self._state: RangeState | None = None

    def restore(self, state: RangeState) -> None:
        self._state = with_lists(state, ())
        with user_hook(self.spec.uid, "restore_state() or merge_state()"):
            self._table = self._store.at(self._state).main
            self._table.restore_snapshots()
            if state.old_parallelism is not None:
                self._merge(state.old_parallelism)
        if state.lists and self.context.lists is not None:
            everyone = range(KEY_GROUP_COUNT_MAX)
            self.context.lists.divide(
                chain.from_iterable(parts_of(self._files, state.lists, everyone))
            )
        self.context.table = self._table
        self._methods.clear()

    @property
    def gathers(self) -> bool:
        return super().gathers and self.order is None

    def apply(self, batch: Batch) -> Batch:
        self.context.begin_batch()
        if self.order is not None:
            self.order.gather(batch)
            return Batch([], batch.lineage)
        if self.spec.scope is not StateScope.KEY_GROUPS:
            return super().apply(batch)
        with expect_keys(self.context, self.context.batch_keys):
            return super().apply(batch)

    def methods(self) -> Methods:
        return self._methods

    def calls_of(self, batch: Batch, groups: Sequence[int] | None) -> Calls:
        calls = super().calls_of(batch, groups)
        if self._is_rich:
            return calls
        return replace(calls, each=partial(_call_each, self._method_of(0), batch.values))

    def user_calls(self, function: Any) -> list[Callable[..., Any]]:
        on_timer = getattr(function, "on_timer", None)
        return super().user_calls(function) + ([] if on_timer is None else [on_timer])

    def call_groups(self, batch: Batch) -> Sequence[int]:
        if self.spec.scope is StateScope.KEY_GROUPS:
            assert batch.groups is not None
            return batch.groups
        return [self.context.task_info.subtask_index] * len(batch.values)

    def methods_in_order(
        self,
        groups: Sequence[int],
        ordinals: Sequence[int],  # noqa: ARG002  # for subclasses
    ) -> tuple[list[Callable[..., Any]], bool, bool]:
        """Return the method of each record, and whether methods are async and direct.

        Args:
            groups: Key group of each record.
            ordinals: On which input each came.
        """
        return list(map(self._methods.__getitem__, groups)), self.awaits, self.is_direct

    def settle_in_order(self, ordinals: Sequence[int]) -> Settle:  # noqa: ARG002  # for subclasses
        """Return a function that settles failed calls, by the input of each record."""
        return self.settle

    def order_by_time(self, input_types: Sequence[Any]) -> None:
        """Process records and timers in event-time order from the start.

        Args:
            input_types: Types of the records of each input, None when unknown.
        """
        self.order = TimeOrder(self, input_types)

    def begin_epoch(self, time: EpochTime) -> None:
        super().begin_epoch(time)
        if self.order is not None:
            self.order.begin_epoch(time.epoch)

    def begin_time(self, advance: Advance) -> None:
        self.context.watermark = advance.watermark

    def advance(self, advance: Advance) -> Iterator[Batch]:
        self.context.begin_batch()
        self.context.watermark = advance.watermark
        if self.context.attempts is not None:
            self.context.attempts.begin_batch()
        if self.order is not None:
            yield from self.order.advance(advance)
            return
        due_ms = min(advance.watermark, WATERMARK_MAX - self.timer_lead_ms) + self.timer_lead_ms
        output = self.fire(advance, due_ms=due_ms)
        self.take_sent(output)
        yield output

    def fire(self, advance: Advance, *, due_ms: int, follows_time: bool = False) -> Batch:
        """Call ``on_timer`` for each due timer, and return the outputs.

        Args:
            advance: How far time has come.
            due_ms: Timers of event time up to here are due.
            follows_time: The watermark that ``on_timer`` sees is the time of the timer.
        """
        timers, fires_each = self.context.timers, self.fires_each
        is_complete = fires_each is None or fires_each.is_complete
        if self._on_timer is None or (is_complete and not timers.is_due(due_ms, advance.now_ms)):
            return Batch([], ExchangeLineage(None))
        return TimerRound(
            self.context, self._on_timer, function=full_name(self.function), policy=self.policy,
            advance=advance, due_ms=due_ms, follows_time=follows_time,
        ).fire(fires_each, one_by_one=self.fires_one_by_one)  # fmt: skip

    def next_event_ms(self) -> int | None:
        time_ms = self.context.timers.event.next_time_ms()
        waits_ms = None if self.order is None else self.order.next_event_ms()
        due = [time_ms - self.timer_lead_ms] if time_ms is not None else []
        return min([*due, *([waits_ms] if waits_ms is not None else [])], default=None)

    def next_timer_ms(self) -> int | None:
        times = (self.context.timers.processing.next_time_ms(), self.context.keyed.next_due_ms())
        return min((time for time in times if time is not None), default=None)

    def commit(self, epoch: int, attempt: str, *, is_interval_over: bool) -> RangeState:
        assert self._state is not None
        self.context.batch = None
        with user_hook(self.spec.uid, "snapshot_state()"):
            state = self._store.commit(
                self._state, epoch=epoch, attempt=attempt, is_interval_over=is_interval_over
            )
        self._table.expect(self.records_in)
        return state

    def key_count(self) -> int:
        return self._store.key_count()

    def release(self) -> None:
        self._store.close()

    def _method_of(self, group: int) -> Callable[..., Any]:
        if not self._is_rich:
            # hot path: one object for all groups, which the interpreter calls 100 ns faster.
            return self._shared_method
        instance = self._table.group(group).instance
        note = self._table.attribute_memo(group) if self.policy.undoes else None
        return self.prepare(getattr(instance, self.method), note)

    def _new_table(self) -> CompositeTable[FunctionTable]:
        """Return an empty table; the handles that the function holds stay good."""
        keyed, timers = self.context.keyed, self.context.timers
        others: list[NamedTable] = [keyed, timers]
        keyed.reset()
        timers.reset()
        if self.context.lists is not None:
            self.context.lists.reset()
            others.append(self.context.lists)
        attributes = self.context.tables.attributes(
            self.function, self._attributes, self._call_hook
        )
        return CompositeTable(attributes, *others)

    def _call_hook(self, hook: Callable[..., Any], *arguments: Any) -> Any:
        """Call a state hook; its failure is not a failure of the current record."""
        with user_hook(self.spec.uid, f"{hook.__name__}()"):
            return resolve(hook, *arguments)

    def _merge(self, old_parallelism: int) -> None:
        """Merge the states of old subtasks with the function's ``merge_state``."""
        subtask = self.context.task_info.subtask_index
        merged = self._new_table()
        if self._table.groups:
            state = merged.main.group(subtask)
            self._merge_named(state.named.entries, old_parallelism)
            if self._is_rich:
                self._refuse_without_merge(old_parallelism)
                olds = [self._table.exported(group) for group in sorted(self._table.groups)]
                merge, restore = state.instance.merge_state, state.instance.restore_state
                resolve(restore, resolve(merge, olds))
        assert isinstance(self._store, StateStore)  # State of whole subtasks is in memory.
        self._store.rewrite(merged)
        self._table = merged.main
        self._state = RangeState(first_group=subtask, end_group=subtask + 1)

    def _merge_named(self, merged: dict[Any, Any], old_parallelism: int) -> None:
        for _, state in sorted(self._table.groups.items()):
            for name, value in state.named.entries.items():
                if name in merged:
                    raise NAMED_STATE_UNMERGEABLE(
                        operator=self.spec.uid, old=old_parallelism,
                        new=self.context.task_info.parallelism, name=name,
                    )  # fmt: skip
                merged[name] = value

    def _refuse_without_merge(self, old_parallelism: int) -> None:
        defines = any(
            "merge_state" in cls.__dict__
            for cls in type(self.function).__mro__
            if cls.__module__ != "bicycle_sdk.functions"
        )
        if not defines:
            raise STATE_UNMERGEABLE(
                operator=self.spec.uid, old=old_parallelism,
                new=self.context.task_info.parallelism, function=full_name(self.function),
            )  # fmt: skip
