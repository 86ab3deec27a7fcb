"""The changes of an epoch as change sets, and the file that holds them.

One change set has the changes in one named state of one key group: entries put, entries deleted, or
the whole state replaced (*full*). Values are encoded before they come here, so that change sets can
be merged, restricted to a range of key groups and moved without knowing their types; keys are
compared as Python does, with ``1 == 1.0``. Merging is last-wins, so applying a change set twice, or
one that repeats older entries, changes nothing.

An object of state begins with magic, format version and checksum, before its content: ``framed``
and ``unframed`` are inverses, and do not read the content.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any
from zlib import crc32

import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.layouts.state import (
    EVERYWHERE,
    STATE_FILE_MAGIC,
    STATE_FILE_VERSION,
    ChangeSet,
)
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.errors import StateFileError

_RAW_LIST = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ENCODER = msgspec.msgpack.Encoder()
_KEYS = AnyCodec()


_CHANGE_SETS = msgspec.msgpack.Decoder(prepare_type(list[ChangeSet]))
EMPTY_ARRAY = msgspec.Raw(b"\x90")


def make_change_set(
    group: int,
    name: str,
    keys: bytes,
    values: bytes,
    *,
    deleted: bytes | None = None,
    is_full: bool = False,
) -> ChangeSet:
    """Build a change set from encoded arrays."""
    gone = EMPTY_ARRAY if deleted is None else msgspec.Raw(deleted)
    return ChangeSet(group, name, is_full, msgspec.Raw(keys), msgspec.Raw(values), gone)


def divided_change_sets(
    name: str,
    put: tuple[Sequence[int], Sequence[msgspec.Raw], Sequence[msgspec.Raw]],
    gone: tuple[Sequence[int], Sequence[msgspec.Raw]],
) -> list[ChangeSet]:
    """Build the change sets of one state, in the order of key groups.

    Args:
        name: Name of the state.
        put: Key groups, encoded keys and encoded values of the entries that are there.
        gone: Key groups and encoded keys of the entries that are gone.
    """
    nothing = (EMPTY_ARRAY, EMPTY_ARRAY)
    there, deleted = dict(_by_group(*put)), dict(_by_group(*gone))
    return [
        ChangeSet(group, name, False, *there.get(group, nothing), *deleted.get(group, nothing[:1]))
        for group in sorted(there.keys() | deleted.keys())
    ]


def _by_group(
    groups: Sequence[int], *columns: Sequence[msgspec.Raw]
) -> Iterator[tuple[int, tuple[msgspec.Raw, ...]]]:
    """Yield each key group with its encoded columns, entries in their order."""
    if not groups:
        return
    # hot path: 90 ns an entry, with the columns put in order by loops in C.
    order = sorted(range(len(groups)), key=groups.__getitem__)
    in_order = [*map(groups.__getitem__, order)]
    ordered = [[*map(column.__getitem__, order)] for column in columns]
    start, encode = 0, _ENCODER.encode
    while start < len(order):
        group = in_order[start]
        part = slice(start, bisect_right(in_order, group, start))
        start = part.stop
        yield group, tuple(msgspec.Raw(encode(column[part])) for column in ordered)


def emptied_change_set(group: int, name: str) -> ChangeSet:
    """Return the change set that removes all entries of a state."""
    return ChangeSet(group, name, True, EMPTY_ARRAY, EMPTY_ARRAY, EMPTY_ARRAY)


def encode_change_sets(change_sets: Sequence[ChangeSet]) -> bytes:
    """Return a whole state file: magic, format version, checksum, change sets."""
    return frame(STATE_FILE_MAGIC, STATE_FILE_VERSION, _ENCODER.encode(change_sets))


def decode_change_sets(
    data: bytes, *, path: str, operator: str, groups: Collection[int] | None = None
) -> list[ChangeSet]:
    """Read a state file, for some key groups (None: all) and ``EVERYWHERE``.

    Raises:
        StateFileError: cut, changed, or of another format version.
    """
    body = unframe(
        data, STATE_FILE_MAGIC, STATE_FILE_VERSION,
        path=path, operator=operator, foreign="it is not a state file",
    )  # fmt: skip
    change_sets = _CHANGE_SETS.decode(body)
    if groups is None:
        return change_sets
    return [s for s in change_sets if s.group in groups or s.group == EVERYWHERE]


def merge_change_sets(files: Iterable[Sequence[ChangeSet]]) -> list[ChangeSet]:
    """Fold the change sets of files, oldest first, into one list with equal effect.

    Tombstones are kept unless a full change set below them makes them needless.
    """
    merged: dict[tuple[int, str], _Merged] = {}
    for change_sets in files:
        for change_set in change_sets:
            identity = (change_set.group, change_set.name)
            if change_set.is_full or identity not in merged:
                merged[identity] = _Merged(is_full=change_set.is_full)
            merged[identity].add(change_set)
    return [merged[identity].change_set(*identity) for identity in sorted(merged)]


def full_change_sets(change_sets: Iterable[ChangeSet]) -> list[ChangeSet]:
    """Return merged change sets of all files as full change sets, for a base."""
    return [
        make_change_set(s.group, s.name, bytes(s.keys), bytes(s.values), is_full=True)
        for s in change_sets
        if s.keys != EMPTY_ARRAY
    ]


class _Merged:
    """The entries of a state and group while files are folded, as bytes by key."""

    __slots__ = ("deleted", "entries", "is_full")

    def __init__(self, *, is_full: bool) -> None:
        self.is_full = is_full
        self.entries: dict[Any, tuple[msgspec.Raw, msgspec.Raw]] = {}
        self.deleted: dict[Any, msgspec.Raw] = {}

    def add(self, change_set: ChangeSet) -> None:
        pairs = zip(
            _RAW_LIST.decode(change_set.keys), _RAW_LIST.decode(change_set.values), strict=True
        )
        for key, pair in zip(_keys_in(change_set.keys), pairs, strict=True):
            self.entries[key] = pair
            self.deleted.pop(key, None)
        for key, raw in zip(
            _keys_in(change_set.deleted), _RAW_LIST.decode(change_set.deleted), strict=True
        ):
            self.entries.pop(key, None)
            if not self.is_full:
                self.deleted[key] = raw

    def change_set(self, group: int, name: str) -> ChangeSet:
        return make_change_set(
            group,
            name,
            _ENCODER.encode([key for key, _ in self.entries.values()]),
            _ENCODER.encode([value for _, value in self.entries.values()]),
            deleted=_ENCODER.encode(list(self.deleted.values())),
            is_full=self.is_full,
        )


def _keys_in(keys: msgspec.Raw) -> list[Any]:
    return _KEYS.decode_list(bytes(keys))


_HEAD_BYTES = 10


def frame(magic: bytes, version: int, body: bytes) -> bytes:
    """Return framed content: 4 bytes of magic, u16 version, u32 CRC-32, little-endian."""
    return b"".join((magic, version.to_bytes(2, "little"), crc32(body).to_bytes(4, "little"), body))


def unframe(
    data: bytes, magic: bytes, version: int, *, path: str, operator: str, foreign: str
) -> memoryview:
    """Return the content of an object.

    Args:
        data: The object.
        magic: The bytes with which it must begin.
        version: The format version that is read.
        path: For errors.
        operator: For errors.
        foreign: The reason in the error when it begins with other bytes.

    Raises:
        StateFileError: cut, changed, foreign, or of another format version.
    """
    if len(data) < _HEAD_BYTES or not data.startswith(magic):
        raise StateFileError(path=path, operator=operator, reason=foreign)
    found = int.from_bytes(data[4:6], "little")
    if found != version:
        reason = f"format version {found}, but this runtime supports {version}"
        raise StateFileError(path=path, operator=operator, reason=reason)
    body = memoryview(data)[_HEAD_BYTES:]
    if crc32(body) != int.from_bytes(data[6:10], "little"):
        raise StateFileError(path=path, operator=operator, reason="the checksum does not match")
    return body
