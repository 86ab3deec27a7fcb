"""State of windows: entries per namespace, key group and key, and kept records.

A *namespace* is an int that the operator chooses: the start of a window, or 0 if windows belong to
keys. Entries are written whole when touched. Records are written in *chunks*: the records of one
epoch and namespace, so that a long window is not written again each time a record joins it.
Unsealed entries are dropped without a trace. Nothing here knows when windows fire.

``WindowTables`` is the interface of a space for window operators: the parts of which a table is
made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bicycle_runtime.layouts.state import ChangeSet
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.memory.due import DueTimes
from bicycle_runtime.state.sealed.changes import emptied_change_set, make_change_set
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_runtime.state.values.schemas import describe
from bicycle_runtime.state.values.state_metadata import DeclaredState
from bicycle_sdk.state.descriptors import TimeDomain

if TYPE_CHECKING:
    from bicycle_runtime.state.values.schema_registry import SchemaRegistry

_KEYS = AnyCodec()
RECORDS = "r"  # First letter of the names of change sets of records, as that of entries.
Row = tuple[list[int], list[Any]]  # times and values of records, in the order of arrival
Settings = tuple[tuple[str, Any], ...]  # The window's attributes that define stored values.


class WindowEntries:
    """Values by namespace, key group and key; ``namespaces`` may be read directly.

    Args:
        prefix: First letter of the names of its change sets; names are part of the state format.
        value_type: Declared type of the values, None when unknown.
        dump: Encodes a value for the storage; ``load`` is its inverse.
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
        # By namespace and key group; ``contents`` has the location of the values themselves.
        self.namespaces: dict[int, dict[int, Any]] = {}
        self._touched: dict[tuple[int, int], dict[Any, None]] = {}
        self._sealed: set[tuple[int, int]] = set()

    def declared(self, settings: Settings) -> DeclaredState:
        """Return the state that the entries are, of a window with these settings."""
        return DeclaredState(
            name="$windows",
            kind=f"windows-{self.prefix}",
            schema=describe(self._value_type),
            settings=settings,
            stored_name="$windows",
        )

    def open(self, registry: SchemaRegistry, settings: Settings) -> None:
        """Prepare to read sealed values of any schema version in the registry."""
        self._codec = registry.open(self.declared(settings), self._value_type, None).codec

    def begin(self) -> None:
        """Get ready to be read. Called when the table stands at a sealed state."""

    def group(self, namespace: int, group: int) -> dict[Any, Any]:
        """Return the values of a key group in a namespace, to be read and changed."""
        groups = self.namespaces.get(namespace)
        if groups is None:
            groups = self.namespaces[namespace] = {}
        found: dict[Any, Any] | None = groups.get(group)
        if found is None:
            found = groups[group] = {}
        return found

    def contents(
        self,
        namespace: int,
        group: int,
        keys: Collection[Any] | None = None,  # noqa: ARG002  # all are at hand
    ) -> Mapping[Any, Any]:
        """Return the values of a key group in a namespace, to be read.

        Args:
            namespace: The namespace.
            group: The key group.
            keys: Values of other keys may be absent; None for all.
        """
        found: Mapping[Any, Any] = self.namespaces.get(namespace, {}).get(group, {})
        return found

    def find(self, namespace: int, group: int, key: Any) -> Any:
        """Return a value, or None."""
        return self.namespaces.get(namespace, {}).get(group, {}).get(key)

    def all(self) -> Iterator[tuple[int, int, Any, Any]]:
        """Yield namespace, key group, key and value of all entries."""
        for namespace, groups in self.namespaces.items():
            for group in groups:
                for key, value in self.contents(namespace, group).items():
                    yield namespace, group, key, value

    def touch(self, namespace: int, group: int, keys: Iterable[Any]) -> None:
        """Take note that the values of some keys were put, changed in place, or removed."""
        self._touched.setdefault((namespace, group), {}).update(dict.fromkeys(keys))

    def remove(self, namespace: int, group: int, key: Any) -> None:
        """Forget the value of a key."""
        self.group(namespace, group).pop(key, None)
        self.touch(namespace, group, (key,))

    def drop(self, namespace: int) -> None:
        """Forget all values of a namespace."""
        for group, values in self.namespaces.pop(namespace, {}).items():
            self.touch(namespace, group, values)

    def change_sets(self) -> Iterator[ChangeSet]:
        """Yield the changes since the last call."""
        for (namespace, group), keys in sorted(self._touched.items(), key=lambda item: item[0]):
            values = self.namespaces.get(namespace, {}).get(group)
            if values:
                yield self._change_set(namespace, group, values, keys)
                self._sealed.add((namespace, group))
            else:
                forget_group(self.namespaces, namespace, group)
                if (namespace, group) in self._sealed:
                    self._sealed.discard((namespace, group))
                    yield emptied_change_set(group, self._name(namespace))
        self._touched.clear()

    def apply(self, change_set: ChangeSet) -> None:
        """Put a sealed change set in."""
        namespace = int(change_set.name[1:])
        values = self.group(namespace, change_set.group)
        if change_set.is_full:
            values.clear()
        values.update(self.decode(change_set))
        for key in _KEYS.decode_list(bytes(change_set.deleted)):
            values.pop(key, None)
        self._sealed.add((namespace, change_set.group))
        if not values:
            forget_group(self.namespaces, namespace, change_set.group)
            self._sealed.discard((namespace, change_set.group))

    def decode(self, change_set: ChangeSet) -> Iterator[tuple[Any, Any]]:
        """Return the keys and values of a sealed change set."""
        loaded = self._codec.decode_list(change_set.values, change_set.keys)
        if self._load is not None:
            loaded = list(map(self._load, loaded))
        return zip(_KEYS.decode_list(bytes(change_set.keys)), loaded, strict=True)

    def _name(self, namespace: int) -> str:
        return f"{self.prefix}{namespace}"

    def _change_set(
        self, namespace: int, group: int, values: dict[Any, Any], keys: Iterable[Any],
        *, is_full: bool = False,
    ) -> ChangeSet:  # fmt: skip
        put = [key for key in keys if key in values]
        gone = [key for key in keys if key not in values]
        stored = [values[key] for key in put]
        if self._dump is not None:
            stored = list(map(self._dump, stored))
        return make_change_set(
            group,
            self._name(namespace),
            _KEYS.encode_list(put),
            self._codec.encode_list(stored),
            deleted=_KEYS.encode_list(gone) if gone and not is_full else None,
            is_full=is_full,
        )


