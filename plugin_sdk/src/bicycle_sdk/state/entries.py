"""The entries of one state in memory, for all keys, and which of them changed.

Handles (``handles``) read and write entries under the current key; a runtime saves the entries in
``touched`` and ``touched_stamps`` and clears both. Expired entries are never returned; ``sweep``
removes them. A store that is larger than memory replaces these classes by having their methods.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from bicycle_sdk.state.expiry import Expiry
from bicycle_sdk.state.part_order import NATURAL_ORDER, PartOrder, has_prefix, put_in_order

__all__ = ["MISSING", "CarefulValueEntries", "MapEntries", "ValueEntries"]

MISSING = object()
_NO_ROW: dict[Any, Any] = {}
_SIMPLE = frozenset({str, int, float, bytes, bool, type(None)})


class ValueEntries:
    """One value per key, of a type whose values never change, and living forever."""

    __slots__ = ("entries", "expiry", "touched")
    # hot path: 50 ns a read and 60 ns a write besides the key; states that expire, or whose values
    # can be changed in place, take the longer way of ``CarefulValueEntries``.

    def __init__(self) -> None:
        self.entries: dict[Any, Any] = {}
        self.touched: dict[Any, None] = {}
        self.expiry: Expiry | None = None

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the value of a key, else the default."""
        return self.entries.get(key, default)

    def put(self, key: Hashable, value: Any) -> None:
        """Set the value of a key."""
        self.entries[key] = value
        self.touched[key] = None

    def delete(self, key: Hashable) -> None:
        """Remove the value of a key, if it exists."""
        if self.entries.pop(key, MISSING) is not MISSING:
            self.touched[key] = None

    def put_back(self, key: Hashable, value: Any, stamp: int | None = None) -> None:
        """Restore a key's value (``MISSING`` removes it) and its time."""
        if value is MISSING:
            self.entries.pop(key, None)
        else:
            self.entries[key] = value
        self.touched[key] = None
        if self.expiry is not None:
            self.expiry.put_back(key, stamp)

    def sweep(self) -> None:
        """Remove expired entries."""

    def peek(self, entry_key: Any) -> Any:
        """Return the value of an entry without using it, or ``MISSING``."""
        return self.entries.get(entry_key, MISSING)

    def peek_all(self, entry_keys: Iterable[Any]) -> list[Any]:
        """Return the values of entries without using them, ``MISSING`` if absent."""
        return list(map(self.peek, entry_keys))

    def view(self, key: Hashable) -> Any:
        """Return the live value of a key without using it, or ``MISSING``."""
        is_live = self.expiry is None or self.expiry.is_live(key)
        return self.peek(key) if is_live else MISSING

    def entry_keys(self) -> Iterable[Any]:
        """Return all entries: the keys."""
        return self.entries

    def keys(self) -> Iterable[Any]:
        """Return the keys that have a value."""
        return self.entries

    def key_count(self) -> int:
        return len(self.entries)

    def load(self, entry_keys: Iterable[Any], values: Iterable[Any]) -> None:
        """Put sealed values in; they do not count as changed."""
        self.entries.update(zip(entry_keys, values, strict=True))

    def unload(self, entry_keys: Iterable[Any]) -> None:
        """Take sealed deletions over; they do not count as changes."""
        for entry_key in entry_keys:
            self.entries.pop(entry_key, None)

    def reset(self) -> None:
        """Forget everything, sealed or not."""
        self.entries.clear()
        self.touched.clear()
        if self.expiry is not None:
            self.expiry.reset()


