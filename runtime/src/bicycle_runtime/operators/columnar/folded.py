"""Columns of folded values: numbers, exact sums of floats, texts and sets.

A sum of floats is kept as the digits of a number: each is an int of 64 bits, at a place that
determines the worth of one unit. Adding digit by digit rounds nothing, so the sum is the same in
any order; only the result of a window is rounded, once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import frexp, fsum, ldexp
from typing import Any, Literal, Self

from bicycle_runtime.frames.arrays import (
    NarrowInts,
    PackedInts,
    Runs,
    arrow,
    magnitude,
    numpy,
    unpack,
)
from bicycle_runtime.frames.keys import ranks_of, unpacked_values, values_packer

FoldedKind = Literal["int", "float", "sum", "text", "ints", "texts"]
PackedFolded = tuple[FoldedKind, Any]

# The worth of one unit of a digit: 2 ** (43 * place - 16). Two places hold numbers with up to 134
# million in front of the point, and no less than a hundredth; and 2 ** 18 digits add up to 2 ** 61.
_BITS, _OFFSET = 43, -16
_EXPONENTS_MAX = 4
_EXPONENT_MAX = 500
_HALF_BITS = 31
_FLOAT = "<f8"


class Folded(ABC):
    """The folded values of an aggregate, one per row or content."""

    kind: FoldedKind

    @abstractmethod
    def __getitem__(self, rows: slice) -> Self:
        """Return adjacent rows."""

    @abstractmethod
    def joined(self, runs: Runs, ufunc: str) -> Self:
        """Return the values of each run joined.

        Args:
            runs: Of the rows.
            ufunc: Name of a function of two numbers; sets know no other than their union.
        """

    def magnitude(self) -> int:
        """Return the greatest distance of an int from zero."""
        return 0

    @abstractmethod
    def results(self) -> list[Any]:
        """Return the results as Python values: sums rounded, sets as counts."""

    @abstractmethod
    def packer(self) -> Callable[[int, int], PackedFolded]:
        """Return a function that returns the rows between two positions as plain data."""


@dataclass(frozen=True, slots=True)
class FoldedNumbers(Folded):
    """A number for each row.

    Shape: ``parts`` has arrays by place: of a sum its digits, of anything else the numbers, at 0.
    """

    kind: FoldedKind
    parts: dict[int, Any]

    def __getitem__(self, rows: slice) -> FoldedNumbers:
        return FoldedNumbers(
            self.kind, {exponent: part[rows] for exponent, part in self.parts.items()}
        )

    def joined(self, runs: Runs, ufunc: str) -> FoldedNumbers:
        return FoldedNumbers(
            self.kind, {exponent: runs.joined(part, ufunc) for exponent, part in self.parts.items()}
        )

    def magnitude(self) -> int:
        return 0 if self.kind == "float" else max(map(magnitude, self.parts.values()))

    def results(self) -> list[Any]:
        if self.kind != "sum":
            found: list[Any] = self.parts[0].tolist()
            return found
        # hot path: 200 ns a content.
        return list(map(fsum, self.floats()))

    def floats(self) -> Iterable[tuple[float, ...]]:
        """Yield floats that add up to each sum."""
        np, halves = numpy(), []
        for exponent, digits in self.parts.items():
            unit = _unit(exponent)
            high = digits >> _HALF_BITS
            halves.append((high.astype(np.float64) * (unit * (1 << _HALF_BITS))).tolist())
            low = digits - (high << _HALF_BITS)
            halves.append((low.astype(np.float64) * unit).tolist())
        return zip(*halves, strict=True)

    def packer(self) -> Callable[[int, int], PackedFolded]:
        kind = self.kind
        if kind == "float":
            floats = self.parts[0].astype(_FLOAT)
            return lambda first, end: (kind, [(0, (0, _FLOAT, floats[first:end].tobytes()))])
        narrow = [(exponent, NarrowInts(part)) for exponent, part in self.parts.items()]
        return lambda first, end: (
            kind,
            [(exponent, part.pack(first, end)) for exponent, part in narrow],
        )


@dataclass(frozen=True, slots=True)
class FoldedTexts(Folded):
    """A text for each row, in an array of Arrow."""

    texts: Any
    kind: FoldedKind = "text"

    def __getitem__(self, rows: slice) -> FoldedTexts:
        return FoldedTexts(self.texts[rows])

    def joined(self, runs: Runs, ufunc: str) -> FoldedTexts:
        ranks, different = ranks_of(self.texts)
        return FoldedTexts(different.take(arrow().array(runs.joined(ranks, ufunc))))

    def results(self) -> list[Any]:
        found: list[Any] = self.texts.to_pylist()
        return found

    def packer(self) -> Callable[[int, int], PackedFolded]:
        packed = values_packer(self.texts)
        return lambda first, end: (self.kind, packed(first, end))


@dataclass(frozen=True, slots=True)
class FoldedSets(Folded):
    """Different values for each row.

    Shape: ``sizes`` has the number of the ``values`` in each row, which are an array of Arrow.
    """

    kind: FoldedKind
    sizes: Any
    values: Any

    def __getitem__(self, rows: slice) -> FoldedSets:
        ends = self._ends()
        first, end, _ = rows.indices(len(self.sizes))
        return FoldedSets(self.kind, self.sizes[rows], self.values[ends[first] : ends[end]])

    def joined(self, runs: Runs, ufunc: str) -> FoldedSets:  # noqa: ARG002  # sets have one
        np = numpy()
        owners = np.repeat(runs.numbers(), self.sizes)
        coded = self.values.dictionary_encode()
        pairs = Runs(owners * len(coded.dictionary) + coded.indices.to_numpy())
        sizes = np.bincount(pairs.of(owners), minlength=len(runs))
        return FoldedSets(self.kind, sizes, self.values.take(arrow().array(pairs.firsts)))

    def results(self) -> list[Any]:
        found: list[Any] = self.sizes.tolist()
        return found

    def sets(self) -> Iterator[set[Any]]:
        """Yield the values of each row."""
        listed = self.values.to_pylist()
        return (set(listed[first:end]) for first, end in pairwise(self._ends().tolist()))

    def packer(self) -> Callable[[int, int], PackedFolded]:
        sizes, values, ends = NarrowInts(self.sizes), values_packer(self.values), self._ends()
        return lambda first, end: (
            self.kind, (sizes.pack(first, end), values(int(ends[first]), int(ends[end]))),
        )  # fmt: skip

    def _ends(self) -> Any:
        np = numpy()
        return np.concatenate(([0], np.cumsum(self.sizes)))


def digits_of(column: Any) -> FoldedNumbers | None:
    """Return floats as digits, or None if infinite or too far apart.

    Example:
        >>> halves = digits_of(numpy().array([0.1, 0.2, 0.3]))
        >>> [fsum(floats) for floats in halves.floats()]
        [0.1, 0.2, 0.3]
    """
    np = numpy()
    exponent = frexp(float(np.abs(column).max()))[1]
    if not (np.isfinite(column).all() and -_EXPONENT_MAX < exponent < _EXPONENT_MAX):
        return None
    top = -((_BITS + _OFFSET - exponent) // _BITS)
    parts, rest = {}, column
    # hot path: 5 ns a number and place. Each step is exact: units are powers of two, and the rest
    # after rounding to a whole number has no more digits than before.
    for exponent in range(top, top - _EXPONENTS_MAX, -1):
        unit = _unit(exponent)
        digits = np.rint(rest * (1 / unit))
        rest = rest - digits * unit
        parts[exponent] = digits.astype(np.int64)
        if not rest.any():
            return FoldedNumbers("sum", parts)
    return None


def joined_folded(several: Sequence[Any]) -> Any:
    """Return the rows of several, which are of one kind, one behind the other."""
    np, first = numpy(), several[0]
    if len(several) == 1:
        return first
    if isinstance(first, FoldedTexts):
        return FoldedTexts(arrow().concat_arrays([one.texts for one in several]))
    if isinstance(first, FoldedSets):
        sizes = np.concatenate([one.sizes for one in several])
        return FoldedSets(first.kind, sizes, arrow().concat_arrays([one.values for one in several]))
    exponents = sorted({exponent for one in several for exponent in one.parts}, reverse=True)
    counts = [len(next(iter(one.parts.values()))) for one in several]
    zeros = np.zeros(max(counts), np.int64)
    return FoldedNumbers(
        first.kind,
        {
            exponent: np.concatenate(
                [one.parts.get(exponent, zeros[:n]) for one, n in zip(several, counts, strict=True)]
            )
            for exponent in exponents
        },
    )


def unpacked_folded(several: Sequence[PackedFolded]) -> Folded:
    """Return unpacked values of one kind in one column."""
    kind = several[0][0]
    packed = [data for _, data in several]
    if kind == "text":
        return FoldedTexts(unpacked_values(packed))
    if kind in ("ints", "texts"):
        sizes, values = zip(*packed, strict=True)
        return FoldedSets(kind, unpack(sizes), unpacked_values(values))
    return _unpacked_numbers(kind, packed)


_PackedNumbers = list[tuple[int, PackedInts]]


def _unpacked_numbers(kind: FoldedKind, several: Sequence[_PackedNumbers]) -> FoldedNumbers:
    exponents = [exponent for exponent, _ in several[0]]
    if any([exponent for exponent, _ in parts] != exponents for parts in several):
        found: FoldedNumbers = joined_folded([_unpacked_numbers(kind, [one]) for one in several])
        return found
    # hot path: one array for a place of all blocks; there is a block for each key group.
    by_exponent = zip(*([packed for _, packed in parts] for parts in several), strict=True)
    if kind != "float":
        return FoldedNumbers(kind, dict(zip(exponents, map(unpack, by_exponent), strict=True)))
    [packed] = by_exponent
    floats = numpy().frombuffer(b"".join(data for _, _, data in packed), _FLOAT)
    return FoldedNumbers(kind, {0: floats})


def _unit(exponent: int) -> float:
    return ldexp(1.0, _BITS * exponent + _OFFSET)
