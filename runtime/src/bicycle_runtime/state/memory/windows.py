"""State of windows: cells (one value per place, key group and key) and the records that are kept.

A *place* is an int that the operator chooses: the start of a window, or 0 where windows belong to
keys. Cells are written whole when touched. Records are written in *chunks*: those of one epoch and
place, so that a long window is not written again each time a record joins it. What was never
sealed leaves no trace when it is dropped. Nothing here knows when windows fire.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.sealed.changes import Section, emptied_section, make_section
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_runtime.state.values.forms import DeclaredState
from bicycle_runtime.state.values.reading import StateBook
from bicycle_runtime.state.values.schemas import describe

__all__ = ["RECORDS", "Cells", "Records", "WindowTable", "extend_row", "joined_row"]

_KEYS = AnyCodec()
RECORDS = "r"  # First letter of the names of sections of records, as that of cells.
Row = tuple[list[int], list[Any]]  # times and values of records, in the order of arrival
Settings = tuple[tuple[str, Any], ...]  # Those of the window that give stored values their meaning.


class Cells:
    """Values by place, key group and key. The operator reads ``places`` and reports changes.

    Args:
        prefix: First letter of the names of its sections; names are part of the state format.
        value_type: Declared type of the values, None when unknown.
        dump: Turns a value into what is stored; ``load`` is its inverse.
        load: See ``dump``.
    """

    def __init__(
        self,
        prefix: str,
        value_type: Any = None,
        *,
        dump: Callable[[Any], Any] | None = None,
        load: Callable[[Any], Any] | None = None,
    ) -> None:
        self.prefix = prefix
        self._value_type = value_type
        self._codec = ValueCodec(value_type)
        self._dump, self._load = dump, load
        # By place and key group; where the values themselves lie is told by ``contents``.
        self.places: dict[int, dict[int, Any]] = {}
        self._touched: dict[tuple[int, int], dict[Any, None]] = {}
        self._sealed: set[tuple[int, int]] = set()

    def declared(self, settings: Settings) -> DeclaredState:
        """Return the state that the cells are, of a window with these settings."""
        return DeclaredState(
            name="$windows",
            kind=f"windows-{self.prefix}",
            schema=describe(self._value_type),
            settings=settings,
            place="$windows",
        )

    def open(self, book: StateBook, settings: Settings) -> None:
        """Read what is sealed in any form that the book knows."""
        self._codec = book.open(self.declared(settings), self._value_type, None).codec

    def begin(self) -> None:
        """Get ready to be read. Called when the table stands at a sealed state."""

    def group(self, place: int, group: int) -> dict[Any, Any]:
        """Return the values of a key group at a place, to be read and changed."""
        groups = self.places.get(place)
        if groups is None:
            groups = self.places[place] = {}
        found: dict[Any, Any] | None = groups.get(group)
        if found is None:
            found = groups[group] = {}
        return found

    def contents(
        self,
        place: int,
        group: int,
        keys: Collection[Any] | None = None,  # noqa: ARG002  # all are at hand
    ) -> Mapping[Any, Any]:
        """Return the values of a key group at a place, to be read.

        Args:
            place: The place.
            group: The key group.
            keys: Those of other keys need not be there; None for all.
        """
        found: Mapping[Any, Any] = self.places.get(place, {}).get(group, {})
        return found

    def find(self, place: int, group: int, key: Any) -> Any:
        """Return a value, None when there is none."""
        return self.places.get(place, {}).get(group, {}).get(key)

    def all(self) -> Iterator[tuple[int, int, Any, Any]]:
        """Yield place, key group, key and value of all cells."""
        for place, groups in self.places.items():
            for group in groups:
                for key, value in self.contents(place, group).items():
                    yield place, group, key, value

    def touch(self, place: int, group: int, keys: Iterable[Any]) -> None:
        """Take note that the values of some keys were put, changed in place, or removed."""
        self._touched.setdefault((place, group), {}).update(dict.fromkeys(keys))

    def remove(self, place: int, group: int, key: Any) -> None:
        """Forget the value of a key."""
        self.group(place, group).pop(key, None)
        self.touch(place, group, (key,))

    def drop(self, place: int) -> None:
        """Forget all values of a place."""
        for group, values in self.places.pop(place, {}).items():
            self.touch(place, group, values)

    def sections(self) -> Iterator[Section]:
        """Yield what changed since the last call."""
        for (place, group), keys in sorted(self._touched.items(), key=lambda item: item[0]):
            values = self.places.get(place, {}).get(group)
            if values:
                yield self._section(place, group, values, keys)
                self._sealed.add((place, group))
            else:
                self._forget(place, group)
                if (place, group) in self._sealed:
                    self._sealed.discard((place, group))
                    yield emptied_section(group, self._name(place))
        self._touched.clear()

    def apply(self, section: Section) -> None:
        """Put a sealed section in."""
        place = int(section.name[1:])
        values = self.group(place, section.group)
        if section.is_full:
            values.clear()
        values.update(self.decoded(section))
        for key in _KEYS.decode_list(bytes(section.deleted)):
            values.pop(key, None)
        self._sealed.add((place, section.group))
        if not values:
            self._forget(place, section.group)
            self._sealed.discard((place, section.group))

    def decoded(self, section: Section) -> Iterator[tuple[Any, Any]]:
        """Return the keys and values of a sealed section."""
        loaded = self._codec.decode_list(section.values, section.keys)
        if self._load is not None:
            loaded = list(map(self._load, loaded))
        return zip(_KEYS.decode_list(bytes(section.keys)), loaded, strict=True)

    def _name(self, place: int) -> str:
        return f"{self.prefix}{place}"

    def _forget(self, place: int, group: int) -> None:
        groups = self.places.get(place)
        if groups is not None:
            groups.pop(group, None)
            if not groups:
                del self.places[place]

    def _section(
        self, place: int, group: int, values: dict[Any, Any], keys: Iterable[Any],
        *, is_full: bool = False,
    ) -> Section:  # fmt: skip
        put = [key for key in keys if key in values]
        gone = [key for key in keys if key not in values]
        stored = [values[key] for key in put]
        if self._dump is not None:
            stored = list(map(self._dump, stored))
        return make_section(
            group,
            self._name(place),
            _KEYS.encode_list(put),
            self._codec.encode_list(stored),
            deleted=_KEYS.encode_list(gone) if gone and not is_full else None,
            is_full=is_full,
        )


class Records:
    """Kept records by place, key group and key: times and values in chunks by epoch.

    Args:
        value_type: Declared type of the records, None when unknown.
    """

    def __init__(self, value_type: Any = None) -> None:
        self._row_type = None if value_type is None else tuple[list[int], list[value_type]]
        self._codec = ValueCodec(self._row_type)
        self.epoch = 0
        # place -> key group -> key -> epoch -> row
        self.places: dict[int, dict[int, Any]] = {}
        self._touched: dict[tuple[int, int, int], dict[Any, None]] = {}
        self._sealed: dict[tuple[int, int], set[int]] = {}

    def declared(self, settings: Settings) -> DeclaredState:
        """Return the state that the records are, of a window with these settings."""
        return DeclaredState(
            name="$records",
            kind="records",
            schema=describe(self._row_type),
            settings=settings,
            place="$records",
        )

    def open(self, book: StateBook, settings: Settings) -> None:
        """Read what is sealed in any form that the book knows."""
        self._codec = book.open(self.declared(settings), self._row_type, None).codec

    def begin(self) -> None:
        """Get ready to be read. Called when the table stands at a sealed state."""

    def add(self, place: int, group: int, key: Any, row: Row) -> None:
        """Add records of a key, in the order of arrival."""
        chunks = self.places.setdefault(place, {}).setdefault(group, {}).setdefault(key, {})
        extend_row(chunks, self.epoch, row)
        self._touched.setdefault((place, group, self.epoch), {})[key] = None

    def row(self, place: int, group: int, key: Any) -> Row:
        """Return all records of a key, in the order of arrival. They are a copy."""
        return joined_row(self.places.get(place, {}).get(group, {}).get(key, {}))

    def rows(self, place: int, group: int, keys: Collection[Any] | None = None) -> dict[Any, Row]:
        """Return all records of a key group at a place by key; of some keys, or of all."""
        kept = self.places.get(place, {}).get(group, ())
        return {key: self.row(place, group, key) for key in kept if keys is None or key in keys}

    def replace(self, place: int, group: int, key: Any, row: Row) -> None:
        """Keep these records of a key and no others."""
        chunks = self.places.get(place, {}).get(group, {}).pop(key, {})
        for epoch in chunks:
            self._touched.setdefault((place, group, epoch), {})[key] = None
        if row[0]:
            self.add(place, group, key, row)

    def drop(self, place: int) -> None:
        """Forget all records of a place."""
        self.places.pop(place, None)
        for touched_place, group, epoch in [part for part in self._touched if part[0] == place]:
            del self._touched[touched_place, group, epoch]
        for sealed_place, group in [part for part in self._sealed if part[0] == place]:
            for epoch in self._sealed[sealed_place, group]:
                self._touched[place, group, epoch] = {}

    def sections(self) -> Iterator[Section]:
        """Yield what changed since the last call."""
        for (place, group, epoch), keys in sorted(self._touched.items(), key=lambda item: item[0]):
            kept = self.places.get(place, {}).get(group, {})
            put = [key for key in keys if epoch in kept.get(key, ())]
            gone = [key for key in keys if epoch not in kept.get(key, ())]
            sealed = self._sealed.setdefault((place, group), set())
            if not keys:
                sealed.discard(epoch)
                yield emptied_section(group, self._name(place, epoch))
            elif put or epoch in sealed:
                sealed.add(epoch)
                rows = {key: kept[key][epoch] for key in put}
                yield self._chunk_section((place, group, epoch), rows, gone)
            if not sealed:
                del self._sealed[place, group]
        self._touched.clear()

    def apply(self, section: Section) -> None:
        """Put a sealed section in."""
        place, epoch = self._place_in(section.name)
        kept = self.places.setdefault(place, {}).setdefault(section.group, {})
        gone = list(kept) if section.is_full else _KEYS.decode_list(bytes(section.deleted))
        for key in gone:
            chunks = kept.get(key)
            if chunks is not None:
                chunks.pop(epoch, None)
                if not chunks:
                    del kept[key]
        rows = self._codec.decode_list(section.values, section.keys)
        for key, row in zip(_KEYS.decode_list(bytes(section.keys)), rows, strict=True):
            kept.setdefault(key, {})[epoch] = (list(row[0]), list(row[1]))
        self._sealed.setdefault((place, section.group), set()).add(epoch)
        if not kept:
            del self.places[place][section.group]
            del self._sealed[place, section.group]
            if not self.places[place]:
                del self.places[place]

    @staticmethod
    def _name(place: int, epoch: int) -> str:
        return f"{RECORDS}{place}#{epoch}"

    @staticmethod
    def _place_in(section_name: str) -> tuple[int, int]:
        place, epoch = section_name[1:].split("#")
        return int(place), int(epoch)

    def _chunk_section(
        self, part: tuple[int, int, int], rows: Mapping[Any, Row], gone: Sequence[Any] = ()
    ) -> Section:
        place, group, epoch = part
        return make_section(
            group,
            self._name(place, epoch),
            _KEYS.encode_list(list(rows)),
            self._codec.encode_list(list(rows.values())),
            deleted=_KEYS.encode_list(gone) if gone else None,
        )


def extend_row(rows: dict[Any, Row], place: Any, row: Row) -> None:
    """Put records behind those of a place; there may be none yet."""
    known = rows.get(place)
    if known is None:
        rows[place] = (list(row[0]), list(row[1]))
    else:
        known[0].extend(row[0])
        known[1].extend(row[1])


def joined_row(chunks: Mapping[int, Row]) -> Row:
    """Return the records of all epochs, in order. They are a copy."""
    times: list[int] = []
    values: list[Any] = []
    for epoch in sorted(chunks):
        times += chunks[epoch][0]
        values += chunks[epoch][1]
    return times, values


class WindowTable:
    """The state of one window operator in one subtask, a ``StateTable``.

    ``generation`` grows when sealed changes are put in: what the operator derived from the table
    must then be made again.
    """

    def __init__(self, cells: Cells, records: Records, values: Cells | None = None) -> None:
        self.cells = cells
        self.values = Cells("v") if values is None else values
        self.records = records
        self.generation = 0
        self.parts: dict[str, Cells | Records] = {
            cells.prefix: cells, "v": self.values, RECORDS: records
        }  # fmt: skip

    def begin(self) -> None:
        """Get ready to be read. Called when the table stands at a sealed state."""
        for part in self.parts.values():
            part.begin()

    def open(self, book: StateBook, settings: Settings, *, keeps_records: bool) -> None:
        """Read what is sealed in any form that the book knows."""
        self.cells.open(book, settings)
        if keeps_records:
            self.records.open(book, settings)

    def declared(self, settings: Settings, *, keeps_records: bool) -> list[DeclaredState]:
        """Return the states of a window with these settings."""
        cells = self.cells.declared(settings)
        return [cells, self.records.declared(settings)] if keeps_records else [cells]

    def changes(self) -> list[Section]:
        return [*self.cells.sections(), *self.values.sections(), *self.records.sections()]

    def apply(self, sections: Iterable[Section]) -> None:
        self.generation += 1
        for section in sections:
            self.parts[section.name[0]].apply(section)
