"""Calls to other systems and to models: for single records, or many in one call.

Both run with several calls in flight, a time limit that covers all attempts, a fallback and
retries. A call for many records is settled as a whole first; records that fail again are divided
until the records are known that fail by themselves, and only these go to ``on_error``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bicycle_runtime.base.user_code import users_error
from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.errors import BATCH_RESULT_WRONG
from bicycle_runtime.operators.functions.contexts import WorkerContext
from bicycle_runtime.operators.functions.operator import Operator, spread
from bicycle_runtime.operators.functions.process import ProcessOperator, call_settings
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.operators.user_calls.batches import call_all
from bicycle_runtime.operators.user_calls.calls import Calls, CallTimeout, Outcome
from bicycle_runtime.operators.user_calls.policy import DROPPED, RecordPolicy
from bicycle_runtime.operators.user_calls.user_functions import eager, resolve
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.functions import AsyncIOBatchFunction, AsyncIOFunction, full_name
from bicycle_sdk.graph import ErrorAction

_NO_FALLBACK = (AsyncIOFunction.timeout, AsyncIOBatchFunction.timeout)


def async_io_operator(
    spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext, function: Any
) -> Operator:
    """Return the operator of an ``AsyncIO`` vertex."""
    kind = AsyncIOBatchOperator if "batch_size" in spec.vertex.details else AsyncIOOperator
    return kind(spec, policy, context, function)


class AsyncIOOperator(ProcessOperator):
    """Calls to a slow service: many in flight, a time limit with a fallback, retries."""

    hook = "async_invoke"

    def __init__(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext, function: Any
    ) -> None:
        super().__init__(spec, policy, context, function, method=self.hook)
        self.is_direct = False  # The call is a function of ours around the user's.
        details, on_error = spec.vertex.details, spec.vertex.on_error
        self.settings = replace(call_settings(details), limits_all_attempts=True)
        self.retries = details.get("retries", 0)
        self.backoff_ms = details.get("backoff_ms", 100)
        self._has_fallback = type(function).timeout not in _NO_FALLBACK
        if not self.retries:  # The retries of ``on_error`` count if the call has none.
            self.retries, self.backoff_ms = on_error.retries, on_error.backoff_ms

    def methods(self) -> Callable[..., Any]:
        invoke = eager(self.function.async_invoke)
        return lambda value, _context: invoke(value)

    async def settle(
        self, error: BaseException, index: int, call: Callable[[], Any]
    ) -> Sequence[Any]:
        if isinstance(error, CallTimeout):
            return await self.instead_of(index)
        return await self.policy.settle_with(
            error, index, call, retries=self.retries, backoff_ms=self.backoff_ms
        )

    async def instead_of(self, index: int) -> Sequence[Any]:
        """Return the function's outputs instead of a record of the batch that timed out."""
        assert self.policy.batch is not None
        try:
            instead = self.function.timeout(self.policy.batch.values[index])
            outputs: Sequence[Any] = await instead if inspect.isawaitable(instead) else instead
            self.timed_out += not self._has_fallback
            return outputs
        except BaseException as error:  # noqa: BLE001  # the boundary to user code
            self.policy.give_up(users_error(error), index)
            return DROPPED


