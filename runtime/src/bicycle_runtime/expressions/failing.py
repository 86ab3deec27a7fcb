"""Failures of values that a function computes and does not use.

Python computes each value in place, and fails there. An expression computes a value at its use: in
one branch of a condition, or nowhere. Parts that may fail therefore remain in the expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bicycle_sdk.expressions import Expression, lit

_NEVER_FAIL = frozenset({"element", "free", "itself", "list", "literal", "tuple"})
_NOTHING = lit(None)
_WAYS_MAX = 8  # A value with an unknown way has a needless check.


@dataclass(frozen=True, slots=True)
class Branches:
    """The values that were computed on the two ways of a condition."""

    condition: Expression
    ways: tuple[Sequence[Computed], Sequence[Computed]]


Computed = Expression | Branches
# The conditions under which a part is computed: by identity, and which way each goes.
_Way = frozenset[tuple[int, int]]


def with_failures_of(computed: Sequence[Computed], result: Any) -> Any:
    """Return a result that fails wherever something that was computed before it does.

    Args:
        computed: All that was computed on the way, in order.
        result: An expression; anything else is returned as it is.

    Example:
        >>> from bicycle_sdk.expressions import col
        >>> with_failures_of([1 / col("a")], col("b"))
        checked(1 / col('a'), col('b'))
        >>> share = 1 / col("a")
        >>> with_failures_of([share], share + col("b"))
        (1 / col('a')) + col('b')
    """
    if not isinstance(result, Expression):
        return result
    known: dict[int, set[_Way]] = {}
    _note_computed(result, frozenset(), known)
    return _add_checks(computed, result, frozenset(), known)


def _add_checks(
    computed: Sequence[Computed], result: Expression, way: _Way, known: dict[int, set[_Way]]
) -> Expression:
    for value in reversed(computed):  # The last ones hold the earlier ones.
        if isinstance(value, Branches):
            first, second = (
                _add_checks(part, _NOTHING, way | {(id(value.condition), side)}, known)
                for side, part in enumerate(value.ways)
            )
            if first is not _NOTHING or second is not _NOTHING:
                check = Expression("if", value.condition, first, second)
                result = Expression("checked", check, result)
        elif value.operation not in _NEVER_FAIL and not _is_known(value, way, known):
            result = Expression("checked", value, result)
            _note_computed(value, way, known)
    return result


def _is_known(value: Expression, way: _Way, known: dict[int, set[_Way]]) -> bool:
    return any(found <= way for found in known.get(id(value), ()))


def _note_computed(expression: Expression, way: _Way, known: dict[int, set[_Way]]) -> None:
    """Note the parts of an expression, and for which records each is computed."""
    ways = known.setdefault(id(expression), set())
    if len(ways) >= _WAYS_MAX or _is_known(expression, way, known):
        return
    ways.add(way)
    arguments = expression.arguments
    match expression.operation:
        case "if":
            condition, *sides = arguments
            _note_computed(condition, way, known)
            for side, part in enumerate(sides):
                _note_computed(part, way | {(id(condition), side)}, known)
        case "each":
            _note_computed(arguments[0], way, known)
        case _:
            for part in arguments:
                if isinstance(part, Expression):
                    _note_computed(part, way, known)
