"""The size of records in memory."""

from __future__ import annotations

from itertools import islice
from sys import getsizeof
from typing import Any

_ITEMS_MAX = 8
_DEPTH_MAX = 4


def size_of(value: Any, depth: int = 0) -> int:
    """Return about how many bytes a record takes, from a few items of containers.

    Example:
        >>> size_of("a" * 1_000) > 1_000 and size_of([1.5] * 1_000) > 8_000
        True
    """
    size = getsizeof(value)
    if isinstance(value, str | bytes) or depth == _DEPTH_MAX:
        return size
    parts = value
    if isinstance(value, dict):
        parts = value.values()
    elif not isinstance(value, list | tuple | set | frozenset):
        parts = getattr(value, "__dict__", {}).values()
    seen = list(islice(parts, _ITEMS_MAX))
    total = sum(size_of(part, depth + 1) for part in seen)
    return size + (total * len(parts) // len(seen) if seen else 0)