class AsyncIOBatchOperator(AsyncIOOperator):
    """The operator of calls that take many records, such as calls to a model."""

    hook = "async_invoke_batch"

    def __init__(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext, function: Any
    ) -> None:
        super().__init__(spec, policy, context, function)
        self._size: int = spec.vertex.details["batch_size"]

    @property
    def wave(self) -> int:
        return self.settings.capacity * self._size

    def apply(self, batch: Batch) -> Batch:
        starts = range(0, len(batch.values), self._size)
        values = batch.to_list()
        parts = [values[start : start + self._size] for start in starts]
        calls = Calls(self.methods(), parts, None, _NoRecord())
        settle = partial(self._settle_part, parts)
        outcome = call_all(
            calls, self.settings, settle, awaits=self.awaits, reserve=self.reserve, are_parts=True
        )
        by_record = _by_record(outcome, parts, self._size)
        return spread(batch, by_record, function=full_name(self.function), policy=self.policy)

    def methods(self) -> Callable[..., Any]:
        invoke = eager(self.function.async_invoke_batch)

        async def call(values: list[Any], _context: Any) -> list[Any]:
            return self._check(values, await invoke(values))

        def call_plain(values: list[Any], _context: Any) -> list[Any]:
            return self._check(values, resolve(invoke, values))

        return call if self.awaits else call_plain

    def _check(self, values: list[Any], found: Any) -> list[Any]:
        is_plural = hasattr(found, "__iter__") and not isinstance(found, str | bytes | dict)
        results = list(found) if is_plural else None
        if results is None or len(results) != len(values):
            words = type(found).__qualname__ if results is None else f"{len(results)} results"
            raise BATCH_RESULT_WRONG(
                operator=self.spec.uid, function=full_name(self.function), found=words,
                expected=len(values),
            )  # fmt: skip
        return results

    async def _settle_part(
        self, parts: list[list[Any]], error: BaseException, index: int, call: Callable[[], Any]
    ) -> Sequence[Any]:
        """Settle a failed call: fallback, retries, then halves, finally ``on_error``.

        Nothing is counted before the end, since a time limit may still take the whole call.
        """
        values, first = parts[index], index * self._size
        if isinstance(error, CallTimeout):
            return [await self.instead_of(first + offset) for offset in range(len(values))]
        try:
            return await self.policy.repeat(
                error, call, retries=self._retries_after(error), backoff_ms=self.backoff_ms
            )
        except BaseException as last:  # noqa: BLE001  # the boundary to user code
            results = await self._call_halves(values, first, users_error(last))
        for offset, result in enumerate(results):
            if isinstance(result, _Failed):
                self.policy.give_up(result.error, first + offset)
                results[offset] = DROPPED
        return results

    def _retries_after(self, error: BaseException) -> int:
        return 0 if isinstance(error, BicycleError) else self.retries

    async def _call_halves(self, values: list[Any], first: int, error: BaseException) -> list[Any]:
        """Return the results of a failed call's records; ``_Failed`` for lone failures.

        Args:
            values: The records of the call.
            first: Position of the first in the batch.
            error: The exception of the call.
        """
        if isinstance(error, BicycleError):
            raise error
        if len(values) == 1:
            if self.spec.vertex.on_error.action is ErrorAction.FAIL:
                self.policy.give_up(error, first)
            return [_Failed(error)]
        middle = len(values) // 2
        method = self.methods()
        results: list[Any] = []
        for start, part in ((0, values[:middle]), (middle, values[middle:])):
            self.policy.retried += 1
            try:
                output = method(part, None)
                results += await output if inspect.isawaitable(output) else output
            except BaseException as again:  # noqa: BLE001  # the boundary to user code
                failed = users_error(again)
                results += await self._call_halves(part, first + start, failed)
        return results


@dataclass(frozen=True, slots=True)
class _Failed:
    """The result of a record that failed by itself."""

    error: BaseException


class _NoRecord:
    """The context of calls for many records, without a current record."""

    def follow(self, results: Sequence[Any]) -> None:
        """Take no note."""

    def hold(self, index: int) -> None:
        """Take no note."""

    def clone(self) -> _NoRecord:
        """Return itself: it holds nothing."""
        return self


def _by_record(outcome: Outcome, parts: list[list[Any]], size: int) -> Outcome:
    """Return outputs by record for outputs by call."""
    results = [outputs for of_call in outcome.results for outputs in of_call]
    if outcome.order is None:
        return Outcome(results)
    order = [
        index
        for call in outcome.order
        for index in range(call * size, call * size + len(parts[call]))
    ]
    return Outcome(results, order)
