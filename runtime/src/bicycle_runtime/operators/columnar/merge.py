"""The merge of columns that several tasks folded, after the shuffle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bicycle_runtime.frames.arrays import TOTAL_MAX, Runs, as_numbers, numpy, steps, unpack
from bicycle_runtime.frames.keys import Keys, are_alike, ordered, unpacked_keys
from bicycle_runtime.operators.columnar.field_columns import FieldColumn, accumulators_of
from bicycle_runtime.operators.columnar.fold import ColumnPartials
from bicycle_runtime.operators.columnar.folded import Folded, joined_folded, unpacked_folded
from bicycle_runtime.operators.preaggregation.accumulators import Part, Session


@dataclass(slots=True)
class ColumnWindow:
    """The content of the slice that begins at ``start``: complete, or a part.

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

    def __len__(self) -> int:
        return len(self.codes)

    def parts(self, columns: Sequence[FieldColumn]) -> Iterator[Part]:
        """Yield the contents to store, by key group."""
        # hot path: 50 ns a key; old strings are far from each other in memory, and cost 90.
        keys = self.names.take(self.codes).to_list()
        accumulators = list(accumulators_of(columns, self.contents))
        for begin, end in pairwise(steps(self.groups)):
            yield self.start, int(self.groups[begin]), keys[begin:end], accumulators[begin:end]


def result_columns(several: Sequence[ColumnWindow]) -> tuple[Any, list[Any], list[list[Any]]]:
    """Return the starts, keys and results of each aggregate, of slices of one merge."""
    np = numpy()
    starts = np.repeat([one.start for one in several], list(map(len, several)))
    keys = several[0].names.take(np.concatenate([one.codes for one in several])).to_list()
    contents = zip(*(one.contents for one in several), strict=True)
    return starts, keys, [joined_folded(content).results() for content in contents]


class ColumnMerge:
    """Joins the blocks of an epoch.

    Args:
        columns: The parts of contents.
        step_ms: The starts of slices differ by multiples of this.
    """

    def __init__(self, columns: Sequence[FieldColumn], *, step_ms: int = 1) -> None:
        self.columns = columns
        self._step_ms = step_ms
        self._blocks: list[tuple[int, ColumnPartials]] = []

    def clear(self) -> None:
        """Forget all blocks."""
        self._blocks.clear()

    def add(self, group: int, block: ColumnPartials) -> None:
        """Take a block of a key group."""
        self._blocks.append((group, block))

    def take(self) -> Iterator[ColumnWindow]:
        """Yield all slices, and forget them."""
        taken = self._unpack()
        for blocks, contents in taken:
            yield from self._windows(blocks, contents, is_whole=len(taken) == 1)

    def take_sessions(self) -> Iterator[Session]:
        """Yield and clear all sessions; sessions of different tasks may touch."""
        for blocks, contents in self._unpack():
            lengths = unpack(block.lengths for _, block in blocks)
            owners = numpy().repeat(numpy().arange(len(lengths)), lengths)
            keys = unpacked_keys([block.keys for _, block in blocks])
            spans = (
                unpack(block.starts for _, block in blocks).tolist(),
                unpack(block.ends for _, block in blocks if block.ends is not None).tolist(),
            )
            yield from map(
                Session,
                _groups(blocks)[owners].tolist(),
                keys.take(owners).to_list(),
                *spans,
                accumulators_of(self.columns, contents),
            )

    def _unpack(self) -> list[tuple[_Blocks, list[Folded]]]:
        """Return all blocks with their contents: together, or singly where required."""
        blocks, self._blocks = self._blocks, []
        if not blocks:
            return []
        if are_alike(block.keys for _, block in blocks) and _are_one_kind(blocks):
            by_column = zip(*(block.columns for _, block in blocks), strict=True)
            contents = list(map(unpacked_folded, by_column))
            if max(content.magnitude() for content in contents) * len(blocks) <= TOTAL_MAX:
                return [(blocks, contents)]
        # Strings beside ints, ints beside floats, or a sum might have more than 64 bits.
        return [
            ([(group, block)], [unpacked_folded([column]) for column in block.columns])
            for group, block in blocks
        ]

    def _windows(
        self,
        blocks: _Blocks,
        contents: Sequence[Folded],
        *,
        is_whole: bool,
    ) -> Iterator[ColumnWindow]:
        np = numpy()
        keys = unpacked_keys([block.keys for _, block in blocks])
        names, group_of_name, codes = ordered(keys, _groups(blocks))
        codes = np.repeat(codes, unpack(block.lengths for _, block in blocks))
        starts = unpack(block.starts for _, block in blocks)
        windows, _ = as_numbers(starts, self._step_ms)
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


_Blocks = Sequence[tuple[int, ColumnPartials]]


def _groups(blocks: _Blocks) -> Any:
    """Return the key group of each key."""
    return numpy().repeat([group for group, _ in blocks], [b.key_count for _, b in blocks])


def _are_one_kind(blocks: _Blocks) -> bool:
    """Return whether each aggregate folded numbers of one kind in all blocks."""
    return len({tuple(kind for kind, _ in block.columns) for _, block in blocks}) == 1
