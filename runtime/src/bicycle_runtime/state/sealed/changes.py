"""The changes of an epoch as sections, and the file that holds them.

One section is what changed in one named state of one key group: entries put, entries deleted, or
the whole state replaced (*full*). Values are encoded before they come here, so that sections can
be merged, restricted to a range of key groups and moved without knowing their types; keys are
compared as Python does, where ``1 == 1.0``. Merging is last-wins, so applying a section twice,
or one that repeats older entries, changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.sealed.framing import framed, unframed

__all__ = [
    "EVERYWHERE",
    "Section",
    "decode_sections",
    "emptied_section",
    "encode_sections",
    "full_sections",
    "make_section",
    "merge_sections",
]

# Stands for the key group of what every subtask has a copy of: it is read by all of them.
EVERYWHERE = -1

_MAGIC = b"BICD"
_FORMAT_VERSION = 1

_RAW_LIST = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ENCODER = msgspec.msgpack.Encoder()
_KEYS = AnyCodec()


class Section(msgspec.Struct, array_like=True, frozen=True):
    """Changes of the state ``name`` in key group ``group``.

    ``keys``, ``values`` and ``deleted`` are MessagePack arrays (``keys[i]`` belongs to
    ``values[i]``); ``is_full`` means that entries which are not listed are gone.
    """

    group: int
    name: str
    is_full: bool
    keys: msgspec.Raw
    values: msgspec.Raw
    deleted: msgspec.Raw


_SECTIONS = msgspec.msgpack.Decoder(list[Section])
EMPTY_ARRAY = msgspec.Raw(b"\x90")


def make_section(
    group: int,
    name: str,
    keys: bytes,
    values: bytes,
    *,
    deleted: bytes | None = None,
    is_full: bool = False,
) -> Section:
    """Build a section from encoded arrays."""
    gone = EMPTY_ARRAY if deleted is None else msgspec.Raw(deleted)
    return Section(group, name, is_full, msgspec.Raw(keys), msgspec.Raw(values), gone)


def emptied_section(group: int, name: str) -> Section:
    """Build the section that says: nothing is left of the state."""
    return Section(group, name, True, EMPTY_ARRAY, EMPTY_ARRAY, EMPTY_ARRAY)


def encode_sections(sections: Sequence[Section]) -> bytes:
    """Return a whole state file: magic, format version, checksum, sections."""
    return framed(_MAGIC, _FORMAT_VERSION, _ENCODER.encode(sections))


def decode_sections(
    data: bytes, *, path: str, operator: str, groups: Collection[int] | None = None
) -> list[Section]:
    """Read a state file, keeping only the key groups asked for (None: all) and ``EVERYWHERE``.

    Raises:
        StateFileError: cut, changed, or of another format version.
    """
    body = unframed(
        data, _MAGIC, _FORMAT_VERSION,
        path=path, operator=operator, foreign="it is not a state file",
    )  # fmt: skip
    sections = _SECTIONS.decode(body)
    if groups is None:
        return sections
    return [s for s in sections if s.group in groups or s.group == EVERYWHERE]


def merge_sections(files: Iterable[Sequence[Section]]) -> list[Section]:
    """Fold the sections of several files, oldest first, into one list with the same effect.

    Tombstones are kept unless a full section below them makes them needless.
    """
    merged: dict[tuple[int, str], _Merged] = {}
    for sections in files:
        for section in sections:
            place = (section.group, section.name)
            if section.is_full or place not in merged:
                merged[place] = _Merged(is_full=section.is_full)
            merged[place].add(section)
    return [merged[place].section(*place) for place in sorted(merged)]


def full_sections(sections: Iterable[Section]) -> list[Section]:
    """Return what ``merge_sections`` made of all files as what is left of each, for a base."""
    return [
        make_section(s.group, s.name, bytes(s.keys), bytes(s.values), is_full=True)
        for s in sections
        if s.keys != EMPTY_ARRAY
    ]


class _Merged:
    """Entries of one state of one group while files are folded: encoded key and value by key."""

    __slots__ = ("deleted", "entries", "is_full")

    def __init__(self, *, is_full: bool) -> None:
        self.is_full = is_full
        self.entries: dict[Any, tuple[msgspec.Raw, msgspec.Raw]] = {}
        self.deleted: dict[Any, msgspec.Raw] = {}

    def add(self, section: Section) -> None:
        pairs = zip(_RAW_LIST.decode(section.keys), _RAW_LIST.decode(section.values), strict=True)
        for key, pair in zip(_keys_in(section.keys), pairs, strict=True):
            self.entries[key] = pair
            self.deleted.pop(key, None)
        for key, raw in zip(
            _keys_in(section.deleted), _RAW_LIST.decode(section.deleted), strict=True
        ):
            self.entries.pop(key, None)
            if not self.is_full:
                self.deleted[key] = raw

    def section(self, group: int, name: str) -> Section:
        return make_section(
            group,
            name,
            _ENCODER.encode([key for key, _ in self.entries.values()]),
            _ENCODER.encode([value for _, value in self.entries.values()]),
            deleted=_ENCODER.encode(list(self.deleted.values())),
            is_full=self.is_full,
        )


def _keys_in(keys: msgspec.Raw) -> list[Any]:
    return _KEYS.decode_list(bytes(keys))
