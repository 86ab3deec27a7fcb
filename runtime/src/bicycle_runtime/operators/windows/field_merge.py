"""Joining in arrays what several tasks folded by field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from bicycle_runtime.operators.arrays import (
    TOTAL_MAX,
    Runs,
    as_numbers,
    magnitude,
    numpy,
    steps,
)
from bicycle_runtime.operators.folding.blocks import FieldPartials
from bicycle_runtime.operators.folding.field_columns import FieldColumn
from bicycle_runtime.operators.folding.slots import Part
from bicycle_runtime.state.memory.due import in_order

__all__ = ["FieldMerge", "FieldWindow"]


@dataclass(slots=True)
class FieldWindow:
    """What arrived for the window that begins at ``start``: all of it, or a part.

    Shape: ``groups``, ``codes`` and each of the ``contents`` have an item for each key, by key
    group and within one in the order in which windows fire. ``names`` has the key of each code.
    """

    start: int
    groups: Any
    codes: Any
    contents: list[Any]
    names: Sequence[Any]
    is_whole: bool

    def keys(self) -> list[Any]:
        """Return the keys."""
        return list(map(self.names.__getitem__, self.codes.tolist()))

    def columns(self) -> list[list[int]]:
        """Return what each aggregate folded, by key."""
        return [content.tolist() for content in self.contents]

    def parts(self, columns: Sequence[FieldColumn]) -> Iterator[Part]:
        """Yield what is to be kept, by key group."""
        folded = zip(columns, self.columns(), strict=True)
        contents = [column.accumulators(values) for column, values in folded]
        accumulators, keys = list(zip(*contents, strict=True)), self.keys()
        for begin, end in pairwise(steps(self.groups)):
            yield self.start, int(self.groups[begin]), keys[begin:end], accumulators[begin:end]


class FieldMerge:
    """Joins the blocks of an epoch.

    Args:
        columns: What contents are made of.
    """

    def __init__(self, columns: Sequence[FieldColumn]) -> None:
        self.columns = columns
        self._blocks: list[tuple[int, FieldPartials]] = []

    def clear(self) -> None:
        """Forget all blocks."""
        self._blocks.clear()

    def add(self, group: int, block: FieldPartials) -> None:
        """Take a block of a key group."""
        self._blocks.append((group, block))

    def take(self) -> Iterator[FieldWindow]:
        """Yield all windows, and start anew."""
        blocks, self._blocks = self._blocks, []
        if not blocks:
            return
        by_column = zip(*(block.columns for _, block in blocks), strict=True)
        contents = list(map(_joined, by_column))
        if max(map(magnitude, contents)) * len(blocks) <= TOTAL_MAX:
            yield from self._windows(blocks, contents, is_whole=True)
            return
        for group, block in blocks:  # A sum might have more than 64 bits.
            alone = [_joined([column]) for column in block.columns]
            yield from self._windows([(group, block)], alone, is_whole=False)

    def _windows(
        self,
        blocks: Sequence[tuple[int, FieldPartials]],
        contents: Sequence[Any],
        *,
        is_whole: bool,
    ) -> Iterator[FieldWindow]:
        np = numpy()
        keys = list(chain.from_iterable(block.keys for _, block in blocks))
        names = in_order(set(keys))
        ranks = {name: rank for rank, name in enumerate(names)}
        lengths = _joined(block.lengths for _, block in blocks)
        codes = np.repeat(np.array(list(map(ranks.__getitem__, keys))), lengths)
        group_of_key = np.repeat([group for group, _ in blocks], [len(b.keys) for _, b in blocks])
        groups = np.repeat(group_of_key, lengths)
        starts = _joined(block.starts for _, block in blocks)
        strips, _ = as_numbers(starts)
        runs = Runs((strips * (int(groups.max()) + 1) + groups) * len(names) + codes)
        starts, groups, codes = runs.of(starts), runs.of(groups), runs.of(codes)
        folded = zip(contents, self.columns, strict=True)
        joined = [runs.joined(content, column.ufunc) for content, column in folded]
        for begin, end in pairwise(steps(starts)):
            part = slice(begin, end)
            yield FieldWindow(
                int(starts[begin]), groups[part], codes[part],
                [content[part] for content in joined], names, is_whole,
            )  # fmt: skip


def _joined(parts: Iterable[bytes]) -> Any:
    return numpy().frombuffer(b"".join(parts), numpy().int64)
