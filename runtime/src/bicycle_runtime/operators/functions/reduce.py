"""Running reduce: one accumulator per key, and an output after every input."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import compress
from typing import Any

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.functions.keyed_contexts import KeyedContext
from bicycle_runtime.operators.functions.operator import Operator, Stateful, expect_keys, kept
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.operators.user_calls.batches import go_through
from bicycle_runtime.operators.user_calls.policy import DROPPED, RecordPolicy
from bicycle_runtime.operators.user_calls.user_functions import resolve
from bicycle_sdk.functions import as_callable
from bicycle_sdk.state.frozen import is_frozen_type
from bicycle_sdk.state.separation import separate


class ReduceOperator(Operator, Stateful):
    """An operator that keeps ``function(accumulator, value)`` per key.

    Args:
        spec: Which operator this is; ``details["emits_key"]`` makes it emit ``(key, accumulator)``.
        policy: Settles records whose function failed; their accumulators stay as they were.
        context: Task info, time, and where tables come from.
        function: The reduce function, a callable or a ``ReduceFunction``.
        initial: Makes the first accumulator of a key; None takes the first value.
        key_selector: Returns the key of a record.
        value_type: Type of the accumulators when known.
        storage: The location of the state.
    """

    context: KeyedContext

    def __init__(  # an operator's four parts, and the further parts of a reduce
        self, spec: OperatorSpec, policy: RecordPolicy, context: KeyedContext, function: Any,
        *, initial: Callable[[Any], Any] | None, key_selector: Callable[[Any], Any],
        value_type: Any, storage: Storage,
    ) -> None:  # fmt: skip
        super().__init__(spec, policy, context)
        self.function = function
        call = as_callable(function, "reduce")
        is_users = initial is None and spec.vertex.details.get("aggregation", "reduce") == "reduce"
        is_frozen = value_type is not None and is_frozen_type(value_type)
        self._call = _on_copies(call) if is_users and not is_frozen else call
        self._reduce: Callable[[Any, Any], Any] = (
            partial(resolve, self._call) if is_async(call) else self._call
        )
        self._initial = initial
        self._key_of = key_selector
        self._emits_key = bool(spec.vertex.details.get("emits_key", False))
        tables = context.tables
        self._store = tables.store(spec.uid, storage, lambda: tables.accumulators(value_type))
        self._table = tables.accumulators(value_type)
        self._state: RangeState | None = None

    def restore(self, state: RangeState) -> None:
        self._table = self._store.at(state)
        self._state = state

    def apply(self, batch: Batch) -> Batch:
        values, groups = batch.values, batch.groups
        assert groups is not None
        failed = self.policy.failed
        keys = list(map(self._key_of, values))
        results: list[Any] = []
        with expect_keys(self.context, lambda: keys):
            go_through(
                partial(self._fold, zip(values, groups, keys, strict=True), results), results,
                self.policy.settle,
                lambda index: partial(self._fold_again, values[index], groups[index], keys[index]),
            )  # fmt: skip
        has_drops = self.policy.failed != failed
        touched = list(zip(groups, keys, strict=True))
        if has_drops:
            touched = list(compress(touched, (result is not DROPPED for result in results)))
        self._table.touched.update(dict.fromkeys(touched))
        if self._emits_key:
            results = [
                result if result is DROPPED else (key, result)
                for key, result in zip(keys, results, strict=True)
            ]
        return kept(batch, results, has_drops=has_drops)

    def commit(self, epoch: int, attempt: str, *, is_interval_over: bool) -> RangeState:
        assert self._state is not None
        return self._store.commit(
            self._state, epoch=epoch, attempt=attempt, is_interval_over=is_interval_over
        )

    def key_count(self) -> int:
        return self._store.key_count()

    def release(self) -> None:
        self._store.close()

    def _fold(self, records: Any, results: list[Any]) -> None:
        reduce, initial, groups = self._reduce, self._initial, self._table.groups
        # hot path: 160 ns a record besides the user's function.
        for value, group, key in records:
            table = groups.get(group)
            if table is None:
                table = groups[group] = {}
            if key in table:
                accumulator = reduce(table[key], value)
            else:
                accumulator = value if initial is None else initial(value)
            table[key] = accumulator
            results.append(accumulator)

    def _fold_again(self, value: Any, group: int, key: Any) -> Any:
        """Fold one record whose first attempt failed; the result may have to be awaited."""
        table = self._table.groups.setdefault(group, {})
        if key in table:
            accumulator = self._call(table[key], value)
            if inspect.isawaitable(accumulator):
                return _store_result(accumulator, table, key)
        else:
            accumulator = value if self._initial is None else self._initial(value)
        table[key] = accumulator
        return accumulator


def _on_copies(call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Wrap a reduce function to change a copy, since the accumulator was emitted."""

    def reduce(accumulator: Any, value: Any) -> Any:
        return call(separate(accumulator), value)

    return reduce


async def _store_result(accumulator: Awaitable[Any], table: dict[Any, Any], key: Any) -> Any:
    table[key] = result = await accumulator
    return result
