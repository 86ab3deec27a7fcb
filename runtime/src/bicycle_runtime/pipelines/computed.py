"""Operators that compute expressions: for a whole batch at once, on workers.

They travel as plain data; the kernel is made where the first batch comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bicycle_runtime.expressions.types import CompiledExpressions

__all__ = ["ComputedFields", "Dropped", "Where"]


class _Computed:
    """What both have: the expressions, and the kernel once it is needed."""

    def __init__(self, compiled: CompiledExpressions) -> None:
        self._compiled = compiled
        self._kernel: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kernel": None}

    def _answers(self, values: Sequence[Any]) -> list[Any]:
        if self._kernel is None:
            # Slow to import, and an extra: a worker has it that computes expressions.
            from bicycle_runtime.expressions.kernel import Kernel

            self._kernel = Kernel(self._compiled)
        answers: list[Any] = self._kernel.answers(values)
        return answers

    def _single(self, answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer


class Where(_Computed):
    """Keeps the records of which an expression is true; of unknown it is not."""

    def __call__(self, value: Any) -> bool:
        found: bool = self._single(self.answer_all([value])[0])
        return found

    def answer_all(self, values: Sequence[Any]) -> list[Any]:
        """Return for each record whether it is kept, or why that cannot be told."""
        return [
            answer if isinstance(answer, Exception) else answer[0] is True
            for answer in self._answers(values)
        ]


class ComputedFields(_Computed):
    """Makes records with computed fields.

    Args:
        compiled: The expressions.
        keeps: Whether the other fields stay.
        drop: Fields that do not stay.
    """

    def __init__(
        self, compiled: CompiledExpressions, *, keeps: bool, drop: Sequence[str] = ()
    ) -> None:
        super().__init__(compiled)
        self._keeps = keeps
        self._drop = tuple(drop)

    def __call__(self, value: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._single(self.answer_all([value])[0])
        return found

    def answer_all(self, values: Sequence[Any]) -> list[Any]:
        """Return for each record the new one, or why it cannot be computed."""
        return [
            answer if isinstance(answer, Exception) else self._made(value, answer)
            for value, answer in zip(values, self._answers(values), strict=True)
        ]

    def _made(self, value: Mapping[str, Any], answer: tuple[Any, ...]) -> dict[str, Any]:
        given = dict(zip(self._compiled.names, answer, strict=True))
        if not self._keeps:
            return given
        kept = {name: each for name, each in value.items() if name not in self._drop}
        return {**kept, **given}


class Dropped:
    """Records without some of their fields."""

    __slots__ = ("fields",)

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = frozenset(fields)

    def __call__(self, value: Any) -> dict[str, Any]:
        return {name: each for name, each in value.items() if name not in self.fields}
