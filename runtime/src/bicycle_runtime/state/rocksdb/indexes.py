"""Entries that follow from sealed ones, and lie in the space beside them to be found in an order.

An index is part of the space only: state files know nothing of it. It is kept up with whatever
sections are put in, and a mark in the space says that it is complete. Where the mark is missing,
as in what an earlier version or other code has written, it is made again from the sections. It may
hold entries that are out of date, so the code that finds one looks at what it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import msgspec

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.records.keys import encode_key
from bicycle_runtime.state.memory.due import Spot
from bicycle_runtime.state.memory.space import TimerKind
from bicycle_runtime.state.rocksdb.places import group_start, index_start, key_bytes, raw_list
from bicycle_runtime.state.sealed.changes import Section
from bicycle_sdk.state.descriptors import TimeDomain

__all__ = [
    "INDEX_MARK",
    "ROWS",
    "DueIndex",
    "Index",
    "RowIndex",
    "TimerIndex",
    "due_order",
    "names_of",
    "row_start",
    "spot_in",
    "timer_in",
    "timer_order",
]

INDEX_MARK = "#"  # Begins the marks of indexes, and their names.
ROWS = "#rows"
_KEYS = AnyCodec()
_ENCODE = msgspec.msgpack.Encoder().encode
_ARRAY_OF_ONE, _ARRAY_OF_THREE = b"\x91", b"\x93"
Entry = tuple[bytes, bytes]


class Index(Protocol):
    """What is kept for some sections. ``mark`` names it with what its entries go by.

    ``prefix`` begins the names of the sections that it may be about.
    """

    mark: str
    prefix: str

    def put(self, section: Section) -> Iterable[Entry]:
        """Return places and data for the entries that a section puts."""

    def gone(self, section: Section) -> Iterable[bytes]:
        """Return places for the entries that a section deletes, where they can be known."""


class TimerIndex:
    """Timers by time, then by key."""

    mark = "#timers"
    prefix = "$timers."

    def put(self, section: Section) -> Iterator[Entry]:
        start = index_start(_timer_name(section.name))
        for cell, raw in zip(_decoded(section.keys), raw_list(section.keys), strict=True):
            yield start + timer_order(*cell), bytes(raw)

    def gone(self, section: Section) -> Iterator[bytes]:
        start = index_start(_timer_name(section.name))
        for cell in _decoded(section.deleted):
            yield start + timer_order(*cell)


class DueIndex:
    """When the windows in cells are due, by time, place, key group and key.

    Args:
        prefix: Begins the names of the sections of the cells.
        decoded: Returns keys and values of a section.
        moments: Gives the times that a value waits for.
        rules: What ``moments`` goes by, besides the value.
    """

    def __init__(
        self, prefix: str, decoded: Callable[[Section], Iterable[tuple[Any, Any]]],
        moments: Callable[[Any], Iterable[tuple[TimeDomain, int]]], rules: str,
    ) -> None:  # fmt: skip
        self.mark = f"#due:{rules}"
        self.prefix = prefix
        self._decoded = decoded
        self._moments = moments

    def put(self, section: Section) -> Iterator[Entry]:
        place, group = int(section.name[len(self.prefix) :]), section.group
        head = _ARRAY_OF_THREE + _ENCODE(place) + _ENCODE(group)
        for (key, value), raw in zip(self._decoded(section), raw_list(section.keys), strict=True):
            for domain, time_ms in self._moments(value):
                start = index_start(names_of("due", domain))
                yield start + due_order(time_ms, (place, group, key)), head + raw

    def gone(self, section: Section) -> Iterable[bytes]:  # noqa: ARG002  # what was due is not told
        return ()


class RowIndex:
    """In which epochs the chunks lie that hold the records of a key at a place."""

    mark = ROWS
    prefix = "r"

    def put(self, section: Section) -> Iterator[Entry]:
        return ((place, b"") for place in self._places(section, section.keys))

    def gone(self, section: Section) -> Iterator[bytes]:
        return self._places(section, section.deleted)

    def _places(self, section: Section, keys: Any) -> Iterator[bytes]:
        place, epoch = map(int, section.name[len(self.prefix) :].split("#"))
        end = encode_key(epoch)
        for key in _decoded(keys):
            yield row_start(section.group, place, key) + end


def names_of(base: str, domain: TimerKind) -> str:
    """Return the name of an index of one domain of time, or of one kind of timers."""
    return f"{INDEX_MARK}{base}.{domain}"


def timer_order(key: Any, time_ms: int) -> bytes:
    """Return what sorts timers: by time, then by key."""
    return encode_key(time_ms) + key_bytes(key)


def timer_in(data: bytes) -> tuple[Any, int]:
    """Return key and time of a timer from an entry."""
    cell: tuple[Any, int] = _KEYS.decode_list(_ARRAY_OF_ONE + data)[0]
    return cell


def due_order(time_ms: int, spot: Spot) -> bytes:
    """Return what sorts due windows: by time, place, key group and key."""
    place, group, key = spot
    return b"".join((encode_key(time_ms), encode_key(place), group_start(group), key_bytes(key)))


def spot_in(data: bytes) -> Spot:
    """Return place, key group and key from an entry."""
    place, group, key = _KEYS.decode_list(data)
    return place, group, key


def row_start(group: int, place: int, key: Any) -> bytes:
    """Return what the places of the epochs begin with that hold records of a key at a place."""
    return b"".join((index_start(ROWS), group_start(group), encode_key(place), key_bytes(key)))


def _timer_name(section_name: str) -> str:
    return INDEX_MARK + section_name.removeprefix("$")


def _decoded(keys: Any) -> list[Any]:
    return _KEYS.decode_list(bytes(keys))