class CarefulValueEntries(ValueEntries):
    """One value per key that may expire, or that may be changed in place.

    A value that can be changed in place counts as changed once it was returned.
    """

    __slots__ = ("_is_frozen",)

    def __init__(self, *, is_frozen: bool, expiry: Expiry | None = None) -> None:
        super().__init__()
        self._is_frozen = is_frozen
        self.expiry = expiry

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the value of a key, else the default."""
        if key not in self.entries:
            return default
        expiry = self.expiry
        if expiry is not None:
            if not expiry.is_live(key):
                self.delete(key)
                return default
            if expiry.is_on_access:
                expiry.renew(key)
        if not self._is_frozen:
            self.touched[key] = None
        return self.entries[key]

    def put(self, key: Hashable, value: Any) -> None:
        """Set the value of a key."""
        self.entries[key] = value
        self.touched[key] = None
        if self.expiry is not None:
            self.expiry.renew(key)

    def delete(self, key: Hashable) -> None:
        """Remove the value of a key, if it exists."""
        super().delete(key)
        if self.expiry is not None:
            self.expiry.forget(key)

    def sweep(self) -> None:
        """Remove expired entries."""
        for key in self.expiry.due() if self.expiry is not None else ():
            self.delete(key)


class MapEntries:
    """A map per key, entry by entry; an entry is ``(key, map key)``. Lists are maps by position.

    Args:
        is_frozen: Whether values are of a type that cannot be changed in place.
        expiry: When entries expire; None for never.
        order: The order of map keys; None for that of their types and values.
    """

    __slots__ = (
        "_is_frozen", "_is_plain", "_parts_at", "_sort_key", "_sorted", "expiry", "rows", "touched",
    )  # fmt: skip

    def __init__(
        self,
        *,
        is_frozen: bool,
        expiry: Expiry | None = None,
        order: PartOrder | None = None,
    ) -> None:
        self._is_frozen = is_frozen
        # hot path: reads of immutable values without a TTL are not noted.
        self._is_plain = is_frozen and expiry is None
        self._sort_key, self._parts_at = order or NATURAL_ORDER
        self._sorted: dict[Any, list[Any]] = {}  # Places in order, by key.
        self.expiry = expiry
        self.rows: dict[Any, dict[Any, Any]] = {}
        # The changes since the last save; true for new entries, of which nothing is saved.
        self.touched: dict[tuple[Any, Any], bool] = {}

    def get(self, key: Hashable, part: Hashable, default: Any = None) -> Any:
        """Return an entry of a key's map, else the default."""
        row = self.rows.get(key)
        if row is None:
            return default
        if self._is_plain:
            return row.get(part, default)
        return row[part] if part in row and self._use((key, part)) else default

    def has(self, key: Hashable, part: Hashable) -> bool:
        """Return whether a key's map has an entry."""
        row = self.rows.get(key)
        return row is not None and part in row and (self._is_plain or self._is_found((key, part)))

    def put(self, key: Hashable, part: Hashable, value: Any) -> None:
        """Set an entry of a key's map."""
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = {}
        is_new = part not in row
        if is_new:
            self._admit(key, part)
        row[part] = value
        entry_key = (key, part)
        self.touched.setdefault(entry_key, is_new)
        if self.expiry is not None:
            self.expiry.renew(entry_key)

    def add(self, key: Hashable, part: Hashable, value: Any) -> bool:
        """Set an entry unless there is one; return whether it was set."""
        row = self.rows.get(key)
        if row is not None and part in row:
            return False
        self.put(key, part, value)
        return True

    def add_all(self, key: Hashable, parts: Sequence[Any], values: Sequence[Any]) -> list[int]:
        """Set the entries of a key that are not there; return the positions of the others."""
        found = list(map(self._sort_key, parts))  # An invalid part raises before a change.
        if not found:
            return []
        row = self.rows.setdefault(key, {})
        ordered, touched, expiry = self._sorted.get(key), self.touched, self.expiry
        there: list[int] = []
        # hot path: 300 ns an entry instead of 1,400 one by one.
        for position, part in enumerate(parts):
            if part in row:
                there.append(position)
                continue
            row[part] = values[position]
            entry_key = (key, part)
            if entry_key not in touched:
                touched[entry_key] = True
            if expiry is not None:
                expiry.renew(entry_key)
        if ordered is not None:
            added = set(there)
            put_in_order(ordered, [each for n, each in enumerate(found) if n not in added])
        return there

    def append(self, key: Hashable, values: Iterable[Any]) -> None:
        """Append values to a key's list."""
        added, ordered = list(values), self._sorted.get(key)
        if not added:
            return
        row, touched, expiry = self.rows.setdefault(key, {}), self.touched, self.expiry
        # hot path: half of the time that ``put`` takes.
        for position, value in enumerate(added, next(reversed(row)) + 1 if row else 0):
            row[position] = value
            touched.setdefault((key, position), True)
            if ordered is not None:
                self._enter(ordered, position)
            if expiry is not None:
                expiry.renew((key, position))

    def end(self, key: Hashable) -> int:
        """Return the position after the end of a key's list."""
        row = self.rows.get(key)
        return next(reversed(row)) + 1 if row else 0

    def cut(self, key: Hashable, start: int) -> None:
        """Remove the end of a key's list, from a position on."""
        for position in reversed(range(start, self.end(key))):
            self.delete(key, position)

    def put_back(self, entry_key: tuple[Any, Any], value: Any, stamp: int | None) -> None:
        """Restore an entry's value (``MISSING`` removes it) and its time."""
        if value is MISSING:
            self.delete(*entry_key)
        else:
            self.put(*entry_key, value)
        if self.expiry is not None:
            self.expiry.put_back(entry_key, stamp)

    def parts(self, key: Hashable) -> list[Any]:
        """Return the map keys that a key has, expired or not, oldest first."""
        return list(self.rows.get(key, ()))

    def delete(self, key: Hashable, part: Hashable) -> None:
        """Remove an entry of a key's map, if it exists."""
        row = self.rows.get(key)
        if row is None or part not in row:
            return
        del row[part]
        self._note_gone(key, (part,))
        if not row:
            self.clear(key)
        elif key in self._sorted:
            self._leave(self._sorted[key], part)

    def clear(self, key: Hashable) -> None:
        """Remove a key's map."""
        self._sorted.pop(key, None)
        self._note_gone(key, self.rows.pop(key, ()))

    def items(self, key: Hashable) -> list[tuple[Any, Any]]:
        """Return the entries of a key's map, oldest first."""
        found = list(self.rows.get(key, _NO_ROW).items())
        if self._is_plain:
            return found
        return [(part, value) for part, value in found if self._use((key, part))]

    def is_empty(self, key: Hashable) -> bool:
        """Return whether a key's map has no entry."""
        return not any(self._is_live((key, part)) for part in self.rows.get(key, ()))

    def scan(
        self, key: Hashable, start: Any = MISSING, end: Any = MISSING, *, prefix: Any = MISSING
    ) -> Iterator[tuple[Any, Any]]:
        """Yield the entries of a key's map in key order, each as it is when reached.

        Args:
            key: Whose map.
            start: First map key; ``MISSING`` for no bound.
            end: Map key after the last; ``MISSING`` for no bound.
            prefix: Only map keys that begin with this.
        """
        row, is_plain = self.rows.get(key, {}), self._is_plain
        for part in self._within(self._sort(key), start, end, prefix):
            if part in row and (is_plain or self._use((key, part))):
                yield part, row[part]

    def between(self, key: Hashable, start: Any, end: Any) -> list[tuple[Any, Any]]:
        """Return a list of the entries that ``scan`` yields.

        Args:
            key: Whose map.
            start: First map key; ``MISSING`` for no bound.
            end: Map key after the last.
        """
        row = self.rows.get(key)
        if row is None:
            return []
        parts = self._within(self._sort(key), start, end)
        if not self._is_plain:
            parts = [part for part in parts if self._use((key, part))]
        return [(part, row[part]) for part in parts]

    def take(
        self, keys: Iterable[Hashable], end: Any
    ) -> Iterator[tuple[Any, list[tuple[Any, Any]], Any]]:
        """Remove the entries of keys before a map key, in a state without a TTL.

        Yield each key that had entries, its removed entries in key order, and its first remaining
        map key, or ``MISSING``.
        """
        sort_key, limit = self._sort_key, self._sort_key(end)
        for key in keys:
            row = self.rows.get(key)
            if row is None:
                continue
            if len(row) == 1:  # hot path: most keys of a join have one row.
                [(part, value)] = row.items()
                if is_over := sort_key(part) < limit:
                    self.clear(key)
                yield (key, [(part, value)], MISSING) if is_over else (key, [], part)
                continue
            ordered = self._sort(key)
            last = bisect_left(ordered, limit)
            parts = self._parts_at(ordered[: last + 1])
            first = parts.pop() if last < len(ordered) else MISSING
            self._note_gone(key, parts)
            found = [(part, row.pop(part)) for part in parts]
            del ordered[:last]
            if not row:
                self.clear(key)
            yield key, found, first

    def load(self, entry_keys: Iterable[tuple[Any, Any]], values: Iterable[Any]) -> None:
        """Put sealed entries in; they do not count as changed."""
        for (key, part), value in zip(entry_keys, values, strict=True):
            self.rows.setdefault(key, {})[part] = value
            self._sorted.pop(key, None)

    def unload(self, entry_keys: Iterable[tuple[Any, Any]]) -> None:
        """Take sealed deletions over; they do not count as changes."""
        for key, part in entry_keys:
            row = self.rows.get(key, {})
            row.pop(part, None)
            self._sorted.pop(key, None)
            if not row:
                self.rows.pop(key, None)

    def sweep(self) -> None:
        """Remove expired entries."""
        for entry_key in self.expiry.due() if self.expiry is not None else ():
            self.put_back(entry_key, MISSING, None)  # Also a time whose entry is gone already.

    def peek(self, entry_key: tuple[Any, Any]) -> Any:
        """Return the value of an entry without using it, or ``MISSING``."""
        key, part = entry_key
        return self.rows.get(key, {}).get(part, MISSING)

    def peek_all(self, entry_keys: Iterable[tuple[Any, Any]]) -> list[Any]:
        """Return the values of entries without using them, ``MISSING`` if absent."""
        rows: dict[Any, Any] = self.rows
        return [rows.get(key, _NO_ROW).get(part, MISSING) for key, part in entry_keys]

    def view(self, key: Hashable) -> dict[Any, Any] | Any:
        """Return the live entries of a key without using them, or ``MISSING``."""
        row = self.rows.get(key, {})
        return {part: row[part] for part in row if self._is_live((key, part))} or MISSING

    def keys(self) -> Iterable[Any]:
        """Return the keys that have entries."""
        return self.rows

    def key_count(self) -> int:
        """Return how many keys have entries, as far as that is in memory."""
        return len(self.rows)

    def entry_keys(self) -> Iterable[tuple[Any, Any]]:
        """Return all entries."""
        return ((key, part) for key, row in self.rows.items() for part in row)

    def reset(self) -> None:
        """Forget everything, sealed or not."""
        for part in (self.rows, self.touched, self._sorted):
            part.clear()
        if self.expiry is not None:
            self.expiry.reset()

    def _within(self, ordered: list[Any], start: Any, end: Any, prefix: Any = MISSING) -> list[Any]:
        """Return the map keys at some positions in the sorted order."""
        if prefix is not MISSING:
            parts = self._parts_at(ordered[bisect_left(ordered, self._sort_key(prefix)) :])
            return list(takewhile(lambda part: has_prefix(part, prefix), parts))
        first, last = self._bounds(ordered, start, end)
        return self._parts_at(ordered[first:last]) if first < last else []

    def _bounds(self, ordered: list[Any], start: Any, end: Any) -> tuple[int, int]:
        """Return the index of the first item from ``start`` on, and the end index."""
        first = 0 if start is MISSING else bisect_left(ordered, self._sort_key(start))
        if end is MISSING:
            return first, len(ordered)
        limit = self._sort_key(end)
        if first == len(ordered) or not ordered[first] < limit:
            return first, first
        return first, bisect_left(ordered, limit, first)

    def _sort(self, key: Hashable) -> list[Any]:
        ordered = self._sorted.get(key)
        if ordered is None:
            ordered = sorted(map(self._sort_key, self.rows.get(key, ())))
            if ordered:
                self._sorted[key] = ordered
        return ordered

    def _admit(self, key: Hashable, part: Hashable) -> None:
        ordered = self._sorted.get(key)
        if ordered is not None:
            self._enter(ordered, part)
        elif type(part) not in _SIMPLE:
            self._sort_key(part)

    def _enter(self, ordered: list[Any], part: Hashable) -> bool:
        """Insert a map key into an ordered list; return whether it was new."""
        sort_key = self._sort_key(part)
        if not ordered or ordered[-1] < sort_key:
            ordered.append(sort_key)
            return True
        index = bisect_left(ordered, sort_key)
        is_new: bool = ordered[index] != sort_key
        if is_new:
            ordered.insert(index, sort_key)
        return is_new

    def _leave(self, ordered: list[Any], part: Hashable) -> None:
        """Take the place of a map key out of others in order."""
        del ordered[bisect_left(ordered, self._sort_key(part))]

    def _is_found(self, entry_key: tuple[Any, Any]) -> bool:
        """Return whether an entry is live; then it counts as read."""
        if not self._is_live(entry_key):
            return False
        if self.expiry is not None and self.expiry.is_on_access:
            self.expiry.renew(entry_key)
        return True

    def _use(self, entry_key: tuple[Any, Any]) -> bool:
        """Return whether an entry is live; then its value is returned."""
        if not self._is_found(entry_key):
            return False
        if not self._is_frozen:
            self.touched.setdefault(entry_key, False)
        return True

    def _note_gone(self, key: Hashable, parts: Iterable[Any]) -> None:
        """Note removed entries of a key; an entry that was never saved needs no note."""
        touched, expiry = self.touched, self.expiry
        for part in parts:
            entry_key = (key, part)
            if not touched.pop(entry_key, False):
                touched[entry_key] = False
            if expiry is not None:
                expiry.forget(entry_key)

    def _is_live(self, entry_key: tuple[Any, Any]) -> bool:
        return self.expiry is None or self.expiry.is_live(entry_key)
