"""Blocks of a combining step: contents, or records that may be late, as bytes.

A block holds the records of one key group, so that the shuffle needs to look at it once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from bicycle_runtime.operators.columnar.fold import ColumnPartials, Partials
from bicycle_runtime.records.codecs import load_record_pickle, pickle_any

__all__ = ["Block", "ColumnPartials", "Partials", "RawRecords", "open_block", "seal_block"]

_PARTIALS, _RAW, _FIELDS = 0, 1, 2


@dataclass(slots=True)
class RawRecords:
    """Records with their event times, for the window operator to decide about."""

    values: list[Any]
    times: list[int]


Block = Partials | ColumnPartials | RawRecords


def seal_block(block: Block) -> bytes:
    """Return a block as bytes."""
    if isinstance(block, ColumnPartials):
        return pickle_any((_FIELDS, *(getattr(block, each.name) for each in fields(block))))
    if isinstance(block, RawRecords):
        return pickle_any((_RAW, block.values, block.times))
    # Columns instead of tuples: a column of ints or floats costs 20 ns an item.
    columns = [
        (start, keys, list(zip(*contents, strict=True))) for start, keys, contents in block.parts
    ]
    return pickle_any((_PARTIALS, columns))


def open_block(data: bytes) -> Block:
    """Return the block that ``seal_block`` wrote."""
    kind, *rest = load_record_pickle(data)
    if kind == _FIELDS:
        return ColumnPartials(*rest)
    if kind == _RAW:
        return RawRecords(*rest)
    return Partials(
        [(start, keys, list(zip(*columns, strict=True))) for start, keys, columns in rest[0]]
    )
