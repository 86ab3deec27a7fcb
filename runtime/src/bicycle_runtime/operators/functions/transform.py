"""Operators without state: map, filter, flat map, batches, keys, union."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import compress
from operator import index
from types import FunctionType
from typing import Any, Protocol, runtime_checkable

from bicycle_runtime.base.user_code import is_async, users_error
from bicycle_runtime.expressions.evaluation import evaluate, mask_of
from bicycle_runtime.expressions.map_shapes import Shaped, flat_mapped_shape, mapped_shape
from bicycle_runtime.expressions.mapping import flat_mapped, mapped
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.keys import key_column
from bicycle_runtime.frames.record_shapes import RecordShape
from bicycle_runtime.frames.vectors import Refused
from bicycle_runtime.operators.batch import Batch, ExchangeLineage, PickLineage
from bicycle_runtime.operators.functions.answers import (
    ColumnAnswer,
    Load,
    answer_by_function,
    keep_shape,
)
from bicycle_runtime.operators.functions.contexts import WorkerContext
from bicycle_runtime.operators.functions.operator import (
    EpochTime,
    Operator,
    as_sequences,
    kept,
    spread,
)
from bicycle_runtime.operators.metrics import KeySample, KeySampler
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.operators.user_calls.batches import each, refuse_stop
from bicycle_runtime.operators.user_calls.calls import Outcome
from bicycle_runtime.operators.user_calls.policy import DROPPED, RecordPolicy
from bicycle_runtime.operators.user_calls.user_functions import eager
from bicycle_runtime.records.blobs import BYTE_GROUPS_MAX
from bicycle_runtime.records.errors import KeyEncodingError
from bicycle_runtime.records.keys import GroupCache
from bicycle_sdk.expressions import Expression
from bicycle_sdk.functions import as_callable, full_name


@runtime_checkable
class AnswersAll(Protocol):
    """A function of a record that can be asked about a whole batch at once."""

    def answer_all(self, values: Sequence[Any]) -> list[Any]:
        """Return for each value the result, or the exception that it leads to."""


class _FunctionOperator(Operator):
    """An operator around one callable, or an object with the method ``method``."""

    method = "map"

    def __init__(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext, function: Any
    ) -> None:
        super().__init__(spec, policy, context)
        self.function = function
        self.call = eager(as_callable(function, self.method))
        self.awaits = is_async(self.call)

    def results(self, batch: Batch) -> list[Any]:
        """Return the function's result for each record."""
        if isinstance(self.function, AnswersAll):
            return self._answer_all(self.function, list(batch.values))
        return each(self.call, batch.values, policy=self.policy, awaits=self.awaits)

    def _answer_all(self, function: AnswersAll, values: list[Any]) -> list[Any]:
        """Return a function's answers for a whole batch; the policy handles failures."""
        answers = function.answer_all(values)
        if not any(isinstance(answer, Exception) for answer in answers):
            return answers
        known = dict(zip(map(id, values), answers, strict=True))

        def told(value: Any) -> Any:
            answer = known[id(value)]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return each(told, values, policy=self.policy, awaits=False)


class MapOperator(_FunctionOperator):
    """One output for each input."""

    shaped: Callable[[Expression, RecordShape], Shaped] = staticmethod(mapped_shape)

    def apply(self, batch: Batch) -> Batch:
        failed = self.policy.failed
        return kept(batch, self.results(batch), has_drops=self.policy.failed != failed)

    @classmethod
    def answer(cls, spec: OperatorSpec, load: Load, shape: RecordShape | None) -> ColumnAnswer:
        return answer_by_function(
            spec, load, shape, method=cls.method, shaped=cls.shaped, makes_records=True
        )

    def on_columns(self, batch: Batch, frame: Frame, answer: ColumnAnswer) -> Batch:
        assert answer.value is not None
        return Batch(mapped(answer.value, frame), batch.lineage)


