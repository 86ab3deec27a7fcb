"""The functions behind ``sum``, ``min``, ``max_by``, ``count`` and ``split``, importable by name.

A job therefore ships a reference to them and not their code. A running
aggregation is a Reduce: ``initial`` makes the first accumulator of a key, the function joins each
further record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bicycle_sdk.contexts import ProcessContext
from bicycle_sdk.functions import ProcessFunction, as_callable

__all__ = [
    "KeepHighest",
    "KeepLowest",
    "Maximum",
    "Minimum",
    "SplitFunction",
    "Total",
    "everything",
    "increment",
    "one",
]


class _OfSelected:
    """An aggregation of what ``selector`` finds in each record."""

    __slots__ = ("selector",)

    def __init__(self, selector: Callable[[Any], Any]) -> None:
        self.selector = selector


class Total(_OfSelected):
    """Adds the selected value."""

    __slots__ = ()

    def __call__(self, total: Any, value: Any) -> Any:
        return total + self.selector(value)


class Minimum(_OfSelected):
    """Keeps the least selected value."""

    __slots__ = ()

    def __call__(self, lowest: Any, value: Any) -> Any:
        return min(lowest, self.selector(value))


class Maximum(_OfSelected):
    """Keeps the greatest selected value."""

    __slots__ = ()

    def __call__(self, highest: Any, value: Any) -> Any:
        return max(highest, self.selector(value))


class KeepLowest(_OfSelected):
    """Keeps the record with the least selected value, the earliest of equals."""

    __slots__ = ()

    def __call__(self, kept: Any, value: Any) -> Any:
        return value if self.selector(value) < self.selector(kept) else kept


class KeepHighest(_OfSelected):
    """Keeps the record with the greatest selected value, the earliest of equals."""

    __slots__ = ()

    def __call__(self, kept: Any, value: Any) -> Any:
        return value if self.selector(value) > self.selector(kept) else kept


def one(_value: Any) -> int:
    """The count of one record."""
    return 1


def increment(count: int, _value: Any) -> int:
    """The count of one record more."""
    return count + 1


def everything(_value: Any) -> int:
    """The one key that all records share."""
    return 0


class SplitFunction(ProcessFunction[Any, Any]):
    """Sends each record to the side outputs that ``selector`` names; the main one stays empty."""

    def __init__(self, selector: Callable[[Any], str | Iterable[str]]) -> None:
        self.selector = selector

    def process_element(self, value: Any, ctx: ProcessContext) -> tuple[()]:
        tags = as_callable(self.selector, "select")(value)
        for tag in (tags,) if isinstance(tags, str) else tags:
            ctx.side_output(tag, value)
        return ()
