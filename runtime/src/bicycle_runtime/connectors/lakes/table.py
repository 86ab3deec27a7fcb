"""A table of a lake as its sink sees it: looked at, made, and committed to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow

from bicycle_runtime.connectors.lakes.row_checks import RowChecks

_PLAIN = {
    pyarrow.large_string(): pyarrow.string(),
    pyarrow.string_view(): pyarrow.string(),
    pyarrow.large_binary(): pyarrow.binary(),
    pyarrow.binary_view(): pyarrow.binary(),
}


class MissingTableError(Exception):
    """A table that was there is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The data of a commit: job, epoch and keys; the table keeps run and epoch."""

    job: str
    run: str
    epoch: int
    keys: Sequence[str]

    @property
    def facts(self) -> dict[str, str]:
        """The readable facts in the log of the table."""
        return {"bicycle.job": self.job, "bicycle.run": self.run, "bicycle.epoch": str(self.epoch)}


class LakeVersion(ABC):
    """One version of a table. A commit is made on it, or fails."""

    @property
    @abstractmethod
    def schema(self) -> pyarrow.Schema:
        """The columns, as rows must have them to be written."""

    @abstractmethod
    def checks(self) -> RowChecks:
        """Return the rules of the table for rows.

        Raises:
            ValueError: the table has a rule that cannot be checked.
        """

    @abstractmethod
    def last_epoch(self, run: str) -> int:
        """Return the last epoch that a run committed, or -1."""

    @abstractmethod
    def append(self, rows: pyarrow.RecordBatchReader, commit: Commit) -> None:
        """Add rows. Fails, changing nothing, when the run has committed beside."""

    @abstractmethod
    def upsert(self, rows: pyarrow.Table, commit: Commit) -> None:
        """Replace rows with equal keys, each key once; fails like ``append``.

        A replaced row keeps its values of columns that the new rows lack.
        """


class LakeTable(ABC):
    """The way to a table. ``name`` is what people call it."""

    name: str

    @abstractmethod
    def look(self) -> LakeVersion | None:
        """Return the newest version, None where there is no table. Changes nothing."""

    @abstractmethod
    def make(self, schema: pyarrow.Schema) -> None:
        """Make the table where it is missing."""

    def unsupported(self, schema: pyarrow.Schema) -> str:
        """Return the first column that this kind of table does not support, or ""."""
        return next((field.name for field in schema if "duration[" in str(field.type)), "")

    def folder_problem(self, schema: pyarrow.Schema) -> str:
        """Return why columns cannot partition a table as requested, or ""."""
        return ""

    @abstractmethod
    def is_away(self, error: Exception) -> bool:
        """Return whether a retry may succeed: after an outage or a conflict."""

    @abstractmethod
    def is_refusal(self, error: Exception) -> bool:
        """Return whether an error is any other one of the library or the layers below."""

    def break_off(self) -> None:  # noqa: B027 - most libraries limit their waits themselves.
        """End a wait for an answer of a catalog with an error."""

    def close(self) -> None:  # noqa: B027 - most hold nothing open.
        """Release the resources."""


def in_microseconds(schema: pyarrow.Schema) -> pyarrow.Schema:
    """Return columns with times as tables of lakes have them."""
    fields: Iterator[pyarrow.Field] = (
        field.with_type(pyarrow.timestamp("us", field.type.tz))
        if pyarrow.types.is_timestamp(field.type)
        else field
        for field in schema
    )
    return pyarrow.schema(list(fields))


def plain_type(found: pyarrow.DataType) -> pyarrow.DataType:
    """Return the canonical type for types with equal values, such as large texts."""
    kinds = pyarrow.types
    if kinds.is_timestamp(found):
        return pyarrow.timestamp("us", found.tz)
    if found in _PLAIN:
        return _PLAIN[found]
    if kinds.is_list(found) or kinds.is_large_list(found):
        return pyarrow.list_(plain_type(found.value_type))
    if kinds.is_map(found):
        return pyarrow.map_(plain_type(found.key_type), plain_type(found.item_type))
    if kinds.is_struct(found):
        return pyarrow.struct([(field.name, plain_type(field.type)) for field in found])
    return found
