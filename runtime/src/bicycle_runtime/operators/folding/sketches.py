"""Approximate counts of distinct values, by the theta sketches of Apache DataSketches.

A theta sketch keeps the least hashes it saw. Which ones these are depends on the values alone, so
the estimate is the same for every order and grouping; sketches that are smaller (HyperLogLog) take
the order of arrival into account.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bicycle_sdk.windows import AggregateFunction

__all__ = ["Sketch", "SketchDistinct"]


class Sketch:
    """A sketch that can grow, be joined with others, and be stored.

    Args:
        precision: Binary logarithm of the number of hashes that are kept.
        data: What ``dump`` returned, None for an empty sketch.
    """

    __slots__ = ("_joined", "_new", "precision")

    def __init__(self, precision: int, data: bytes | None = None) -> None:
        self.precision = precision
        self._new: Any = None  # values since the sketch was last joined with another
        self._joined: Any = None
        if data is not None:
            self._joined = _library().compact_theta_sketch.deserialize(data)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sketch, (self.precision, self.dump())

    def dump(self) -> bytes:
        """Return the sketch as bytes."""
        return bytes(self._whole().serialize())

    def update(self, value: Any) -> None:
        """Add a value: str, bytes, int or float; equal numbers are one value."""
        if self._new is None:
            self._new = _library().update_theta_sketch(self.precision)
        self._new.update(_plain(value))

    def union(self, other: Sketch) -> Sketch:
        """Return the sketch of the values of both."""
        both = Sketch(self.precision)
        both._joined = self._union(self._new, self._joined, other._new, other._joined)
        return both

    def estimate(self) -> int:
        """Return about how many values were added."""
        estimate: float = self._whole().get_estimate()
        return round(estimate)

    def _whole(self) -> Any:
        return self._union(self._new, self._joined)

    def _union(self, *sketches: Any) -> Any:
        union = _library().theta_union(self.precision)
        for sketch in sketches:
            if sketch is not None:
                union.update(sketch)
        return union.get_result()


def _library() -> Any:
    # A slow import (numpy): only jobs that use sketches wait for it.
    import datasketches

    return datasketches


def _plain(value: Any) -> Any:
    """Return what is hashed: equal values give equal things, and texts are told from bytes."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bytes):
        return f"b{value.hex()}"
    if isinstance(value, str):
        return f"s{value}"
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return f"i{value}"
    return value


class SketchDistinct(AggregateFunction[Any, Sketch, int]):
    """How many different values a selector finds, about."""

    def __init__(self, selector: Callable[[Any], Any], *, precision: int) -> None:
        self.selector = selector
        self.precision = precision

    def create_accumulator(self) -> Sketch:
        return Sketch(self.precision)

    def add(self, accumulator: Sketch, value: Any) -> Sketch:
        accumulator.update(self.selector(value))
        return accumulator

    def get_result(self, accumulator: Sketch) -> int:
        return accumulator.estimate()

    def merge(self, a: Sketch, b: Sketch) -> Sketch:
        return a.union(b)
