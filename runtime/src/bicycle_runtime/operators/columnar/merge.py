"""The merge of what several tasks folded in columns, behind the shuffle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bicycle_runtime.operators.columnar.arrays import (
    TOTAL_MAX,
    Runs,
    as_numbers,
    numpy,
    steps,
    unpacked,
)
from bicycle_runtime.operators.columnar.choice import FieldColumn
from bicycle_runtime.operators.columnar.fold import ColumnPartials
from bicycle_runtime.operators.columnar.folded import Folded, unpacked_folded
from bicycle_runtime.operators.columnar.keys import Keys, are_alike, ordered, unpacked_keys
from bicycle_runtime.operators.preaggregation.accumulators import Part

__all__ = ["ColumnMerge", "ColumnWindow"]


@dataclass(slots=True)
class ColumnWindow:
    """What arrived for the window that begins at ``start``: all of it, or a part.

    Shape: ``groups``, ``codes`` and each of the ``contents`` have an item for each key, by key
    group and within one in the order in which windows fire. ``names`` has the key of each code,
    in a column.
    """

    start: int
    groups: Any
    codes: Any
    contents: list[Folded]
    names: Keys
    is_whole: bool

    def keys(self) -> list[Any]:
        """Return the keys."""
        # hot path: 50 ns a key; strings that are there by now lie far from each other, and cost 90.
        return self.names.picked(self.codes).listed()

    def columns(self) -> list[list[Any]]:
        """Return the number that each aggregate comes to, by key."""
        return [content.numbers() for content in self.contents]

    def parts(self, columns: Sequence[FieldColumn]) -> Iterator[Part]:
        """Yield what is to be kept, by key group."""
        folded = zip(columns, self.contents, strict=True)
        contents = [column.accumulators(content) for column, content in folded]
        accumulators, keys = list(zip(*contents, strict=True)), self.keys()
        for begin, end in pairwise(steps(self.groups)):
            yield self.start, int(self.groups[begin]), keys[begin:end], accumulators[begin:end]


class ColumnMerge:
    """Joins the blocks of an epoch.

    Args:
        columns: What contents are made of.
        slide_ms: What the starts of windows are multiples of, but for their offset.
    """

    def __init__(self, columns: Sequence[FieldColumn], *, slide_ms: int) -> None:
        self.columns = columns
        self._slide_ms = slide_ms
        self._blocks: list[tuple[int, ColumnPartials]] = []

    def clear(self) -> None:
        """Forget all blocks."""
        self._blocks.clear()

    def add(self, group: int, block: ColumnPartials) -> None:
        """Take a block of a key group."""
        self._blocks.append((group, block))

    def take(self) -> Iterator[ColumnWindow]:
        """Yield all windows, and forget them."""
        blocks, self._blocks = self._blocks, []
        if not blocks:
            return
        if are_alike(block.keys for _, block in blocks) and _are_one_kind(blocks):
            by_column = zip(*(block.columns for _, block in blocks), strict=True)
            contents = list(map(unpacked_folded, by_column))
            if max(content.magnitude() for content in contents) * len(blocks) <= TOTAL_MAX:
                yield from self._windows(blocks, contents, is_whole=True)
                return
        # Strings beside ints, ints beside floats, or a sum might have more than 64 bits.
        for group, block in blocks:
            alone = [unpacked_folded([column]) for column in block.columns]
            yield from self._windows([(group, block)], alone, is_whole=False)

    def _windows(
        self,
        blocks: Sequence[tuple[int, ColumnPartials]],
        contents: Sequence[Folded],
        *,
        is_whole: bool,
    ) -> Iterator[ColumnWindow]:
        np = numpy()
        group_of_key = np.repeat([group for group, _ in blocks], [b.key_count for _, b in blocks])
        keys = unpacked_keys([block.keys for _, block in blocks])
        names, group_of_name, codes = ordered(keys, group_of_key)
        codes = np.repeat(codes, unpacked(block.lengths for _, block in blocks))
        starts = unpacked(block.starts for _, block in blocks)
        windows, _ = as_numbers(starts, self._slide_ms)
        runs = Runs(windows * len(names) + codes)
        starts, codes = runs.of(starts), runs.of(codes)
        groups = group_of_name[codes]
        folded = zip(contents, self.columns, strict=True)
        joined = [content.joined(runs, column.ufunc) for content, column in folded]
        for begin, end in pairwise(steps(starts)):
            part = slice(begin, end)
            yield ColumnWindow(
                int(starts[begin]), groups[part], codes[part],
                [content[part] for content in joined], names, is_whole,
            )  # fmt: skip


def _are_one_kind(blocks: Sequence[tuple[int, ColumnPartials]]) -> bool:
    """Tell whether each aggregate folded numbers of one kind in all blocks."""
    return len({tuple(kind for kind, _ in block.columns) for _, block in blocks}) == 1
