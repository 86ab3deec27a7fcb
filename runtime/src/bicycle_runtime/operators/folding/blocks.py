"""What a combining step sends: blocks of contents, or of records that may be late, as bytes.

A block holds what belongs to one key group, so that the shuffle needs to look at it once.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.records.codecs import pickle_any

__all__ = ["Partials", "RawRecords", "open_block", "seal_block"]

_PARTIALS, _RAW = 0, 1


@dataclass(slots=True)
class Partials:
    """Contents by window: ``parts`` are (start, keys, contents)."""

    parts: list[tuple[Any, list[Any], list[Any]]]


@dataclass(slots=True)
class RawRecords:
    """Records with their event times, for the window operator to decide about."""

    values: list[Any]
    times: list[int]


def seal_block(block: Partials | RawRecords) -> bytes:
    """Return a block as bytes."""
    if isinstance(block, RawRecords):
        return pickle_any((_RAW, block.values, block.times))
    # Columns instead of tuples: a column of ints or floats costs 20 ns an item.
    columns = [
        (start, keys, list(zip(*contents, strict=True))) for start, keys, contents in block.parts
    ]
    return pickle_any((_PARTIALS, columns))


def open_block(data: bytes) -> Partials | RawRecords:
    """Return the block that ``seal_block`` wrote."""
    kind, *rest = pickle.loads(data)
    if kind == _RAW:
        return RawRecords(*rest)
    return Partials(
        [(start, keys, list(zip(*columns, strict=True))) for start, keys, columns in rest[0]]
    )
