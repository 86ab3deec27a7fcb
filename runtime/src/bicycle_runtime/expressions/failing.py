"""Failures of values that a function computes and does not use.

Python computes each value in place, and fails there. An expression computes a value at its use: in
one branch of a condition, or nowhere. Parts that may fail therefore remain in the expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bicycle_sdk.expressions import Expression

_NEVER_FAIL = frozenset({"literal", "free", "itself"})


def with_failures_of(computed: Sequence[Expression], result: Any) -> Any:
    """Return a result that fails wherever something that was computed before it does.

    Args:
        computed: All that was computed on the way, in order.
        result: An expression; anything else comes back as it is.

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
    always: set[int] = set()
    _note_computed(result, always)
    for value in reversed(computed):  # The last ones hold the earlier ones.
        if value.operation not in _NEVER_FAIL and id(value) not in always:
            result = Expression("checked", value, result)
            _note_computed(value, always)
    return result


def _note_computed(expression: Expression, always: set[int]) -> None:
    """Note all parts that are computed for each record, by their identity."""
    if id(expression) in always:
        return
    always.add(id(expression))
    arguments = expression.arguments
    for part in arguments[:1] if expression.operation == "if" else arguments:
        if isinstance(part, Expression):
            _note_computed(part, always)
