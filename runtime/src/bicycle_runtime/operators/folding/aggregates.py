"""The aggregates of a window as the runtime runs them: accumulators as tuples, one item each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import itemgetter, truediv
from types import GenericAlias
from typing import Any

from bicycle_runtime.operators.calling.user_functions import is_async, resolve
from bicycle_runtime.operators.folding.sketches import SketchDistinct
from bicycle_sdk.record_types import accumulator_type
from bicycle_sdk.windows import (
    ApproximateDistinct,
    Average,
    Count,
    Reduction,
    SessionWindows,
    Sum,
    WindowPlan,
)
from bicycle_sdk.windows.aggregates import SelectedAggregate

__all__ = ["Folding"]

Accumulators = tuple[Any, ...]


class Folding:
    """Makes, joins and reads the accumulators of a plan.

    Args:
        plan: The window.
        record_type: Declared type of its input, None when unknown.
    """

    def __init__(self, plan: WindowPlan, record_type: Any = None) -> None:
        self.functions: list[Any] = []
        # By aggregate: which functions it is made of, one, or sum and count of an average.
        self._places: list[tuple[int, ...]] = []
        self._readers = [self._reader(_runnable(function)) for function in plan.aggregates]
        if isinstance(plan.assigner, SessionWindows):
            self.count_position = self._position(Count())  # for ``min_records``
        self.adds = [function.add for function in self.functions]
        self._added = list(map(_waited, self.adds))
        self._creates = [function.create_accumulator for function in self.functions]
        self._merges = [_waited(function.merge) for function in self.functions]
        self._is_tuple = plan.is_tuple
        types = [_accumulator_type(function, record_type) for function in self.functions]
        self.state_type = None if None in types else GenericAlias(tuple, tuple(types))

    def _position(self, function: Any) -> int:
        """Return where the accumulator of a function stands; equal functions share one."""
        selector = getattr(function, "selector", None)
        for position, known in enumerate(self.functions):
            is_same = type(known) is type(function) and type(known) in (Count, Sum)
            if is_same and getattr(known, "selector", None) is selector:
                return position
        self.functions.append(function)
        return len(self.functions) - 1

    def _reader(self, function: Any) -> Callable[[Accumulators], Any]:
        """Return what reads the result of a function from the accumulators of a window."""
        if type(function) is Average:
            # An average is a sum over a count, which others may ask for, too.
            total: Sum[Any, Any] = Sum(function.selector)
            place, count = self._position(total), self._position(Count())
            self._places.append((place, count))
            return lambda found: total.get_result(found[place]) / found[count]
        position = self._position(function)
        self._places.append((position,))
        if type(function) is Count:
            return itemgetter(position)
        get_result = _waited(function.get_result)
        return lambda found: get_result(found[position])

    def fresh(self) -> Accumulators:
        """Return the accumulators of no records."""
        return tuple([create() for create in self._creates])

    def merged(self, a: Accumulators, b: Accumulators) -> Accumulators:
        """Return the accumulators of the records of both; ``a`` may be changed, ``b`` is not."""
        return tuple([merge(x, y) for merge, x, y in zip(self._merges, a, b, strict=True)])

    def value(self, accumulators: Accumulators) -> Any:
        """Return what a window gives."""
        if not self._is_tuple:
            return self._readers[0](accumulators)
        return tuple([read(accumulators) for read in self._readers])

    def values(self, several: Collection[Accumulators]) -> list[Any]:
        """Return what several windows give."""
        columns = [list(map(read, several)) for read in self._readers]
        return list(zip(*columns, strict=True)) if self._is_tuple else columns[0]

    def values_of_ints(self, columns: Sequence[list[int]]) -> Iterable[Any]:
        """Yield what several windows give, where all functions have ``field_columns``.

        Args:
            columns: By function, with an int for each window.
        """
        found = [
            map(truediv, *(columns[place] for place in places))
            if len(places) > 1
            else columns[places[0]]
            for places in self._places
        ]
        return zip(*found, strict=True) if self._is_tuple else found[0]

    def added(self, accumulators: Accumulators, value: Any) -> Accumulators:
        """Return the accumulators with one record more."""
        pairs = zip(self._added, accumulators, strict=True)
        return tuple([add(accumulator, value) for add, accumulator in pairs])

    async def added_to_all(self, several: Sequence[Accumulators], value: Any) -> list[Accumulators]:
        """Return several accumulators with one record more; for another attempt."""
        results = []
        for accumulators in several:
            added = []
            for add, accumulator in zip(self.adds, accumulators, strict=True):
                found = add(accumulator, value)
                added.append(await found if inspect.isawaitable(found) else found)
            results.append(tuple(added))
        return results

    def folded(self, values: Sequence[Any]) -> Accumulators:
        """Return the accumulators of records, added in their order."""
        accumulators = self.fresh()
        for value in values:
            accumulators = self.added(accumulators, value)
        return accumulators


def _waited(call: Callable[..., Any]) -> Callable[..., Any]:
    if not is_async(call):
        return call
    return lambda *arguments: resolve(call, *arguments)


def _runnable(function: Any) -> Any:
    if isinstance(function, ApproximateDistinct):
        return SketchDistinct(function.selector, precision=function.precision)
    if isinstance(function, Reduction) and is_async(function.call):
        return _AsyncReduction(function.call)
    return function


class _AsyncReduction(Reduction[Any]):
    """A reduce whose function must be awaited."""

    async def add(self, accumulator: tuple[Any, ...], value: Any) -> tuple[Any, ...]:  # type: ignore[override]  # awaited by the operator
        return (await self.call(accumulator[0], value),) if accumulator else (value,)

    async def merge(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:  # type: ignore[override]  # awaited by the operator
        return (await self.call(a[0], b[0]),) if a and b else a or b


def _accumulator_type(function: Any, record_type: Any) -> Any:
    if isinstance(function, Reduction):
        return None if record_type is None else tuple[record_type, ...]
    if isinstance(function, Count | SelectedAggregate):
        return function.accumulator_type
    return accumulator_type(function)
