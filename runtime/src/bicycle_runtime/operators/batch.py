"""A batch of records in a chain, and the trail that leads each back to its source.

Operators do not carry positions with records. Each notes how many outputs every input had, and
only when somebody asks (a record failed) is the path walked back. So lineage costs nothing per
record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

__all__ = ["Batch", "ExchangeTrail", "Origin", "PickTrail", "SourceTrail", "SpreadTrail", "Trail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a record came from; behind an exchange the span of source positions of its batch."""

    source: str
    shard: str
    offset: int
    end_offset: int | None = None


class Trail(Protocol):
    """Leads from the position in a batch to the source."""

    def origin(self, index: int) -> Origin | None:
        """Return where record ``index`` came from; None when nothing is known."""

    def span(self) -> Origin | None:
        """Return the span of source positions that the whole batch covers; cheap."""


@dataclass(slots=True)
class SourceTrail:
    """The batch was read from a source: offsets are known."""

    source: str
    shard: str
    offsets: Sequence[int]
    start: int
    end: int

    def origin(self, index: int) -> Origin | None:
        return Origin(source=self.source, shard=self.shard, offset=self.offsets[index])

    def span(self) -> Origin | None:
        return Origin(source=self.source, shard=self.shard, offset=self.start, end_offset=self.end)


@dataclass(slots=True)
class ExchangeTrail:
    """The batch came through an exchange: the sender said which span of the source it covers."""

    covered: Origin | None

    def origin(self, index: int) -> Origin | None:  # noqa: ARG002  # the contract of trails
        return self.covered

    def span(self) -> Origin | None:
        return self.covered


@dataclass(slots=True)
class SpreadTrail:
    """Input i gave ``len(results[i])`` outputs, in the order of the inputs (or of ``order``)."""

    parent: Trail
    results: Sequence[Sequence[Any]]
    order: Sequence[int] | None = None

    def origin(self, index: int) -> Origin | None:
        ends = list(accumulate(map(len, self.results)))
        position = bisect_right(ends, index)
        return self.parent.origin(self.order[position] if self.order is not None else position)

    def span(self) -> Origin | None:
        return self.parent.span()


@dataclass(slots=True)
class PickTrail:
    """Output i was input ``picked()[i]``; computed only when asked."""

    parent: Trail
    picked: Callable[[], Sequence[int]]

    def origin(self, index: int) -> Origin | None:
        return self.parent.origin(self.picked()[index])

    def span(self) -> Origin | None:
        return self.parent.span()


@dataclass(slots=True)
class Batch:
    """Records and their trail; behind ``key_by`` also key groups (a list beyond 256 of them)."""

    values: list[Any]
    trail: Trail
    groups: bytes | list[int] | None = None
