"""Folding fields of records per key and window in arrays, without making the records.

Only what is exact in 64 bits is folded so: counts, and sums, least and greatest values of ints. It
travels as columns; ``FieldMerge`` is at the other end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from bicycle_runtime.operators.arrays import TOTAL_MAX, Runs, as_numbers, magnitude, numpy, steps
from bicycle_runtime.operators.fields import FieldRecords
from bicycle_runtime.operators.folding.blocks import FieldPartials
from bicycle_runtime.operators.folding.field_columns import FieldColumn, field_columns
from bicycle_runtime.operators.folding.key_columns import KeyCodes, key_array, packed_keys, picked
from bicycle_runtime.operators.folding.packed_ints import NarrowInts
from bicycle_runtime.operators.windows.strips import Strips
from bicycle_runtime.records.rows import plain_fields
from bicycle_sdk.windows import AlignedWindows, WindowPlan

__all__ = ["FieldFold", "field_fold"]

_ROWS_MAX = 1 << 18  # rows that are held back at most; then what they fold to travels
_KEYS_MAX = 1 << 18  # keys that are known from one epoch to the next


def field_fold(
    plan: WindowPlan, functions: Sequence[Any], record_type: Any,
    *, key: str | None, time: str | None, group_count: int,
) -> FieldFold | None:  # fmt: skip
    """Return what folds records by field; None when that would not give the same.

    Args:
        plan: The window.
        functions: Its aggregates, as they are carried out.
        record_type: Declared type of the records, None when unknown.
        key: Field of the key, None when the key is something else.
        time: The same for the event time.
        group_count: Key groups.
    """
    fields = plain_fields(record_type)
    if key is None or time is None or key not in fields or fields.get(time) is not int:
        return None
    if not isinstance(plan.assigner, AlignedWindows):
        return None
    strips = Strips(plan.assigner)
    if not strips.are_slides:
        return None
    columns = field_columns(functions)
    if columns is None or any(
        one.field is not None and fields.get(one.field) is not int for one in columns
    ):
        return None
    return FieldFold(key, time, columns, strips=strips, group_count=group_count)


class FieldFold:
    """Folds the records of an epoch.

    Args:
        key: Field of the key, of strings or of ints of 64 bits.
        time: Field of the event time, of ints.
        columns: What contents are made of.
        strips: The windows; each slide must be one strip, without a gap.
        group_count: Key groups.
    """

    def __init__(
        self,
        key: str,
        time: str,
        columns: Sequence[FieldColumn],
        *,
        strips: Strips,
        group_count: int,
    ) -> None:
        self._key, self._time, self._columns = key, time, columns
        self._fields = {column.field for column in columns if column.field is not None}
        self._strips = strips
        self._group_count = group_count
        self._codes = KeyCodes(group_count)
        self.clear()

    def clear(self) -> None:
        """Forget everything that was added."""
        if len(self._codes) > _KEYS_MAX:
            self._codes = KeyCodes(self._group_count)
        self._keys: list[Any] = []
        self._held: list[dict[str, Any]] = []
        self._count = 0
        self._total_max = 0

    @property
    def is_full(self) -> bool:
        """Whether what was folded should travel now."""
        return self._count >= _ROWS_MAX

    def add(self, records: Sequence[Any], closed: int) -> int | None:
        """Take records in; return the time of the last one.

        None when they must be folded one by one: they are no ``FieldRecords``, an int has more
        than 64 bits or a sum might have, or a window may be closed. Then none of them was taken.

        Args:
            records: At least one.
            closed: Windows that end by then are closed.
        """
        if not isinstance(records, FieldRecords):
            return None
        arrays = {name: records.ints(name) for name in (*self._fields, self._time)}
        if any(array is None for array in arrays.values()):
            return None
        keys = key_array(records, self._key)
        if keys is None:
            return None
        starts = self._strips.array_starts(arrays[self._time])
        total_max = self._total_max + len(records) * max(
            (magnitude(arrays[name]) for name in self._fields), default=0
        )
        if starts.min() < self._strips.least_open(closed) or total_max > TOTAL_MAX:
            return None
        self._total_max = total_max
        held = {name: arrays[name] for name in self._fields}
        self._keys.append(keys)
        self._held.append({**held, _STARTS: starts})
        self._count += len(records)
        return int(arrays[self._time][-1])

    def take(self) -> list[tuple[int, FieldPartials]]:
        """Return what was folded, a block per key group, and start anew."""
        if not self._held:
            return []
        np = numpy()
        rows = {name: np.concatenate([part[name] for part in self._held]) for name in self._held[0]}
        rows[_CODES] = self._codes.of(self._keys)
        groups = self._codes.groups[rows[_CODES]]
        strips, strip_count = as_numbers(rows[_STARTS], self._strips.slide_ms)
        runs = Runs((groups * len(self._codes) + rows[_CODES]) * strip_count + strips)
        codes, starts = runs.of(rows[_CODES]), runs.of(rows[_STARTS])
        contents = [self._content(column, rows, runs) for column in self._columns]
        bounds = np.array(steps(codes))  # of the contents of a key
        keys = picked(self._codes.keys, codes[bounds[:-1]])
        self.clear()
        groups = runs.of(groups)[bounds[:-1]]
        return list(_blocks(keys, groups, bounds, starts=starts, contents=contents))

    @staticmethod
    def _content(column: FieldColumn, rows: dict[str, Any], runs: Runs) -> Any:
        if column.field is None:
            return runs.lengths()
        return runs.joined(rows[column.field], column.ufunc)


_CODES, _STARTS = "", " "  # No field has such a name.


def _blocks(
    keys: Any, groups: Any, bounds: Any, *, starts: Any, contents: Sequence[Any]
) -> Iterator[tuple[int, FieldPartials]]:
    """Yield what belongs to each key group.

    Args:
        keys: In the order of their groups.
        groups: The group of each key.
        bounds: Where the contents of each key begin, and where those of the last one end.
        starts: The start of the window of each content.
        contents: What each aggregate folded.
    """
    cuts = steps(groups)
    lengths, places = NarrowInts(numpy().diff(bounds)), NarrowInts(starts)
    columns = list(map(NarrowInts, contents))
    for (first, end), block_keys in zip(pairwise(cuts), packed_keys(keys, cuts), strict=True):
        part = int(bounds[first]), int(bounds[end])
        yield (
            int(groups[first]),
            FieldPartials(
                end - first, block_keys, lengths.packed(first, end), places.packed(*part),
                [column.packed(*part) for column in columns],
            ),
        )  # fmt: skip