class FilterOperator(_FunctionOperator):
    """Only the inputs for which the function is true."""

    method = "filter"

    def apply(self, batch: Batch) -> Batch:
        flags = [flag is not DROPPED and bool(flag) for flag in self.results(batch)]
        lineage = PickLineage(batch.lineage, lambda: list(compress(range(len(flags)), flags)))
        return Batch(list(compress(batch.values, flags)), lineage)

    @classmethod
    def answer(cls, spec: OperatorSpec, load: Load, shape: RecordShape | None) -> ColumnAnswer:
        return answer_by_function(spec, load, shape, method=cls.method, shaped=keep_shape)

    def on_columns(self, batch: Batch, frame: Frame, answer: ColumnAnswer) -> Batch:
        assert answer.value is not None
        mask = mask_of(evaluate(answer.value, frame))
        kept = batch if mask.count == frame.count else batch.take(mask)
        return Batch(kept.values, kept.lineage)


class FlatMapOperator(MapOperator):
    """Any number of outputs for each input."""

    method = "flat_map"
    shaped = staticmethod(flat_mapped_shape)

    def apply(self, batch: Batch) -> Batch:
        return spread(
            batch,
            Outcome(self.results(batch)),
            function=full_name(self.function),
            policy=self.policy,
        )

    def on_columns(self, batch: Batch, frame: Frame, answer: ColumnAnswer) -> Batch:
        assert answer.value is not None
        made, rows = flat_mapped(answer.value, frame)
        return Batch(made, PickLineage(batch.lineage, rows.tolist, rows))


class BatchOperator(_FunctionOperator):
    """A function over whole batches; a failure concerns the batch as a whole."""

    method = "map_batches"

    def apply(self, batch: Batch) -> Batch:
        # The function may sort the list, or empty it; others may read it, too.
        whole = Batch([list(batch.values)], ExchangeLineage(batch.lineage.span()))
        self.policy.batch = whole
        results = each(self.call, whole.values, policy=self.policy, awaits=self.awaits)
        outputs = as_sequences(results, function=full_name(self.function), policy=self.policy)[0]
        return Batch(list(outputs), whole.lineage)


