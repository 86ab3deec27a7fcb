"""The order of map keys: their sort keys, and lists in this order."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["NATURAL_ORDER", "PartOrder", "has_prefix", "natural_order", "put_in_order"]

_FEW = 16  # Of so many, one is put in its place alone.
_RANKS = ((0, type(None)), (1, bytes), (2, str), (4, int), (5, float))
_TUPLE_RANK = 3


class PartOrder(NamedTuple):
    """The order of map keys.

    ``sort_key`` returns the sort key of a map key, and refuses keys that cannot be stored.
    ``parts`` returns the map keys of sort keys. Sort keys of equal map keys are equal.
    """

    sort_key: Callable[[Any], Any]
    parts: Callable[[list[Any]], list[Any]]


def put_in_order(ordered: list[Any], sort_keys: list[Any]) -> None:
    """Insert new items into an ordered list."""
    if len(sort_keys) * _FEW < len(ordered):
        for sort_key in sort_keys:
            insort(ordered, sort_key)
    else:
        ordered += sort_keys
        ordered.sort()


def natural_order(key: Any) -> Any:
    """Return a sort key: None, bytes, text, tuples, whole numbers, other numbers.

    Example:
        >>> sorted(["b", 2, "a", 1], key=natural_order)
        ['a', 'b', 1, 2]
    """
    if isinstance(key, tuple):
        return (_TUPLE_RANK, tuple(map(natural_order, key)))
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    for rank, kind in _RANKS:
        if isinstance(key, kind):
            return (rank, key)
    return (len(_RANKS) + 1, type(key).__qualname__, str(key))


def has_prefix(key: Any, prefix: Any) -> bool:
    """Return whether a text, bytes or a tuple begins with another, else False.

    Example:
        >>> has_prefix("apple", "app"), has_prefix(("ada", 1), ("ada",)), has_prefix(12, 1)
        (True, True, False)
    """
    if isinstance(key, tuple) and isinstance(prefix, tuple):
        return key[: len(prefix)] == prefix
    if isinstance(key, str) and isinstance(prefix, str):
        return key.startswith(prefix)
    return isinstance(key, bytes) and isinstance(prefix, bytes) and key.startswith(prefix)


NATURAL_ORDER = PartOrder(
    lambda part: (natural_order(part), part), lambda sort_keys: [part for _, part in sort_keys]
)
