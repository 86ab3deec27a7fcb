"""Decorators for functions in Python that SQL calls.

A decorator marks a function and does not wrap it: tests call it as before. The types of arguments
and result are those of the annotations: ``int`` is BIGINT, ``float`` DOUBLE, ``str`` VARCHAR,
``list[int]`` BIGINT[], and ``Annotated[Decimal, "DECIMAL(10, 2)"]`` names a type of SQL. If an
argument is NULL and its annotation has no ``None``, the result is NULL without a call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

__all__ = ["SqlMark", "aggregate_function", "scalar_function", "sql_mark"]

F = TypeVar("F", bound=Callable[..., Any])
A = TypeVar("A", bound=type[Any])
_MARK = "__bicycle_sql__"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlMark:
    """The kind of a function and the flags of its decorator."""

    kind: Literal["scalar", "aggregate"] = "scalar"
    is_deterministic: bool = False
    is_on_columns: bool = False


@overload
def scalar_function(target: F, /) -> F: ...
@overload
def scalar_function(
    *, deterministic: bool = False, on_columns: bool = False
) -> Callable[[F], F]: ...
def scalar_function(
    target: F | None = None, /, *, deterministic: bool = False, on_columns: bool = False
) -> F | Callable[[F], F]:
    """Mark a function that returns a value for each row.

    Args:
        target: The function.
        deterministic: Equal arguments have equal results. Other functions are computed once for
            each row of the query that calls them, also if several queries read the result.
        on_columns: Arguments and result are Arrow arrays instead of values.

    Example:
        >>> @scalar_function(deterministic=True)
        ... def initials(name: str) -> str:
        ...     return "".join(word[0] for word in name.split())
        >>> initials("Ada Lovelace")
        'AL'
    """
    mark = SqlMark(is_deterministic=deterministic, is_on_columns=on_columns)

    def decorate(function: F) -> F:
        setattr(function, _MARK, mark)
        return function

    return decorate if target is None else decorate(target)


def aggregate_function(target: A) -> A:
    """Mark a class of ``AggregateFunction`` as an aggregate of SQL windows.

    ``add`` and ``get_result`` have annotations. With ``merge``, rows are aggregated before they are
    sent to the subtask of their key.
    """
    setattr(target, _MARK, SqlMark(kind="aggregate"))
    return target


def sql_mark(target: Any) -> SqlMark | None:
    """Return the mark of a decorated function or class, or None."""
    found: SqlMark | None = getattr(target, _MARK, None)
    return found
