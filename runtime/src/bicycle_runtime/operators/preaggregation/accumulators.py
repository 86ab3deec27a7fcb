"""Accumulators of the epoch, by key and window: each has an *ordinal*, an int."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from operator import getitem
from typing import TYPE_CHECKING, Any, NamedTuple

from bicycle_runtime.operators.preaggregation.batch_rows import Rows

if TYPE_CHECKING:
    from bicycle_runtime.operators.preaggregation.gathering import GatheredContents


class Session(NamedTuple):
    """The content of one session, with its interval ``[start, end)``."""

    group: int
    key: Any
    start: int
    end: int
    content: Any


Part = tuple[int, int, list[Any], list[Any]]  # start, key group, keys, contents


class Numbers(dict[Any, int]):
    """A dict that numbers keys in order of first access.

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
    """Start of a slice -> key -> ordinal, numbered in order of first access."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count()

    def __missing__(self, start: int) -> Numbers:
        keys = self[start] = Numbers(self._numbers)
        return keys


class WindowAccumulators:
    """Gathers by start of a slice and key.

    Args:
        contents: Where the records go.
    """

    def __init__(self, contents: GatheredContents) -> None:
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
        """Put rows into the ordinals of their slices, whose starts are the namespaces."""
        rows = self._contents.prepare(rows)
        self._contents.add(rows, self._ordinals(rows))

    def take(self) -> Iterator[Part]:
        """Yield all contents by start and key group, and start again."""
        contents = self._contents.take()
        by_start, groups = self._by_start, self._groups
        self._by_start, self._groups = _Starts(), []
        for start, ordinals in sorted(by_start.items()):
            parts: dict[int, tuple[list[Any], list[Any]]] = {}
            for key, ordinal in ordinals.items():
                content = contents[ordinal]
                if content is None:
                    continue
                group = groups[ordinal]
                part = parts.get(group)
                if part is None:
                    part = parts[group] = ([], [])
                part[0].append(key)
                part[1].append(content)
            for group, (keys, found) in sorted(parts.items()):
                yield start, group, keys, found

    def _ordinals(self, rows: Rows) -> list[int]:
        by_start, groups = self._by_start, self._groups
        # hot path: 80 ns a record, in C but for new ordinals; the lookups in a loop take 110.
        ordinals = list(map(getitem, map(by_start.__getitem__, rows.namespaces), rows.keys))
        index = 0
        for ordinal in range(len(groups), sum(map(len, by_start.values()))):
            # New ordinals come in the order of their numbers.
            index = ordinals.index(ordinal, index)
            groups.append(rows.groups[index])
        self._contents.grow(len(groups))
        return ordinals


class SessionAccumulators:
    """A fold by key and session: touching intervals of a key share an ordinal.

    Args:
        contents: Where the records go.
    """

    def __init__(self, contents: GatheredContents) -> None:
        self._contents = contents
        self._open: dict[Any, list[list[int]]] = {}  # key -> [start, end, ordinal], by start
        self._groups: list[int] = []

    def __len__(self) -> int:
        return len(self._groups)

    def clear(self) -> None:
        """Forget everything."""
        self._contents.take()
        self._open, self._groups = {}, []

    def add(self, rows: Rows) -> None:
        """Add rows to sessions; a row's namespace is the end of the window that it opens."""
        rows = self._contents.prepare(rows)
        if self._contents.may_refuse():
            for index in range(len(rows.keys)):
                self._add_one(rows, index)
            return
        joined: dict[int, int] = {}
        ordinals: list[int] = []
        # hot path: 250 ns a record.
        for key, group, start, end in zip(
            rows.keys, rows.groups, rows.times, rows.namespaces, strict=True
        ):
            sessions = self._open.get(key)
            if sessions is None:
                sessions = self._open[key] = []
            elif len(sessions) == 1 and sessions[0][0] <= end and start <= sessions[0][1]:
                session = sessions[0]
                session[0] = min(session[0], start)
                session[1] = max(session[1], end)
                ordinals.append(session[2])
                continue
            ordinals.append(self._insert(sessions, [start, end, len(self._groups)], group, joined))
        self._contents.grow(len(self._groups))
        for other, ordinal in joined.items():
            self._contents.absorb(_root(joined, ordinal), other)
        self._contents.add(
            rows, [_root(joined, ordinal) for ordinal in ordinals] if joined else ordinals
        )

    def _add_one(self, rows: Rows, index: int) -> None:
        """Add one row to its session; a refused row changes no session."""
        sessions = self._open.setdefault(rows.keys[index], [])
        new = [rows.times[index], rows.namespaces[index], len(self._groups)]
        touched = [one for one in sessions if _touch(one, new)]
        ordinal = min((one[2] for one in touched), default=new[2])
        self._contents.grow(max(ordinal + 1, len(self._groups)))
        if self._contents.takes(rows, index, ordinal):
            joined: dict[int, int] = {}
            self._insert(sessions, new, rows.groups[index], joined)
            for other in joined:
                self._contents.absorb(ordinal, other)

    def take(self) -> Iterator[Session]:
        """Yield all sessions, and start again."""
        contents = self._contents.take()
        opened, groups = self._open, self._groups
        self._open, self._groups = {}, []
        for key, sessions in opened.items():
            for start, end, ordinal in sessions:
                if contents[ordinal] is not None:
                    yield Session(groups[ordinal], key, start, end, contents[ordinal])

    def _insert(
        self, sessions: list[list[int]], new: list[int], group: int, joined: dict[int, int]
    ) -> int:
        """Join an interval with the sessions that it touches; return the ordinal."""
        touched = [one for one in sessions if _touch(one, new)]
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


def _touch(one: Sequence[int], other: Sequence[int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _root(joined: dict[int, int], ordinal: int) -> int:
    while ordinal in joined:
        ordinal = joined[ordinal]
    return ordinal
