"""Undo logs for entries, timers and attributes: a failed attempt is undone.

Each of these notes in the log of the attempt (``state.undo``) how to go back, and then acts like
the plain object. A mutable value is copied when it is returned.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bicycle_runtime.state.memory.tracked import TrackedDict, Tracking, tracked_dict
from bicycle_runtime.state.undo import ATOMIC, ATTEMPT, Attempts, UndoLog, copied
from bicycle_sdk.state.descriptors import StateDescriptor
from bicycle_sdk.state.entries import MISSING, MapEntries, ValueEntries
from bicycle_sdk.state.frozen import is_frozen_type
from bicycle_sdk.state.timers import TimerQueue

if TYPE_CHECKING:
    from bicycle_runtime.state.memory.attributes import Attribute


# --- keyed states --------------------------------------------------------------------------------


def undoing_entries(
    entries: ValueEntries | MapEntries, descriptor: StateDescriptor, attempts: Attempts
) -> UndoPlainEntries | UndoValueEntries | UndoMapEntries:
    """Return the undo wrapper of the entries of a state."""
    stored = descriptor.stored_type
    is_frozen = stored is not None and is_frozen_type(stored)
    if isinstance(entries, MapEntries):
        return UndoMapEntries(entries, is_frozen=is_frozen)
    if type(entries) is ValueEntries:
        return UndoPlainEntries(entries, attempts.note)
    return UndoValueEntries(entries, is_frozen=is_frozen)


class UndoPlainEntries:
    """One immutable value per key, in memory, without expiry."""

    __slots__ = ("delete", "get", "put")

    # hot path: reading costs no more than elsewhere, writing 120 ns more.

    def __init__(self, entries: ValueEntries, note: Callable[[tuple[Any, ...]], None]) -> None:
        values, back = entries.entries, entries.put_back
        known = values.get

        def put(key: Hashable, value: Any) -> None:
            note((back, key, known(key, MISSING)))
            values[key] = value
            entries.touched[key] = None

        def delete(key: Hashable) -> None:
            note((back, key, known(key, MISSING)))
            entries.delete(key)

        self.get, self.put, self.delete = entries.get, put, delete


class UndoValueEntries:
    """One value per key."""

    def __init__(self, entries: ValueEntries, *, is_frozen: bool) -> None:
        self._put, self._delete, self._back = entries.put, entries.delete, entries.put_back
        self._get, self._peek = entries.get, entries.peek
        self._is_frozen = is_frozen
        self._stamps = None if entries.expiry is None else entries.expiry.stamps
        if is_frozen and self._stamps is None:
            # hot path: reading changes nothing, so that it costs no more than elsewhere.
            self.get = entries.get  # type: ignore[method-assign]  # it is the same

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the value of a key, else the default."""
        value = self._peek(key)
        self._note(key, value if self._is_frozen else _copy(value))
        return self._get(key, default)

    def put(self, key: Hashable, value: Any) -> None:
        """Set the value of a key."""
        self._note(key, self._peek(key))
        self._put(key, value)

    def delete(self, key: Hashable) -> None:
        """Remove the value of a key, if it exists."""
        self._note(key, self._peek(key))
        self._delete(key)

    def _note(self, key: Hashable, value: Any) -> None:
        stamps = self._stamps
        stamp = None if stamps is None else stamps.get(key)
        ATTEMPT.get().append((self._back, key, value, stamp))