def returns_its_argument(function: Any) -> bool:
    """Return whether a function is equivalent to ``lambda value: value``.

    Example:
        >>> returns_its_argument(lambda word: word), returns_its_argument(lambda word: word[0])
        (True, False)
    """
    code = getattr(function, "__code__", None)
    if not isinstance(function, FunctionType) or code is None:
        return False
    shape = (code.co_code, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    itself = _itself.__code__
    return shape == (itself.co_code, itself.co_argcount, 0, 0) and not code.co_cellvars


def _itself(value: Any) -> Any:
    return value


class KeyByOperator(_FunctionOperator):
    """The operator that assigns each record the key group of its key."""

    method = "get_key"

    def __init__(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext, function: Any
    ) -> None:
        super().__init__(spec, policy, context, function)
        self._groups = GroupCache(spec.group_count, of_records=True)
        self._is_own_key = returns_its_argument(function)
        self.hands_on_keys = False  # whether the operator behind this one takes them from the batch
        self._column: Callable[[Iterable[int]], bytes | list[int]] = (
            bytes if spec.group_count <= BYTE_GROUPS_MAX else list
        )
        self._sampler = None if self.awaits else KeySampler(self.call)

    def begin_epoch(self, time: EpochTime) -> None:
        super().begin_epoch(time)
        self.sample()

    def sample(self) -> KeySample | None:
        """Return and clear the most frequent keys since the last call, or None."""
        return None if self._sampler is None else self._sampler.take()

    def apply(self, batch: Batch) -> Batch:
        if self._sampler is not None:
            self._sampler.see(batch.values)
        group_of = self._groups.__getitem__
        try:
            # hot path: key and group in two C loops, 100 ns a record.
            if not self.awaits:
                values = batch.values
                keys = values if self._is_own_key else map(self.call, values)
                handed = list(keys) if self.hands_on_keys else None
                column = self._column(map(group_of, keys if handed is None else handed))
                refuse_stop(column, values)
                return Batch(values, batch.lineage, column, keys=handed)
        except BaseException as error:  # noqa: BLE001  # The loop below finds the record that failed.
            users_error(error)
        failed = self.policy.failed
        groups = each(self._group, batch.values, policy=self.policy, awaits=self.awaits)
        values = [
            value for value, group in zip(batch.values, groups, strict=True) if group is not DROPPED
        ]
        output = kept(batch, groups, has_drops=self.policy.failed != failed)
        return Batch(values, output.lineage, self._column(output.values))

    @classmethod
    def answer(cls, spec: OperatorSpec, load: Load, shape: RecordShape | None) -> ColumnAnswer:
        shaped = partial(keep_shape, kinds=(int, str))
        return answer_by_function(spec, load, shape, method=cls.method, shaped=shaped)

    def on_columns(self, batch: Batch, frame: Frame, answer: ColumnAnswer) -> Batch:
        assert answer.value is not None
        found = evaluate(answer.value, frame)
        if self.hands_on_keys and frame is batch.values:
            column = key_column(found)
            if column is None:
                raise Refused
            return Batch(frame, batch.lineage, keys=column)
        keys = found.items
        try:
            groups = self._column(map(self._groups.__getitem__, keys))
        except Exception as error:  # Which record has no valid key is found out one by one.
            raise Refused from error
        if self._sampler is not None:
            self._sampler.see(keys, are_keys=True)
        return Batch(batch.values, batch.lineage, groups, keys=keys if self.hands_on_keys else None)

    def _group(self, value: Any) -> Any:
        key = self.call(value)
        return self._later(key) if self.awaits else self._group_of(key)

    async def _later(self, key: Awaitable[Any]) -> int:
        return self._group_of(await key)

    def _group_of(self, key: Any) -> int:
        try:
            return self._groups[key]
        except KeyEncodingError as error:  # An error of this record, for the policy to settle.
            raise TypeError(f"{error.summary}; {error.remedy}") from None


class SubtaskError(ValueError):
    """An invalid subtask that a partitioner of the job returned."""

    def __init__(self, problem: str, partitioner: Any) -> None:
        super().__init__(problem)
        call = partitioner if hasattr(partitioner, "__code__") else type(partitioner).__call__
        code = getattr(call, "__code__", None)
        # Without a frame of the function, its first line is the location.
        self.user_line = (
            None if code is None else f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"
        )


class PartitionOperator(Operator):
    """The operator that assigns each record the subtask that a user function chooses.

    Args:
        spec: The operator; ``group_count`` is the number of subtasks to choose from.
        policy: Settles records whose function failed.
        context: Of the operator.
        partitioner: Returns the subtask for a key and the number of subtasks.
        select: Returns the key of a record.
    """

    def __init__(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext,
        partitioner: Callable[[Any, int], Any], *, select: Callable[[Any], Any],
    ) -> None:  # fmt: skip
        super().__init__(spec, policy, context)
        self.function = partitioner
        self._select = select
        self._count = spec.group_count

    def apply(self, batch: Batch) -> Batch:
        failed = self.policy.failed
        chosen = each(self._subtask, batch.values, policy=self.policy, awaits=False)
        if self.policy.failed == failed:
            return Batch(batch.values, batch.lineage, chosen)
        values = [
            value for value, one in zip(batch.values, chosen, strict=True) if one is not DROPPED
        ]
        output = kept(batch, chosen, has_drops=True)
        return Batch(values, output.lineage, output.to_list())

    def _subtask(self, value: Any) -> int:
        key = self._select(value)
        found = self.function(key, self._count)
        # A bool is an int in Python, and a number with a fraction would be cut.
        is_whole = hasattr(found, "__index__") and not isinstance(found, bool)
        if not is_whole or not 0 <= (subtask := index(found)) < self._count:
            raise SubtaskError(
                f"{full_name(self.function)} returned {found!r} for key {key!r}, "
                f"expected a whole number 0..{self._count - 1}",
                self.function,
            )
        return subtask


class PassOperator(Operator):
    """The operator of unions and side outputs: emits its input."""

    def apply(self, batch: Batch) -> Batch:
        return Batch(batch.values, batch.lineage, shape=batch.shape)

    @classmethod
    def answer(cls, spec: OperatorSpec, load: Load, shape: RecordShape | None) -> ColumnAnswer:  # noqa: ARG003  # It has no function.
        return ColumnAnswer(None, gives=shape)

    def on_columns(self, batch: Batch, frame: Frame, answer: ColumnAnswer) -> Batch:  # noqa: ARG002  # as of the base
        return Batch(frame, batch.lineage)