class Records:
    """Kept records by namespace, key group and key, in chunks by epoch.

    Args:
        value_type: Declared type of the records, None when unknown.
    """

    def __init__(self, value_type: Any = None) -> None:
        self._row_type = None if value_type is None else tuple[list[int], list[value_type]]
        self._codec = ValueCodec(self._row_type)
        self.epoch = 0
        # namespace -> key group -> key -> epoch -> row
        self.namespaces: dict[int, dict[int, Any]] = {}
        # By key, whether the chunk was sealed before; an empty dict for a chunk that was dropped.
        self._touched: dict[tuple[int, int, int], dict[Any, Any]] = {}
        # By namespace and key group, how many keys have records in each sealed epoch.
        self._sealed: dict[tuple[int, int], dict[int, int]] = {}

    def declared(self, settings: Settings) -> DeclaredState:
        """Return the state that the records are, of a window with these settings."""
        return DeclaredState(
            name="$records",
            kind="records",
            schema=describe(self._row_type),
            settings=settings,
            stored_name="$records",
        )

    def open(self, registry: SchemaRegistry, settings: Settings) -> None:
        """Prepare to read sealed values of any schema version in the registry."""
        self._codec = registry.open(self.declared(settings), self._row_type, None).codec

    def begin(self) -> None:
        """Get ready to be read. Called when the table stands at a sealed state."""

    def add(self, namespace: int, group: int, key: Any, row: Row) -> None:
        """Add records of a key, in the order of arrival."""
        chunks = self.namespaces.setdefault(namespace, {}).setdefault(group, {}).setdefault(key, {})
        touched = self._touched.setdefault((namespace, group, self.epoch), {})
        touched.setdefault(key, self.epoch in chunks)
        extend_row(chunks, self.epoch, row)

    def row(self, namespace: int, group: int, key: Any) -> Row:
        """Return all records of a key, in the order of arrival. They are a copy."""
        return joined_row(self.namespaces.get(namespace, {}).get(group, {}).get(key, {}))

    def rows(
        self, namespace: int, group: int, keys: Collection[Any] | None = None
    ) -> dict[Any, Row]:
        """Return the records of a key group in a namespace by key, of some or all keys."""
        kept = self.namespaces.get(namespace, {}).get(group, ())
        return {key: self.row(namespace, group, key) for key in kept if keys is None or key in keys}

    def replace(self, namespace: int, group: int, key: Any, row: Row) -> None:
        """Keep these records of a key and no others."""
        kept = self.namespaces.get(namespace, {}).get(group, {})
        for epoch in kept.pop(key, ()):
            self._touched.setdefault((namespace, group, epoch), {}).setdefault(key, True)
        if row[0]:
            self.add(namespace, group, key, row)
        elif not kept:
            forget_group(self.namespaces, namespace, group)

    def drop(self, namespace: int) -> None:
        """Forget all records of a namespace."""
        for group in self.namespaces.pop(namespace, ()):
            self._touched.pop((namespace, group, self.epoch), None)
            for epoch in self._sealed.get((namespace, group), ()):
                self._touched[namespace, group, epoch] = {}

    def change_sets(self) -> Iterator[ChangeSet]:
        """Yield the changes since the last call."""
        for (namespace, group, epoch), keys in sorted(
            self._touched.items(), key=lambda item: item[0]
        ):
            kept = self.namespaces.get(namespace, {}).get(group, {})
            rows = {key: kept[key][epoch] for key in keys if epoch in kept.get(key, ())}
            gone = [key for key, was_sealed in keys.items() if was_sealed and key not in rows]
            count = sum(not keys[key] for key in rows) - len(gone)
            if not keys:
                count = -self._sealed[namespace, group][epoch]
                yield emptied_change_set(group, self._name(namespace, epoch))
            elif rows or gone:
                yield self._chunk_change_set((namespace, group, epoch), rows, gone)
            self._count((namespace, group), epoch, count)
        self._touched.clear()

    def apply(self, change_set: ChangeSet) -> None:
        """Put a sealed change set in."""
        namespace, epoch = self._namespace_in(change_set.name)
        kept = self.namespaces.setdefault(namespace, {}).setdefault(change_set.group, {})
        gone = list(kept) if change_set.is_full else _KEYS.decode_list(bytes(change_set.deleted))
        count = 0
        for key in gone:
            chunks = kept.get(key, {})
            count -= chunks.pop(epoch, None) is not None
            if not chunks:
                kept.pop(key, None)
        rows = self._codec.decode_list(change_set.values, change_set.keys)
        for key, row in zip(_KEYS.decode_list(bytes(change_set.keys)), rows, strict=True):
            chunks = kept.setdefault(key, {})
            count += epoch not in chunks
            chunks[epoch] = (list(row[0]), list(row[1]))
        self._count((namespace, change_set.group), epoch, count)
        if not kept:
            forget_group(self.namespaces, namespace, change_set.group)

    def _count(self, part: tuple[int, int], epoch: int, more: int) -> None:
        """Take note that more or fewer keys have records in a sealed epoch."""
        counts = self._sealed.setdefault(part, {})
        counts[epoch] = counts.get(epoch, 0) + more
        if not counts[epoch]:
            del counts[epoch]
        if not counts:
            del self._sealed[part]

    @staticmethod
    def _name(namespace: int, epoch: int) -> str:
        return f"{RECORDS}{namespace}#{epoch}"

    @staticmethod
    def _namespace_in(state_name: str) -> tuple[int, int]:
        namespace, epoch = state_name[1:].split("#")
        return int(namespace), int(epoch)

    def _chunk_change_set(
        self, part: tuple[int, int, int], rows: Mapping[Any, Row], gone: Sequence[Any] = ()
    ) -> ChangeSet:
        namespace, group, epoch = part
        return make_change_set(
            group,
            self._name(namespace, epoch),
            _KEYS.encode_list(list(rows)),
            self._codec.encode_list(list(rows.values())),
            deleted=_KEYS.encode_list(gone) if gone else None,
        )


