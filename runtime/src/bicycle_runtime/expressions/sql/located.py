"""The offsets of expressions in SQL texts, for errors of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bicycle_sdk.expressions import Expression


class Located(Expression):
    """An SQL expression with the offset of its text, for errors of rows."""

    __slots__ = ("at",)

    def __init__(self, at: int, operation: str, *arguments: Any) -> None:
        super().__init__(operation, *arguments)
        self.at = at

    def __reduce__(self) -> tuple[Any, ...]:
        return Located, (self.at, self.operation, *self.arguments)


class RowError(str):
    """The error of a row, with the offset of the expression that failed."""

    __slots__ = ("at",)
    at: int

    def __new__(cls, text: str, at: int) -> RowError:
        found = super().__new__(cls, text)
        found.at = at
        return found


def locate(expression: Expression, at: int) -> Expression:
    """Return an expression with the offset of its text, unless it has one."""
    if isinstance(expression, Located):
        return expression
    return Located(at, expression.operation, *expression.arguments)


def with_arguments(expression: Expression, arguments: Sequence[Any]) -> Expression:
    """Return an expression with other arguments, at the same offset."""
    found = Expression(expression.operation, *arguments)
    return locate(found, expression.at) if isinstance(expression, Located) else found


def offsets(expressions: Iterable[Any]) -> set[int]:
    """Return the offsets of expressions and of their parts."""
    found, known, todo = set[int](), set[int](), list[Any](expressions)
    while todo:
        each = todo.pop()
        if isinstance(each, tuple):
            todo += each
        elif isinstance(each, Expression) and id(each) not in known:
            known.add(id(each))
            todo += each.arguments
            found |= {each.at} if isinstance(each, Located) else set()
    return found


def locate_errors(errors: Mapping[int, str], at: int) -> Mapping[int, str]:
    """Return errors with an offset; errors of parts keep theirs."""
    return {
        row: text if isinstance(text, RowError) else RowError(text, at)
        for row, text in errors.items()
    }
