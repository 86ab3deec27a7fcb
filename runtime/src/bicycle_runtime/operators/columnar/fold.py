"""The fold of columns by key and window before the shuffle, without records.

Only aggregates with exactly the same result are folded so: counts, sums of ints and floats, least
and greatest of them and of texts, and sets of ints or texts. The fold travels as columns;
``ColumnMerge`` is at the other end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bicycle_runtime.expressions.evaluation import evaluate
from bicycle_runtime.frames.arrays import (
    TOTAL_MAX,
    NarrowInts,
    PackedInts,
    Runs,
    as_numbers,
    numpy,
    steps,
)
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.keys import KeyCodes, Keys, PackedKeys, packed_keys, values_array
from bicycle_runtime.frames.vectors import Mask, Vector
from bicycle_runtime.operators.columnar.field_columns import (
    FieldColumn,
    FoldedForm,
    accumulators_of,
)
from bicycle_runtime.operators.columnar.folded import (
    Folded,
    FoldedKind,
    FoldedNumbers,
    FoldedSets,
    FoldedTexts,
    PackedFolded,
    digits_of,
    joined_folded,
)
from bicycle_runtime.operators.preaggregation.slices import WindowSlices
from bicycle_sdk.windows import AlignedWindows, SessionWindows

_ROWS_MAX = 1 << 18  # rows that are held back at most; then their fold travels
_KEYS_MAX = 1 << 18  # keys that are known from one epoch to the next
# hot path: columns cost 50 us a block and no more, contents 4 us each, of which keys have few.
_CONTENTS_MIN = 8


@dataclass(slots=True)
class Partials:
    """Contents of a key group by window: ``parts`` are (start, keys, contents).

    Sessions are one part, whose start is (starts, ends).
    """

    parts: list[tuple[Any, list[Any], list[Any]]]


@dataclass(slots=True)
class ColumnPartials:
    """Contents folded in columns, one per key and window.

    Shape: item i of ``lengths`` is the number of contents of key i; ``starts`` has the start of the
    slice or session of each, ``ends`` the end if it is a session, and each of ``columns`` the fold
    of one aggregate.
    """

    key_count: int
    keys: PackedKeys
    lengths: PackedInts
    starts: PackedInts
    ends: PackedInts | None
    columns: list[PackedFolded]


class ColumnFold:
    """Folds the records of an epoch.

    Args:
        columns: The parts of the contents of windows.
        windows: The windows; sessions have a fixed gap.
        group_count: Key groups.
    """

    def __init__(
        self, columns: Sequence[FieldColumn], windows: AlignedWindows | SessionWindows,
        *, group_count: int,
    ) -> None:  # fmt: skip
        self.columns = columns
        called = (one.selects for one in columns if one.value is None)
        # Places of the aggregates whose selectors must be called, which come first with them.
        self.calls = list(dict.fromkeys(index for index in called if index is not None))
        self._slices = None
        self._gap_ms = 0
        if isinstance(windows, SessionWindows):
            self._gap_ms = windows.gap_ms or 0
        else:
            self._slices = WindowSlices(windows)
        self._group_count = group_count
        self._codes = KeyCodes(group_count)
        self.clear()

    def clear(self) -> None:
        """Forget everything that was added."""
        if len(self._codes) > _KEYS_MAX:
            self._codes = KeyCodes(self._group_count)
        self._keys: list[Keys] = []
        # Starts of slices, or the times of the records of sessions.
        self._slice_starts: list[Any] = []
        self._held: list[_Selected] = []
        self._count = 0
        self._total_max = 0

    @property
    def is_full(self) -> bool:
        """Return whether the folded contents should be sent now."""
        return self._count >= _ROWS_MAX

    def starts(self, times: Any) -> tuple[Any, Mask | None]:
        """Return the starts of slices of the times in windows, and a mask unless all are.

        For sessions, these are the times.
        """
        if self._slices is None:
            return times, None
        starts, is_inside = self._slices.starts_in_windows(times)
        if is_inside is None or is_inside.all():
            return starts, None
        return starts[is_inside], Mask(is_inside)

    def read(self, frame: Frame) -> dict[int, Vector]:
        """Return the values of selectors by the position of their first aggregate.

        Raises:
            Refused: they must be computed one by one.
        """
        return {
            column.selects: evaluate(column.value, frame)
            for column in self.columns
            if column.selects is not None and column.value is not None
        }

    def takes(self, keys: Keys) -> bool:
        """Return whether keys have the type of earlier ones."""
        return not self._keys or self._keys[0].is_like(keys)

    def add(self, keys: Keys, starts: Any, values: Mapping[int, Vector]) -> bool:
        """Add records; return whether columns could fold them.

        The caller must fold the records one by one if an int or a sum may need more than 64 bits,
        or if values have a type that columns do not fold.

        Args:
            keys: Of each record.
            starts: Of the slice of each record, or its time if it opens a session.
            values: Results of selectors, by the index of their first aggregate.
        """
        count, selected = len(keys), self._select(values)
        if selected is None:
            return False
        total_max = self._total_max + count * max(
            (one.magnitude() for one in selected.values() if one.kind == "int"), default=0
        )
        if total_max > TOTAL_MAX:
            return False
        self._total_max = total_max
        self._keys.append(keys)
        self._slice_starts.append(starts)
        self._held.append(selected)
        self._count += count
        return True

    def take(self) -> list[tuple[int, ColumnPartials | Partials]]:
        """Return the folded contents as a block per key group, and clear them.

        Where there is little for each group, blocks have no columns.
        """
        if not self._held:
            return []
        np = numpy()
        codes, slice_starts = self._codes.of(self._keys), np.concatenate(self._slice_starts)
        groups = self._codes.groups[codes]
        numbers, ends = groups * len(self._codes) + codes, None
        if self._slices is None:
            runs = Runs(numbers, slice_starts, gap_ms=self._gap_ms)
            ends = runs.joined(slice_starts, "maximum") + self._gap_ms
        else:
            windows, window_count = as_numbers(slice_starts, self._slices.step_ms)
            runs = Runs(numbers * window_count + windows)
        codes, starts = runs.of(codes), runs.of(slice_starts)
        selected = {key: joined_folded([one[key] for one in self._held]) for key in self._held[0]}
        contents = [self._content(column, selected, runs) for column in self.columns]
        known, groups, spans = self._codes.keys, runs.of(groups), (starts, ends)
        assert known is not None
        self.clear()
        if len(codes) < _CONTENTS_MIN * len(steps(groups)):
            accumulators = accumulators_of(self.columns, contents)
            return list(_few(known.take(codes).to_list(), groups, spans, list(accumulators)))
        bounds = np.array(steps(codes))  # of the contents of a key
        firsts = bounds[:-1]
        keys = known.take(codes[firsts])
        return list(_blocks(keys, groups[firsts], bounds, spans=spans, contents=contents))

    def _select(self, values: Mapping[int, Vector]) -> _Selected | None:
        """Return the values that aggregates fold, or None if records need single folds."""
        found: _Selected = {}
        for column in self.columns:
            key = _name(column), column.form
            if column.selects is None or key in found:
                continue
            folded = _fold(values[column.selects], column.form)
            if folded is None or (self._held and self._held[0][key].kind != folded.kind):
                return None
            found[key] = folded
        return found

    @staticmethod
    def _content(column: FieldColumn, selected: _Selected, runs: Runs) -> Folded:
        if column.selects is None:
            return FoldedNumbers("int", {0: runs.lengths()})
        return selected[_name(column), column.form].joined(runs, column.ufunc)


_Selected = dict[tuple[str, str], Folded]  # by value, and its fold


def _name(column: FieldColumn) -> str:
    """Return an identifier of a column's value: equal values are folded once."""
    return f"call {column.selects}" if column.value is None else repr(column.value)


