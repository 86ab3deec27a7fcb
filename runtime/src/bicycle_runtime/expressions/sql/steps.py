"""Steps of a job that compute SQL expressions: filters, and computed fields.

Over columns a step declares its expression, as other functions do. Records that go one by one,
because one of a batch failed, are computed together once more: each that failed has its error.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.expressions.evaluation import HasExpression, sql_rows
from bicycle_runtime.frames.arrays import listed_values
from bicycle_runtime.frames.frame import Frame
from bicycle_sdk.expressions import Expression, col


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledExpressions:
    """SQL expressions by name, and the types of their results as words of fields."""

    names: tuple[str, ...]
    trees: tuple[Expression, ...]
    types: tuple[str, ...]


class ExpressionInvalidError(Exception):
    """An expression that cannot be computed over these fields; ``name`` is which."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(problem)
        self.name = name


class ExpressionFailedError(ValueError):
    """An expression without a value for a record: 1/0, overflow, a bad cast.

    Args:
        text: The problem.
        user_line: The location of the expression, or empty.
    """

    def __init__(self, text: str, user_line: str = "") -> None:
        super().__init__(text)
        self.user_line = user_line


class _Computed(HasExpression):
    """The base of both steps: the results of all expressions for each record."""

    def __init__(self, compiled: CompiledExpressions) -> None:
        self.compiled = compiled

    def results(self, records: Sequence[Any]) -> list[Any]:
        """Return for each record the tuple of results, or the exception that it leads to."""
        frame, names = Frame.of_dicts(list(records)), self.compiled.names
        found = [sql_rows(frame).array(tree) for tree in self.compiled.trees]
        results: list[Any] = list(zip(*(listed_values(each.column) for each in found), strict=True))
        for name, each in reversed(list(zip(names, found, strict=True))):
            for at, error in each.errors.items():
                text = f"{name}: {error}" if len(names) > 1 else error
                results[at] = ExpressionFailedError(text)
        return results

    def __call__(self, value: Any) -> Any:
        [answer] = self.answer_all([value])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answer_all(self, values: Sequence[Any]) -> list[Any]:
        """Return for each record the result of the step, or its error."""
        results = self.results(values) if values else []
        return [
            each if isinstance(each, Exception) else self._answer(value, each)
            for value, each in zip(values, results, strict=True)
        ]

    @abstractmethod
    def _answer(self, value: Any, results: tuple[Any, ...]) -> Any:
        """Return the result of the step for a record with these results."""


class Where(_Computed):
    """A filter that keeps the records of which an expression is true, not NULL."""

    def expression(self) -> Expression:
        return Expression("sql.is_true", "BOOLEAN", *self.compiled.trees)

    def _answer(self, value: Any, results: tuple[Any, ...]) -> bool:  # noqa: ARG002  # as above
        return results[0] is True


class ComputedFields(_Computed):
    """A map to records with computed fields.

    Args:
        compiled: The expressions by the names of the fields.
        kept: Other fields of the records that remain.
    """

    def __init__(self, compiled: CompiledExpressions, *, kept: Sequence[str] = ()) -> None:
        super().__init__(compiled)
        self._kept = tuple(kept)

    def expression(self) -> Expression:
        computed = dict(zip(self.compiled.names, self.compiled.trees, strict=True))
        values = {**{name: col(name) for name in self._kept}, **computed}
        return Expression("record", tuple(values), *values.values())

    def _answer(self, value: Mapping[str, Any], results: tuple[Any, ...]) -> dict[str, Any]:
        given = dict(zip(self.compiled.names, results, strict=True))
        return {**{name: value[name] for name in self._kept if name in value}, **given}
