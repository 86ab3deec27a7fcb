"""Operators that compute expressions: for a whole batch at once, on workers.

They travel as plain data; the kernel is made where the first batch comes.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from bicycle_runtime.endpoints.field_functions import expression_of
from bicycle_runtime.expressions.evaluation import Columns, HasExpression, evaluate
from bicycle_runtime.expressions.types import CompiledExpressions
from bicycle_runtime.frames.vectors import ArrowVector, Refused, Vector
from bicycle_sdk.expressions import Expression, col

__all__ = ["ComputedFields", "Where", "without_fields"]


class _Computed(HasExpression):
    """The base of both classes: the expressions, and the kernel once it is needed."""

    def __init__(self, compiled: CompiledExpressions) -> None:
        self._compiled = compiled
        self._start()

    def _start(self) -> None:
        self._kernel: Any = None
        self._frame: weakref.ref[Columns] | None = None
        self._found: list[Vector] = []

    def __getstate__(self) -> CompiledExpressions:
        return self._compiled

    def __setstate__(self, state: CompiledExpressions) -> None:
        self._compiled = state
        self._start()

    def vectors(self, inputs: Sequence[Expression], columns: Columns) -> Sequence[Vector]:
        """Return the values of each expression; see ``ComputedColumns``."""
        if self._frame is None or self._frame() is not columns:
            self._found = self._vectors(inputs, columns)
            self._frame = weakref.ref(columns)
        return self._found

    def _vectors(self, inputs: Sequence[Expression], columns: Columns) -> list[Vector]:
        kernel = self._the_kernel()
        given = [evaluate(each, columns) for each in inputs]
        try:
            arrays = [
                kernel.column(read, _as_read(vector))
                for read, vector in zip(self._compiled.reads, given, strict=True)
            ]
            found = kernel.compute(arrays, columns.count)
        except Exception as error:  # Which record failed is found out by answer_all.
            raise Refused from error
        return [_vector(column, columns.count) for column in found]

    def _column(self, index: int) -> Expression:
        inputs = [expression_of(read.field) for read in self._compiled.reads]
        return Expression("columns", self, index, *inputs)

    def _answers(self, values: Sequence[Any]) -> list[Any]:
        answers: list[Any] = self._the_kernel().answers(values)
        return answers

    def _the_kernel(self) -> Any:
        if self._kernel is None:
            # Slow to import, and an extra: a worker has it that computes expressions.
            from bicycle_runtime.expressions.kernel import Kernel

            self._kernel = Kernel(self._compiled)
        return self._kernel

    def _single(self, answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer


class Where(_Computed):
    """Keeps the records of which an expression is true; of unknown it is not."""

    def expression(self) -> Expression:
        return self._column(0)

    def __call__(self, value: Any) -> bool:
        found: bool = self._single(self.answer_all([value])[0])
        return found

    def answer_all(self, values: Sequence[Any]) -> list[Any]:
        """Return for each record whether it is kept, or the error of its condition."""
        return [
            answer if isinstance(answer, Exception) else answer[0] is True
            for answer in self._answers(values)
        ]


class ComputedFields(_Computed):
    """Makes records with computed fields.

    Args:
        compiled: The expressions.
        kept: The other fields of the records that stay.
    """

    def __init__(self, compiled: CompiledExpressions, *, kept: Sequence[str] = ()) -> None:
        super().__init__(compiled)
        self._kept = tuple(kept)

    def __getstate__(self) -> Any:
        return self._compiled, self._kept

    def __setstate__(self, state: Any) -> None:
        compiled, self._kept = state
        super().__setstate__(compiled)

    def expression(self) -> Expression:
        computed = {name: self._column(at) for at, name in enumerate(self._compiled.names)}
        values = {**{name: col(name) for name in self._kept}, **computed}
        return Expression("record", tuple(values), *values.values())

    def __call__(self, value: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._single(self.answer_all([value])[0])
        return found

    def answer_all(self, values: Sequence[Any]) -> list[Any]:
        """Return for each record the new one, or why it cannot be computed."""
        return [
            answer if isinstance(answer, Exception) else self._make(value, answer)
            for value, answer in zip(values, self._answers(values), strict=True)
        ]

    def _make(self, value: Mapping[str, Any], answer: tuple[Any, ...]) -> dict[str, Any]:
        given = dict(zip(self._compiled.names, answer, strict=True))
        return {**{name: value[name] for name in self._kept if name in value}, **given}


def _as_read(vector: Vector) -> Any:
    """Return the values as an array, as an Arrow column, or as a list."""
    numbers = vector.numbers
    return vector.as_they_lie if numbers is None else numbers


def _vector(column: Any, count: int) -> Vector:
    """Return an Arrow column as a vector, without a conversion of numbers and texts."""
    # Slow to import, and an extra, as above.
    import pyarrow

    # As above.
    from bicycle_runtime.expressions.kernel import python_values

    kind, checks = column.type, pyarrow.types
    is_number = checks.is_int64(kind) or checks.is_float64(kind) or checks.is_boolean(kind)
    if is_number or checks.is_string(kind):
        return ArrowVector(column.combine_chunks())
    return Vector(count, python_values(column))


def without_fields(dropped: Sequence[str], names: Sequence[str]) -> Dropped:
    """Return a function that removes fields from records.

    Args:
        dropped: The fields.
        names: All that the records have; empty where that is not known.
    """
    kept = [name for name in names if name not in dropped]
    return DroppedOnColumns(dropped, kept) if kept else Dropped(dropped)


class Dropped:
    """Records without some of their fields."""

    __slots__ = ("fields",)

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = frozenset(fields)

    def __call__(self, value: Any) -> dict[str, Any]:
        return {name: each for name, each in value.items() if name not in self.fields}


class DroppedOnColumns(Dropped, HasExpression):
    """The same for records whose other fields are known."""

    __slots__ = ("kept",)

    def __init__(self, fields: Sequence[str], kept: Sequence[str]) -> None:
        super().__init__(fields)
        self.kept = tuple(kept)

    def expression(self) -> Expression:
        return Expression("record", self.kept, *map(col, self.kept))
