"""Columns of what aggregates folded: ints, floats, and sums of floats, which are exact.

A sum of floats is kept as the digits of a number: each is an int of 64 bits, at a place that tells
what one of it is worth. Adding digit by digit rounds nothing, so the sum is the same in any order;
only what a window gives is rounded, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import frexp, fsum, ldexp
from typing import Any, Literal

from bicycle_runtime.operators.columnar.arrays import (
    NarrowInts,
    PackedInts,
    Runs,
    magnitude,
    numpy,
    unpacked,
)

__all__ = ["Folded", "FoldedKind", "PackedFolded", "digits_of", "joined_folded", "unpacked_folded"]

FoldedKind = Literal["int", "float", "sum"]
PackedFolded = tuple[FoldedKind, list[tuple[int, PackedInts]]]

# What one of a digit is worth: 2 ** (43 * place - 16). Two places hold what has up to 134 million
# in front of the point, and is no less than a hundredth; and 2 ** 18 digits add up to 2 ** 61.
_BITS, _OFFSET = 43, -16
_PLACES_MAX = 4
_EXPONENT_MAX = 500
_HALF_BITS = 31
_FLOAT = "<f8"


@dataclass(frozen=True, slots=True)
class Folded:
    """A number for each row, or for each content.

    Shape: ``parts`` has arrays by place: of a sum its digits, of anything else the numbers, at 0.
    """

    kind: FoldedKind
    parts: dict[int, Any]

    def __getitem__(self, rows: slice) -> Folded:
        return Folded(self.kind, {place: part[rows] for place, part in self.parts.items()})

    def joined(self, runs: Runs, ufunc: str) -> Folded:
        """Return the numbers of each run joined by a function of two numbers."""
        return Folded(
            self.kind, {place: runs.joined(part, ufunc) for place, part in self.parts.items()}
        )

    def magnitude(self) -> int:
        """Return the greatest distance of an int from zero."""
        return 0 if self.kind == "float" else max(map(magnitude, self.parts.values()))

    def numbers(self) -> list[Any]:
        """Return the numbers as Python's; sums of floats are rounded."""
        if self.kind != "sum":
            found: list[Any] = self.parts[0].tolist()
            return found
        # hot path: 200 ns a content.
        return list(map(fsum, self.floats()))

    def floats(self) -> Iterable[tuple[float, ...]]:
        """Yield floats that add up to each sum."""
        np, halves = numpy(), []
        for place, digits in self.parts.items():
            unit = _unit(place)
            high = digits >> _HALF_BITS
            halves.append((high.astype(np.float64) * (unit * (1 << _HALF_BITS))).tolist())
            low = digits - (high << _HALF_BITS)
            halves.append((low.astype(np.float64) * unit).tolist())
        return zip(*halves, strict=True)

    def packer(self) -> Callable[[int, int], PackedFolded]:
        """Return what gives the numbers from one position to before another as plain data."""
        kind = self.kind
        if kind == "float":
            floats = self.parts[0].astype(_FLOAT)
            return lambda first, end: (kind, [(0, (0, _FLOAT, floats[first:end].tobytes()))])
        narrow = [(place, NarrowInts(part)) for place, part in self.parts.items()]
        return lambda first, end: (
            kind,
            [(place, part.packed(first, end)) for place, part in narrow],
        )


def digits_of(column: Any) -> Folded | None:
    """Return floats by digits; None when one is no finite number, or they lie too far apart.

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
    # hot path: 5 ns a number and place. Each step is exact: units are powers of two, and what
    # rounding to a whole number leaves has no more digits than there were.
    for place in range(top, top - _PLACES_MAX, -1):
        unit = _unit(place)
        digits = np.rint(rest * (1 / unit))
        rest = rest - digits * unit
        parts[place] = digits.astype(np.int64)
        if not rest.any():
            return Folded("sum", parts)
    return None


def joined_folded(several: Sequence[Folded]) -> Folded:
    """Return the numbers of several, which are of one kind, one behind the other."""
    np = numpy()
    if len(several) == 1:
        return several[0]
    places = sorted({place for one in several for place in one.parts}, reverse=True)
    counts = [len(next(iter(one.parts.values()))) for one in several]
    zeros = np.zeros(max(counts), np.int64)
    return Folded(
        several[0].kind,
        {
            place: np.concatenate(
                [one.parts.get(place, zeros[:n]) for one, n in zip(several, counts, strict=True)]
            )
            for place in places
        },
    )


def unpacked_folded(several: Sequence[PackedFolded]) -> Folded:
    """Return in one what was packed; all of one kind."""
    kind, first = several[0]
    places = [place for place, _ in first]
    if any([place for place, _ in parts] != places for _, parts in several):
        return joined_folded([unpacked_folded([one]) for one in several])
    # hot path: one array for a place of all blocks; there is a block for each key group.
    by_place = zip(*([packed for _, packed in parts] for _, parts in several), strict=True)
    if kind != "float":
        return Folded(kind, dict(zip(places, map(unpacked, by_place), strict=True)))
    [packed] = by_place
    return Folded(kind, {0: numpy().frombuffer(b"".join(data for _, _, data in packed), _FLOAT)})


def _unit(place: int) -> float:
    return ldexp(1.0, _BITS * place + _OFFSET)
