"""Slots: which key and window a gathered content belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from operator import getitem
from typing import Any, NamedTuple

from bicycle_runtime.operators.folding.gathering import Contents
from bicycle_runtime.operators.folding.rows import Rows

__all__ = ["Numbers", "Part", "Session", "SessionSlots", "WindowSlots"]


class Session(NamedTuple):
    """What was gathered of one session: ``[start, end)`` and its content."""

    group: int
    key: Any
    start: int
    end: int
    content: Any


Part = tuple[int, int, list[Any], list[Any]]  # start, key group, keys, contents


class Numbers(dict[Any, int]):
    """Gives each key that it is asked for for the first time the next number.

    Args:
        numbers: Where numbers come from, when several share them; 0, 1, 2 … by itself.
    """

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        super().__init__()
        self._numbers = count() if numbers is None else numbers

    def __missing__(self, key: Any) -> int:
        number = self[key] = next(self._numbers)
        return number


class _Starts(dict[int, Numbers]):
    """Start of a slice -> key -> slot; slots are numbered in the order in which they are needed."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count()

    def __missing__(self, start: int) -> Numbers:
        keys = self[start] = Numbers(self._numbers)
        return keys


class WindowSlots:
    """Gathers by start of a slice and key.

    Args:
        contents: Where the records go.
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._by_start = _Starts()
        self._groups: list[int] = []

    def __len__(self) -> int:
        return len(self._groups)

    def clear(self) -> None:
        """Forget everything."""
        self._contents.take()
        self._by_start, self._groups = _Starts(), []

    def add(self, rows: Rows) -> None:
        """Put rows into the slots of their slices, whose starts are the places."""
        rows = self._contents.prepare(rows)
        self._contents.add(rows, self._slots(rows))

    def take(self) -> Iterator[Part]:
        """Yield all contents by start and key group, and start again."""
        contents = self._contents.take()
        by_start, groups = self._by_start, self._groups
        self._by_start, self._groups = _Starts(), []
        for start, slots in sorted(by_start.items()):
            parts: dict[int, tuple[list[Any], list[Any]]] = {}
            for key, slot in slots.items():
                content = contents[slot]
                if content is None:
                    continue
                group = groups[slot]
                part = parts.get(group)
                if part is None:
                    part = parts[group] = ([], [])
                part[0].append(key)
                part[1].append(content)
            for group, (keys, found) in sorted(parts.items()):
                yield start, group, keys, found

    def _slots(self, rows: Rows) -> list[int]:
        by_start, groups = self._by_start, self._groups
        # hot path: 80 ns a record, in C but for new slots; the lookups in a loop take 110.
        slots = list(map(getitem, map(by_start.__getitem__, rows.places), rows.keys))
        place = 0
        for slot in range(len(groups), sum(map(len, by_start.values()))):
            place = slots.index(slot, place)  # New slots come in the order of their numbers.
            groups.append(rows.groups[place])
        self._contents.grow(len(groups))
        return slots


class SessionSlots:
    """Gathers by key and session: records of a key whose intervals touch share a slot.

    Args:
        contents: Where the records go.
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._open: dict[Any, list[list[int]]] = {}  # key -> [start, end, slot], by start
        self._groups: list[int] = []

    def __len__(self) -> int:
        return len(self._groups)

    def clear(self) -> None:
        """Forget everything."""
        self._contents.take()
        self._open, self._groups = {}, []

    def add(self, rows: Rows) -> None:
        """Put rows into sessions; their places are the ends of the windows that they open."""
        rows = self._contents.prepare(rows)
        joined: dict[int, int] = {}
        slots: list[int] = []
        # hot path: 250 ns a record.
        for key, group, start, end in zip(
            rows.keys, rows.groups, rows.times, rows.places, strict=True
        ):
            sessions = self._open.get(key)
            if sessions is None:
                sessions = self._open[key] = []
            elif len(sessions) == 1 and sessions[0][0] <= end and start <= sessions[0][1]:
                session = sessions[0]
                session[0] = min(session[0], start)
                session[1] = max(session[1], end)
                slots.append(session[2])
                continue
            slots.append(self._placed(sessions, [start, end, len(self._groups)], group, joined))
        self._contents.grow(len(self._groups))
        for other, slot in joined.items():
            self._contents.absorb(_root(joined, slot), other)
        self._contents.add(rows, [_root(joined, slot) for slot in slots] if joined else slots)

    def take(self) -> Iterator[Session]:
        """Yield all sessions, and start again."""
        contents = self._contents.take()
        opened, groups = self._open, self._groups
        self._open, self._groups = {}, []
        for key, sessions in opened.items():
            for start, end, slot in sessions:
                if contents[slot] is not None:
                    yield Session(groups[slot], key, start, end, contents[slot])

    def _placed(
        self, sessions: list[list[int]], new: list[int], group: int, joined: dict[int, int]
    ) -> int:
        """Join an interval with the sessions that it touches; return the slot."""
        touched = [one for one in sessions if one[0] <= new[1] and new[0] <= one[1]]
        if not touched:
            sessions.append(new)
            sessions.sort()
            self._groups.append(group)
            return new[2]
        kept = min(touched, key=lambda one: one[2])
        for other in touched:
            if other is not kept:
                joined[other[2]] = kept[2]
                sessions.remove(other)
        kept[0] = min(new[0], *(one[0] for one in touched))
        kept[1] = max(new[1], *(one[1] for one in touched))
        sessions.sort()
        return kept[2]


def _root(joined: dict[int, int], slot: int) -> int:
    while slot in joined:
        slot = joined[slot]
    return slot