class UndoMapEntries:
    """A map or a list per key, entry by entry."""

    def __init__(self, entries: MapEntries, *, is_frozen: bool) -> None:
        self._entries = entries
        self._is_frozen = is_frozen
        expiry = entries.expiry
        self._stamps = None if expiry is None else expiry.stamps
        self._renews = expiry is not None and expiry.is_on_access
        self.is_empty = entries.is_empty

    def get(self, key: Hashable, part: Hashable, default: Any = None) -> Any:
        """Return an entry of a key's map, else the default."""
        if self._renews or not self._is_frozen:
            self._note((key, part), is_handed=True)
        return self._entries.get(key, part, default)

    def has(self, key: Hashable, part: Hashable) -> bool:
        """Return whether a key's map has an entry."""
        if self._renews:
            self._note((key, part))
        return self._entries.has(key, part)

    def put(self, key: Hashable, part: Hashable, value: Any) -> None:
        """Set an entry of a key's map."""
        self._note((key, part))
        self._entries.put(key, part, value)

    def add(self, key: Hashable, part: Hashable, value: Any) -> bool:
        """Set an entry if it is new; return whether it was set."""
        self._note((key, part))
        return self._entries.add(key, part, value)

    def append(self, key: Hashable, values: Iterable[Any]) -> None:
        """Put values behind the last position of a key's list."""
        ATTEMPT.get().append((self._entries.cut, key, self._entries.end(key)))
        self._entries.append(key, values)

    def delete(self, key: Hashable, part: Hashable) -> None:
        """Remove an entry of a key's map, if it exists."""
        self._note((key, part))
        self._entries.delete(key, part)

    def clear(self, key: Hashable) -> None:
        """Remove a key's map."""
        for part in reversed(self._entries.parts(key)):
            self._note((key, part))  # Steps back are taken in reverse: the first comes back first.
        self._entries.clear(key)

    def items(self, key: Hashable) -> list[tuple[Any, Any]]:
        """Return the entries of a key's map, oldest first."""
        self._note_all(key)
        return self._entries.items(key)

    def scan(
        self, key: Hashable, start: Any = MISSING, end: Any = MISSING, *, prefix: Any = MISSING
    ) -> Iterator[tuple[Any, Any]]:
        """Yield the entries of a key's map in key order, each as it is when reached."""
        if self._renews:
            self._note_all(key)
        for part, value in self._entries.scan(key, start, end, prefix=prefix):
            if not self._is_frozen:
                self._note((key, part), is_handed=True)
            yield part, value

    def between(self, key: Hashable, start: Any, end: Any) -> list[tuple[Any, Any]]:
        """Return a list of the entries that ``scan`` yields."""
        return list(self.scan(key, start, end))

    def take(
        self, keys: Iterable[Hashable], end: Any
    ) -> Iterator[tuple[Any, list[tuple[Any, Any]], Any]]:
        """Remove entries before a map key; yield them, and the first remaining map key."""
        for key in keys:
            found = self.between(key, MISSING, end)
            for part, _ in found:
                self.delete(key, part)
            yield key, found, next((part for part, _ in self.scan(key)), MISSING)

    def _note_all(self, key: Hashable) -> None:
        if self._renews or not self._is_frozen:
            for part in self._entries.parts(key):
                self._note((key, part), is_handed=True)

    def _note(self, entry_key: tuple[Any, Any], *, is_handed: bool = False) -> None:
        value = self._entries.peek(entry_key)
        if is_handed and not self._is_frozen:
            value = _copy(value)
        stamp = None if self._stamps is None else self._stamps.get(entry_key)
        ATTEMPT.get().append((self._entries.put_back, entry_key, value, stamp))


# --- timers and side outputs ---------------------------------------------------------------------


class UndoTimers:
    """The queue interface of a ``TimerService``, with undo."""

    def __init__(self, queue: TimerQueue) -> None:
        self._queue = queue

    def set(self, key: Hashable, time_ms: int) -> None:
        """Set a timer; harmless when it is set already."""
        if (key, time_ms) not in self._queue.waiting:
            ATTEMPT.get().append((self._queue.delete, key, time_ms))
            self._queue.set(key, time_ms)

    def delete(self, key: Hashable, time_ms: int) -> None:
        """Delete a timer, if it exists."""
        if (key, time_ms) in self._queue.waiting:
            ATTEMPT.get().append((self._queue.set, key, time_ms))
            self._queue.delete(key, time_ms)


class UndoList(list[Any]):
    """The side outputs of all attempts of a batch."""

    def append(self, item: Any) -> None:
        """Put an item at the end."""
        ATTEMPT.get().append((self._withdraw, item))
        super().append(item)

    def _withdraw(self, item: Any) -> None:
        # Other attempts may have put theirs behind it; equal items are not the same.
        index = next(at for at in range(len(self) - 1, -1, -1) if self[at] is item)
        del self[index]


# --- attributes ----------------------------------------------------------------------------------


def attribute_memo(
    instance: Any, dicts: dict[str, Tracking], attributes: Sequence[Attribute]
) -> Callable[[UndoLog], None]:
    """Return a function that saves the state attributes before an attempt.

    Args:
        instance: The copy of a function that a key group works on.
        dicts: The dict attributes, each with the notes that it takes.
        attributes: The others, whose values are copied unless they cannot change in place.
    """
    names = [(item.name, is_frozen_attribute(item)) for item in attributes]

    def note(log: UndoLog) -> None:
        kept: dict[str, Any] = {}
        changeable: dict[str, Any] = {}
        for name, is_frozen in names:
            value = getattr(instance, name, None)
            (kept if is_frozen or type(value) in ATOMIC else changeable)[name] = value
        for name, tracking in dicts.items():
            value = getattr(instance, name, None)
            if type(value) is dict:  # The function has put another dict in the place of its own.
                value = tracked_dict(value, tracking)
                setattr(instance, name, value)
            (kept if isinstance(value, TrackedDict) and value.undoes else changeable)[name] = value
        if changeable:  # In one go, so that shared parts stay shared.
            kept |= copy.deepcopy(changeable)
        log.append((_set_all, instance, kept))

    return note


def is_frozen_attribute(attribute: Attribute) -> bool:
    """Return whether an attribute's annotation excludes changes in place."""
    return attribute.declared is not None and is_frozen_type(attribute.declared)


def _set_all(instance: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(instance, name, value)


def _copy(value: Any) -> Any:
    return value if value is MISSING else copied(value)
