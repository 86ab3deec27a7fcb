"""The functions of ``sum``, ``min``, ``max_by``, ``count`` and ``split``, by name.

A job therefore ships a reference to them and not their code. A running
aggregation is a Reduce: ``initial`` makes the first accumulator of a key, the function joins each
further record.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.functions import ProcessFunction, full_name, refuse_class
from bicycle_sdk.record_types import function_types

if TYPE_CHECKING:
    from bicycle_sdk.contexts import ProcessContext

__all__ = [
    "FirstOfTotal",
    "KeepHighest",
    "KeepLowest",
    "Maximum",
    "Minimum",
    "SplitFunction",
    "Total",
    "checked_selector",
    "everything",
    "increment",
    "one",
    "sum_type",
]


class _OfSelected:
    """An aggregation of the values that ``selector`` returns for records."""

    __slots__ = ("selector",)

    def __init__(self, selector: Callable[[Any], Any]) -> None:
        self.selector = checked_selector(type(self).__name__, selector)


class Total(_OfSelected):
    """Adds the selected value."""

    __slots__ = ()

    def __call__(self, total: Any, value: Any) -> Any:
        return total + self.selector(value)


class FirstOfTotal(_OfSelected):
    """Returns the selected value as a total: True is 1."""

    __slots__ = ()

    @property
    def result_type(self) -> Any:
        """The type of the total, None when unknown."""
        return sum_type(self.selector)

    def __call__(self, value: Any) -> Any:
        selected = self.selector(value)
        return int(selected) if type(selected) is bool else selected


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


def sum_type(selector: object) -> Any:
    """Return the type of a sum of selected values, None when unknown."""
    gives = function_types(selector, "get_key").gives
    return int if gives is bool else gives


def one(_value: Any) -> int:
    """Return the count of one record."""
    return 1


def increment(count: int, _value: Any) -> int:
    """Return the count with one more record."""
    return count + 1


def everything(_value: Any) -> int:
    """Return the single key of all records."""
    return 0


class SplitFunction(ProcessFunction[Any, Any]):
    """A function that sends each record to the side outputs that ``selector`` names."""

    def __init__(self, selector: Callable[[Any], str | Iterable[str]]) -> None:
        self.selector = checked_selector("split", selector)

    def process_element(self, value: Any, ctx: ProcessContext) -> tuple[()]:
        tags = self.selector(value)
        for tag in (tags,) if isinstance(tags, str) else tags:
            ctx.side_output(tag, value)
        return ()


def checked_selector(call: str, selector: Any, *, is_async_fine: bool = False) -> Any:
    """Return a selector that is a plain callable.

    A running aggregation calls it between two records and can wait for nothing.

    Raises:
        StreamDefinitionError: it is not callable, a class of functions, or asynchronous.
    """
    refuse_class(call, selector)
    if callable(selector) and (is_async_fine or not inspect.iscoroutinefunction(selector)):
        return selector
    raise StreamDefinitionError(
        call=call,
        problem=f"the selector {full_name(selector)} is not a plain callable",
        hint="pass a function or a lambda" + ("" if is_async_fine else " that is not async"),
    )
