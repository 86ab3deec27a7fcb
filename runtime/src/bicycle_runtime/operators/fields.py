"""Records that are read by field, a column at a time, and made only when somebody asks for them.

A source whose records are documents with typed fields can give them so (``FieldReader``), and an
operator whose function only looks a field up takes the column. Every other operator sees a sequence
of records like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import FunctionType
from typing import Any, Protocol, runtime_checkable

from bicycle_runtime.operators.arrays import int_array
from bicycle_runtime.operators.io import SourceReader
from bicycle_runtime.operators.lazy_records import LazyRecords

__all__ = ["FieldReader", "FieldRecords", "field_of"]


class FieldRecords(LazyRecords):
    """Records of one type, in order.

    Args:
        rows: An object for each record that has its fields.
        make: Makes the records themselves, as many as there are rows.
    """

    def __init__(self, rows: list[Any], make: Callable[[], list[Any]]) -> None:
        super().__init__(len(rows), make)
        self._rows = rows
        self._columns: dict[str, list[Any]] = {}
        self._arrays: dict[str, Any] = {}

    def column(self, name: str) -> list[Any]:
        """Return a field of every record."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = list(map(attrgetter(name), self._rows))
        return found

    def ints(self, name: str) -> Any:
        """Return a field of ints as an array of 64 bits each; None when one of them has more."""
        if name not in self._arrays:
            self._arrays[name] = int_array(self.column(name))
        return self._arrays[name]


@runtime_checkable
class FieldReader(SourceReader, Protocol):
    """A reader that can give its records as ``FieldRecords``."""

    def give_fields(self) -> None:
        """Do so from now on, where the type of the records allows it."""


def field_of(function: Any) -> str | None:
    """Return the attribute that a function looks up in its argument, if that is all that it does.

    Example:
        >>> field_of(lambda reading: reading.sensor), field_of(attrgetter("sensor"))
        ('sensor', 'sensor')
        >>> field_of(lambda reading: reading.sensor.lower()), field_of(attrgetter("a", "b"))
        (None, None)
    """
    if type(function) is attrgetter:
        names = function.__reduce__()[1]
        return names[0] if len(names) == 1 and names[0].isidentifier() else None
    if not isinstance(function, FunctionType):
        return None
    code, model = function.__code__, _field.__code__
    shape = (code.co_code, code.co_argcount, code.co_kwonlyargcount, len(code.co_names))
    if shape != (model.co_code, 1, 0, 1) or code.co_cellvars or code.co_exceptiontable:
        return None
    return code.co_names[0]


def _field(record: Any) -> Any:
    return record.name
