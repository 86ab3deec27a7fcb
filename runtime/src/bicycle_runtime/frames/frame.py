"""Frames: records as columns, on their way through the steps of a chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from bicycle_runtime.frames.records import (
    MISSING,
    ColumnRecords,
    FieldRecords,
    RecordForm,
)
from bicycle_runtime.frames.vectors import Mask, Refused, Vector

__all__ = ["Columns", "Frame", "MappedFrame", "SourceFrame"]

Name = str | int | None  # of a field, a place in a tuple, or of a record that is a plain value
_MISSING = type(MISSING)


class Columns(Protocol):
    """Records as columns."""

    @property
    def count(self) -> int:
        """The number of records."""

    def field(self, name: Any) -> Vector:
        """Return a field of each.

        Raises:
            Refused: a record has no such field.
        """

    def field_or(self, name: Any, default: Vector) -> Vector:
        """Return a field of each record, with values of ``default`` where it is missing."""

    def take(self, mask: Mask) -> Columns:
        """Return some of them."""


class SourceFrame:
    """Records of a source as columns; a field is read on first use.

    Args:
        records: Which these are: they know how fields are looked up.
        kinds: The types of fields that were declared, and checked by the source.
        known: Fields that were looked up before.
    """

    def __init__(
        self, records: FieldRecords, kinds: Mapping[str, type],
        known: Mapping[str, Vector] | None = None,
    ) -> None:  # fmt: skip
        self._records, self._kinds = records, kinds
        self._known = dict(known or {})
        self.count = len(records)

    def records(self) -> FieldRecords:
        """Return the records."""
        return self._records

    def field(self, name: str) -> Vector:
        """Return a field of each."""
        found = self._looked_up(name)
        if _MISSING in found.kinds:
            raise Refused
        return found

    def field_or(self, name: str, default: Vector) -> Vector:
        """Return a field of each record, with values of ``default`` where it is missing."""
        found = self._looked_up(name)
        if _MISSING not in found.kinds:
            return found
        pairs = zip(found.items, default.each(), strict=True)
        return Vector(self.count, [other if item is MISSING else item for item, other in pairs])

    def take(self, mask: Mask) -> SourceFrame:
        """Return some of them."""
        known = {name: vector.take(mask) for name, vector in self._known.items()}
        return SourceFrame(self._records.take(mask), self._kinds, known)

    def _looked_up(self, name: str) -> Vector:
        found = self._known.get(name)
        if found is None:
            kind = self._kinds.get(name)
            try:
                found = self._records.column(name, kind)
            except (AttributeError, KeyError, TypeError) as error:
                raise Refused from error
            self._known[name] = found
        return found


class MappedFrame:
    """Records that a map made, or a window.

    Args:
        count: How many they are.
        form: The form of the records.
        columns: By the names of their fields.
    """

    def __init__(self, count: int, form: RecordForm, columns: Mapping[Name, Vector]) -> None:
        self.count = count
        self.form = form
        self.columns = columns

    @classmethod
    def of(cls, records: ColumnRecords) -> MappedFrame:
        """Return records in columns; fields of a named tuple also have positions."""
        columns, form = records.columns(), records.form
        found: dict[Name, Vector] = dict(zip(form.names, columns, strict=True))
        if form.kind is not None and issubclass(form.kind, tuple):
            found.update(enumerate(columns))
        return cls(len(records), form, found)

    def records(self) -> ColumnRecords:
        """Return the records."""
        columns = [self.columns[name] for name in self.form.names]
        return ColumnRecords(self.form, (self.count, lambda: columns))

    def field(self, name: Name) -> Vector:
        """Return a field of each."""
        try:
            return self.columns[name]
        except KeyError as error:
            raise Refused from error

    def field_or(self, name: Name, default: Vector) -> Vector:
        """Return a field of each; all have the same ones."""
        return self.columns.get(name, default)

    def take(self, mask: Mask) -> MappedFrame:
        """Return some of them."""
        columns = {name: vector.take(mask) for name, vector in self.columns.items()}
        return MappedFrame(mask.count, self.form, columns)


Frame = SourceFrame | MappedFrame
