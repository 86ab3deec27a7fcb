"""Forms: how records are created from columns, or rows with their JSON text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache, partial
from itertools import starmap
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class RecordForm:
    """The type and names of records in columns.

    ``kind`` is dict, tuple, a named tuple, a dataclass, or None if a record is a plain value;
    ``names`` are the names of its columns: fields, or places.
    """

    kind: type | None
    names: tuple[Any, ...]

    def made(self, rows: Iterable[Any]) -> list[Any]:
        """Return the records.

        Args:
            rows: The values of each, as a tuple in the order of ``names``; without a ``kind``, the
                value itself.
        """
        kind: Any = self.kind
        names = self.names
        if kind is dict:
            return [dict(zip(names, row, strict=True)) for row in rows]
        if kind is None or kind is tuple:
            return list(rows)
        if issubclass(kind, tuple):
            # hot path: 90 ns a record; calling a named tuple takes 250.
            return list(map(partial(tuple.__new__, kind), rows))
        if _is_by_index(kind, names):
            # hot path: 200 ns a record, by keywords 1,300.
            return list(starmap(kind, rows))
        return [kind(**dict(zip(names, row, strict=True))) for row in rows]

    def written(self, rows: Iterable[Any]) -> Iterable[Any]:
        """Yield objects with the same JSON text as the records, one at a time.

        hot path: 70 ns a record until it is written; a dict takes 470, a dataclass 200.

        Args: as of ``made``.
        """
        if self.kind is None or issubclass(self.kind, tuple):
            # hot path: zip() returns the same tuple again if it was not kept, so that encoding rows
            # takes 0.4 us, encoding records that were made first 0.9 to 1.6.
            return rows
        is_alike = self.kind is dict or _is_in_order(self.kind, self.names)
        row_type = _row_type(self.names) if is_alike else None
        return self.made(rows) if row_type is None else starmap(row_type, rows)


def _is_in_order(kind: Any, names: tuple[Any, ...]) -> bool:
    """Return whether names are the fields of a dataclass in its order, as in JSON."""
    return names == tuple(field.name for field in fields(kind))


def _is_by_index(kind: Any, names: tuple[Any, ...]) -> bool:
    """Return whether a dataclass accepts these fields as positional arguments."""
    return _is_in_order(kind, names) and not any(field.kw_only for field in fields(kind))


@cache
def _row_type(names: tuple[str, ...]) -> Any:
    """Return a type with the JSON text of dicts with these names, or None."""
    attributes = [f"f{number}" for number in range(len(names))]
    try:
        return msgspec.defstruct(
            "Row", attributes, rename=dict(zip(attributes, names, strict=True)), gc=False
        )
    except ValueError:  # a name that needs an escape
        return None
