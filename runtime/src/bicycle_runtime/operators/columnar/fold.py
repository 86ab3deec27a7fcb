"""The fold of columns by key and window before the shuffle, without making records.

Only what comes to exactly the same is folded so: counts, and sums, least and greatest values of
ints and floats. It travels as columns; ``ColumnMerge`` is at the other end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bicycle_runtime.operators.columnar.arrays import (
    TOTAL_MAX,
    NarrowInts,
    PackedInts,
    Runs,
    as_numbers,
    numpy,
    steps,
)
from bicycle_runtime.operators.columnar.choice import ColumnSteps, FieldColumn
from bicycle_runtime.operators.columnar.folded import (
    Folded,
    PackedFolded,
    digits_of,
    joined_folded,
)
from bicycle_runtime.operators.columnar.frames import Frame
from bicycle_runtime.operators.columnar.kernel import evaluate
from bicycle_runtime.operators.columnar.keys import (
    KeyCodes,
    Keys,
    PackedKeys,
    key_column,
    packed_keys,
)
from bicycle_runtime.operators.columnar.vectors import Refused, Vector

__all__ = ["ColumnFold", "ColumnPartials"]

_ROWS_MAX = 1 << 18  # rows that are held back at most; then what they fold to travels
_KEYS_MAX = 1 << 18  # keys that are known from one epoch to the next


@dataclass(slots=True)
class ColumnPartials:
    """Contents that were folded in columns, each of a key and a window, and no two of the same.

    Shape: as many contents as item i of ``lengths`` says belong to key i; ``starts`` has the start
    of the window of each, and each of ``columns`` what an aggregate folded.
    """

    key_count: int
    keys: PackedKeys
    lengths: PackedInts
    starts: PackedInts
    columns: list[PackedFolded]


class ColumnFold:
    """Folds the records of an epoch.

    Args:
        chosen: Windows, and what contents are made of.
        group_count: Key groups.
    """

    def __init__(self, chosen: ColumnSteps, *, group_count: int) -> None:
        self._columns = [(column, repr(column.value)) for column in chosen.columns]
        self._slide_ms, self._offset_ms = chosen.slide_ms, chosen.offset_ms
        self._group_count = group_count
        self._codes = KeyCodes(group_count)
        self.clear()

    def clear(self) -> None:
        """Forget everything that was added."""
        if len(self._codes) > _KEYS_MAX:
            self._codes = KeyCodes(self._group_count)
        self._keys: list[Keys] = []
        self._starts: list[Any] = []
        self._held: list[_Selected] = []
        self._count = 0
        self._total_max = 0

    @property
    def is_full(self) -> bool:
        """Whether what was folded should travel now."""
        return self._count >= _ROWS_MAX

    def add(self, key: Vector, times: Any, frame: Frame, *, least_open: int) -> bool:
        """Take records in; tell whether they were taken.

        They must be folded one by one when an int has more than 64 bits or a sum might have, when
        what is to be folded is no number, or when a window may be closed.

        Args:
            key: Of each record.
            times: Of each, as an array of ints.
            frame: The records, at least one.
            least_open: The start of the earliest window that may be open.
        """
        keys, selected = key_column(key), self._selected(frame)
        if keys is None or selected is None:
            return False
        if self._keys and not self._keys[0].is_like(keys):
            return False
        starts = times - (times - self._offset_ms) % self._slide_ms
        total_max = self._total_max + frame.count * max(
            (one.magnitude() for one in selected.values() if one.kind == "int"), default=0
        )
        if starts.min() < least_open or total_max > TOTAL_MAX:
            return False
        self._total_max = total_max
        self._keys.append(keys)
        self._starts.append(starts)
        self._held.append(selected)
        self._count += frame.count
        return True

    def take(self) -> list[tuple[int, ColumnPartials]]:
        """Return what was folded, a block per key group, and forget it."""
        if not self._held:
            return []
        np = numpy()
        codes, starts = self._codes.of(self._keys), np.concatenate(self._starts)
        groups = self._codes.groups[codes]
        windows, window_count = as_numbers(starts, self._slide_ms)
        runs = Runs((groups * len(self._codes) + codes) * window_count + windows)
        codes, starts = runs.of(codes), runs.of(starts)
        selected = {key: joined_folded([one[key] for one in self._held]) for key in self._held[0]}
        contents = [self._content(column, name, selected, runs) for column, name in self._columns]
        bounds = np.array(steps(codes))  # of the contents of a key
        assert self._codes.keys is not None
        keys = self._codes.keys.picked(codes[bounds[:-1]])
        self.clear()
        groups = runs.of(groups)[bounds[:-1]]
        return list(_blocks(keys, groups, bounds, starts=starts, contents=contents))

    def _selected(self, frame: Frame) -> _Selected | None:
        """Return what aggregates fold of records; None when they must be folded one by one."""
        found: _Selected = {}
        for column, name in self._columns:
            key = name, column.is_sum
            if column.value is None or key in found:
                continue
            try:
                numbers = evaluate(column.value, frame).numbers
            except Refused:
                return None
            folded = None if numbers is None else _folded(numbers, is_sum=column.is_sum)
            if folded is None or (self._held and self._held[0][key].kind != folded.kind):
                return None
            found[key] = folded
        return found

    @staticmethod
    def _content(column: FieldColumn, name: str, selected: _Selected, runs: Runs) -> Folded:
        if column.value is None:
            return Folded("int", {0: runs.lengths()})
        return selected[name, column.is_sum].joined(runs, column.ufunc)


_Selected = dict[tuple[str, bool], Folded]  # by value, and whether it is to be summed up


def _folded(numbers: Any, *, is_sum: bool) -> Folded | None:
    """Return numbers by row; None where arrays do not join them as Python does."""
    if numbers.dtype.kind == "i":
        return Folded("int", {0: numbers})
    if is_sum:
        return digits_of(numbers)
    np = numpy()
    # Which zero is the least depends on their order, and a NaN wins over everything.
    is_ordered = not (np.isnan(numbers) | ((numbers == 0) & np.signbit(numbers))).any()
    return Folded("float", {0: numbers}) if is_ordered else None


def _blocks(
    keys: Keys, groups: Any, bounds: Any, *, starts: Any, contents: Sequence[Folded]
) -> Iterator[tuple[int, ColumnPartials]]:
    """Yield what belongs to each key group.

    Args:
        keys: In the order of their groups.
        groups: The group of each key.
        bounds: Where the contents of each key begin, and where those of the last one end.
        starts: The start of the window of each content.
        contents: What each aggregate folded.
    """
    cuts = steps(groups)
    lengths, namespaces = NarrowInts(numpy().diff(bounds)), NarrowInts(starts)
    packers = [content.packer() for content in contents]
    for (first, end), block_keys in zip(pairwise(cuts), packed_keys(keys, cuts), strict=True):
        part = int(bounds[first]), int(bounds[end])
        yield (
            int(groups[first]),
            ColumnPartials(
                end - first, block_keys, lengths.packed(first, end), namespaces.packed(*part),
                [packed(*part) for packed in packers],
            ),
        )  # fmt: skip
