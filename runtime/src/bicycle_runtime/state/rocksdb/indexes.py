"""Indexes: entries derived from sealed entries, for reading in another order.

An index is part of the space only: state files know nothing of it. It is updated with all change
sets that are put in, and a mark in the space means that it is complete. Without the mark, as in a
folder of an earlier version or other code, it is made again from the change sets. It may hold
entries that are out of date, so their reader checks the entry itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import msgspec

from bicycle_runtime.layouts.state import ChangeSet, TimerKind, WindowKey
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.records.keys import encode_key
from bicycle_runtime.state.rocksdb.key_layout import group_start, index_start, key_bytes, raw_list
from bicycle_sdk.state.descriptors import TimeDomain

INDEX_MARK = "#"  # Begins the marks of indexes, and their names.
ROWS = "#rows"
_KEYS = AnyCodec()
_ENCODE = msgspec.msgpack.Encoder().encode
_ARRAY_OF_ONE, _ARRAY_OF_THREE = b"\x91", b"\x93"
Entry = tuple[bytes, bytes]


class Index(Protocol):
    """An index over some change sets.

    ``mark`` is its name with the rules of its entries. ``prefix`` starts the names of its change
    sets.
    """

    mark: str
    prefix: str

    def put(self, change_set: ChangeSet) -> Iterable[Entry]:
        """Return keys and data for the entries that a change set puts."""

    def gone(self, change_set: ChangeSet) -> Iterable[bytes]:
        """Return keys for the entries that a change set deletes, where they can be known."""


class TimerIndex:
    """Timers by time, then by key."""

    mark = "#timers"
    prefix = "$timers."

    def put(self, change_set: ChangeSet) -> Iterator[Entry]:
        start = index_start(_timer_name(change_set.name))
        for entry_key, raw in zip(
            _decode_list(change_set.keys), raw_list(change_set.keys), strict=True
        ):
            yield start + timer_order(*entry_key), bytes(raw)

    def gone(self, change_set: ChangeSet) -> Iterator[bytes]:
        start = index_start(_timer_name(change_set.name))
        for entry_key in _decode_list(change_set.deleted):
            yield start + timer_order(*entry_key)


class DueIndex:
    """The due times of windows in entries, by time, namespace, key group and key.

    Args:
        prefix: Begins the names of the change sets of the entries.
        decoded: Returns keys and values of a change set.
        moments: Returns the times that a value waits for.
        rules: The parameters of ``moments``, besides the value.
    """

    def __init__(
        self, prefix: str, decoded: Callable[[ChangeSet], Iterable[tuple[Any, Any]]],
        moments: Callable[[Any], Iterable[tuple[TimeDomain, int]]], rules: str,
    ) -> None:  # fmt: skip
        self.mark = f"#due:{rules}"
        self.prefix = prefix
        self._decoded = decoded
        self._moments = moments

    def put(self, change_set: ChangeSet) -> Iterator[Entry]:
        namespace, group = int(change_set.name[len(self.prefix) :]), change_set.group
        head = _ARRAY_OF_THREE + _ENCODE(namespace) + _ENCODE(group)
        for (key, value), raw in zip(
            self._decoded(change_set), raw_list(change_set.keys), strict=True
        ):
            for domain, time_ms in self._moments(value):
                start = index_start(names_of("due", domain))
                yield start + due_order(time_ms, (namespace, group, key)), head + raw

    def gone(self, change_set: ChangeSet) -> Iterable[bytes]:  # noqa: ARG002  # past entries are not reported
        return ()


class RowIndex:
    """The epochs of the chunks that hold the records of a key in a namespace."""

    mark = ROWS
    prefix = "r"

    def put(self, change_set: ChangeSet) -> Iterator[Entry]:
        return ((namespace, b"") for namespace in self._db_keys(change_set, change_set.keys))

    def gone(self, change_set: ChangeSet) -> Iterator[bytes]:
        return self._db_keys(change_set, change_set.deleted)

    def _db_keys(self, change_set: ChangeSet, keys: Any) -> Iterator[bytes]:
        namespace, epoch = map(int, change_set.name[len(self.prefix) :].split("#"))
        end = encode_key(epoch)
        for key in _decode_list(keys):
            yield row_start(change_set.group, namespace, key) + end


def names_of(base: str, domain: TimerKind) -> str:
    """Return the name of an index of one domain of time, or of one kind of timers."""
    return f"{INDEX_MARK}{base}.{domain}"


def timer_order(key: Any, time_ms: int) -> bytes:
    """Return the sort key of a timer: time, then key."""
    return encode_key(time_ms) + key_bytes(key)


def timer_in(data: bytes) -> tuple[Any, int]:
    """Return key and time of a timer from an entry."""
    entry_key: tuple[Any, int] = _KEYS.decode_list(_ARRAY_OF_ONE + data)[0]
    return entry_key


def due_order(time_ms: int, window_key: WindowKey) -> bytes:
    """Return the sort key of a due window: time, namespace, key group and key."""
    namespace, group, key = window_key
    return b"".join(
        (encode_key(time_ms), encode_key(namespace), group_start(group), key_bytes(key))
    )


def window_key_in(data: bytes) -> WindowKey:
    """Return key, key group and key from an entry."""
    namespace, group, key = _KEYS.decode_list(data)
    return namespace, group, key


def row_start(group: int, namespace: int, key: Any) -> bytes:
    """Return the prefix of the database keys of a key's records in a namespace."""
    return b"".join((index_start(ROWS), group_start(group), encode_key(namespace), key_bytes(key)))


def _timer_name(state_name: str) -> str:
    return INDEX_MARK + state_name.removeprefix("$")


def _decode_list(keys: Any) -> list[Any]:
    return _KEYS.decode_list(bytes(keys))