def _fold(found: Vector, form: FoldedForm) -> Folded | None:
    """Return values by row; None where columns do not join them as Python does."""
    np = numpy()
    if form == "set":
        values = values_array(found)
        if values is None:
            return None
        kind: FoldedKind = "ints" if found.kinds == {int} else "texts"
        return FoldedSets(kind, np.ones(found.count, np.int64), values)
    numbers = found.numbers
    if numbers is None:
        texts = values_array(found) if form == "extreme" and found.kinds == {str} else None
        return None if texts is None else FoldedTexts(texts)
    if numbers.dtype.kind == "i":
        return FoldedNumbers("int", {0: numbers})
    if form == "sum":
        return digits_of(numbers)
    # Which zero is the least depends on their order, and a NaN wins over everything.
    is_ordered = not (np.isnan(numbers) | ((numbers == 0) & np.signbit(numbers))).any()
    return FoldedNumbers("float", {0: numbers}) if is_ordered else None


def _few(
    keys: list[Any], groups: Any, spans: tuple[Any, Any], contents: list[Any]
) -> Iterator[tuple[int, Partials]]:
    """Yield the contents of each key group in the form of a fold of records.

    Args: of each content, by key group; otherwise as of ``_blocks``.
    """
    starts, ends = (None if span is None else span.tolist() for span in spans)
    assert starts is not None
    cuts = steps(groups)
    for first, end in pairwise(cuts):
        parts: dict[Any, tuple[list[Any], list[Any]]] = {}
        if ends is not None:
            bounds: Any = (starts[first:end], ends[first:end])
            found = [(bounds, keys[first:end], contents[first:end])]
        else:
            for row in range(first, end):
                part = parts.setdefault(starts[row], ([], []))
                part[0].append(keys[row])
                part[1].append(contents[row])
            found = [(start, *part) for start, part in parts.items()]
        yield int(groups[first]), Partials(found)


def _blocks(
    keys: Keys, groups: Any, bounds: Any, *, spans: tuple[Any, Any], contents: Sequence[Folded]
) -> Iterator[tuple[int, ColumnPartials]]:
    """Yield the contents of each key group as columns.

    Args:
        keys: In the order of their groups.
        groups: The group of each key.
        bounds: The start of the contents of each key, and the end of the last contents.
        spans: The start of the slice or session of each content; the ends of sessions, else None.
        contents: The fold of each aggregate.
    """
    cuts = steps(groups)
    lengths = NarrowInts(numpy().diff(bounds))
    starts, ends = (None if span is None else NarrowInts(span) for span in spans)
    assert starts is not None
    packers = [content.packer() for content in contents]
    for (first, end), block_keys in zip(pairwise(cuts), packed_keys(keys, cuts), strict=True):
        part = int(bounds[first]), int(bounds[end])
        yield (
            int(groups[first]),
            ColumnPartials(
                end - first, block_keys, lengths.pack(first, end), starts.pack(*part),
                None if ends is None else ends.pack(*part),
                [packed(*part) for packed in packers],
            ),
        )  # fmt: skip
