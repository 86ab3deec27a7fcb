"""Dates and times of PostgreSQL that Python does not have, such as infinity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
from psycopg.types.range import Range

_TIME_TYPES = ("date", "interval", "time", "timestamp", "timestamptz", "timetz")


class _UnreadableTime(str):
    """A date or time that Python does not have, as the server writes it."""

    __slots__ = ()


class _TimeLoader(psycopg.adapt.Loader):
    """Loads dates and times; ``_UnreadableTime`` if Python does not have one."""

    def load(self, data: Any) -> Any:
        """Return the value of a column."""
        usual = psycopg.adapters.get_loader(self.oid, self.format)
        assert usual is not None, "the library loads all types of _TIME_TYPES"
        try:
            return usual(self.oid, self.connection).load(data)
        except psycopg.DataError:
            return _UnreadableTime(bytes(data).decode())


def load_unreadable_times(context: psycopg.abc.AdaptContext) -> None:
    """Load dates and times that Python does not have, too, for ``unreadable_time``."""
    for name in _TIME_TYPES:
        context.adapters.register_loader(name, _TimeLoader)


def unreadable_time(row: Mapping[str, Any]) -> str | None:
    """Return the reason why a row with such a date or time is refused, or None."""
    for name, value in row.items():
        if any(isinstance(item, _UnreadableTime) for item in _items_of(value)):
            return f"column {name!r} contains a date or time that Python does not have: {value}"
    return None


def _items_of(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _items_of(item)
    elif isinstance(value, Range):
        yield from (value.lower, value.upper)
    else:
        yield value