def forget_group(namespaces: dict[int, dict[int, Any]], namespace: int, group: int) -> None:
    """Remove a key group from a namespace, and the namespace with its last one."""
    groups = namespaces.get(namespace, {})
    groups.pop(group, None)
    if not groups:
        namespaces.pop(namespace, None)


def extend_row(rows: dict[Any, Row], namespace: Any, row: Row) -> None:
    """Append records to the row of a namespace, which may be new."""
    known = rows.get(namespace)
    if known is None:
        rows[namespace] = (list(row[0]), list(row[1]))
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

    ``generation`` grows when sealed changes are put in: the operator must then derive its data from
    the table again.
    """

    def __init__(
        self, entries: WindowEntries, records: Records, values: WindowEntries | None = None
    ) -> None:
        self.entries = entries
        self.values = WindowEntries("v") if values is None else values
        self.records = records
        self.generation = 0
        self.parts: dict[str, WindowEntries | Records] = {
            entries.prefix: entries,
            "v": self.values,
            RECORDS: records,
        }

    def begin(self) -> None:
        """Get ready to be read. Called when the table stands at a sealed state."""
        for part in self.parts.values():
            part.begin()

    def open(self, registry: SchemaRegistry, settings: Settings, *, keeps_records: bool) -> None:
        """Prepare to read sealed values of any schema version in the registry."""
        self.entries.open(registry, settings)
        if keeps_records:
            self.records.open(registry, settings)

    def declared(self, settings: Settings, *, keeps_records: bool) -> list[DeclaredState]:
        """Return the states of a window with these settings."""
        entries = self.entries.declared(settings)
        return [entries, self.records.declared(settings)] if keeps_records else [entries]

    def changes(self) -> list[ChangeSet]:
        return [
            *self.entries.change_sets(),
            *self.values.change_sets(),
            *self.records.change_sets(),
        ]

    def key_count(self) -> int:
        """Return how many keys are in windows that are open, each window counted."""
        kept = (groups for part in self.parts.values() for groups in part.namespaces.values())
        return sum(len(values) for groups in kept for values in groups.values())

    def apply(self, change_sets: Iterable[ChangeSet]) -> None:
        self.generation += 1
        for change_set in change_sets:
            self.parts[change_set.name[0]].apply(change_set)


Moments = Callable[[Any], Iterable[tuple[TimeDomain, int]]]  # The times that an entry waits for.


class WindowTables(ABC):
    """Makes the parts of the table of one window operator in one subtask."""

    @abstractmethod
    def entries(
        self, prefix: str, value_type: Any = None,
        *, dump: Callable[[Any], Any] | None = None, load: Callable[[Any], Any] | None = None,
    ) -> WindowEntries:  # fmt: skip
        """Return empty entries; the arguments are the same as of ``WindowEntries``."""

    @abstractmethod
    def records(self, value_type: Any, *, is_by_key: bool) -> Records:
        """Return room for the records of windows.

        Args:
            value_type: Declared type of the records, None when unknown.
            is_by_key: Whether they are read and replaced key by key, and never dropped by
                namespace; else they are read by key group, and only dropped.
        """

    @abstractmethod
    def due_times(self, domain: TimeDomain) -> DueTimes:
        """Return an empty index of times."""

    @abstractmethod
    def keep_due_times(self, entries: WindowEntries, moments: Moments, rules: str) -> bool:
        """Keep the due times with the sealed entries; return whether the space can do it.

        Where it is not, the operator goes through the entries when a table was restored.

        Args:
            entries: The entries.
            moments: Returns the times that an entry waits for.
            rules: The parameters of ``moments``, besides the entry.
        """

    def table(self, entries: WindowEntries, records: Records) -> WindowTable:
        """Return a table of these parts, and of values that window functions keep."""
        return WindowTable(entries, records, self.entries("v"))
