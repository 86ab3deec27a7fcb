"""Functions of pipelines that remove fields from records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bicycle_runtime.expressions.evaluation import HasExpression
from bicycle_sdk.expressions import Expression, col


def without_fields(dropped: Sequence[str], names: Sequence[str]) -> Dropped:
    """Return a function that removes fields from records.

    Args:
        dropped: The fields.
        names: All that the records have; empty where that is not known.
    """
    kept = [name for name in names if name not in dropped]
    return DroppedOnColumns(dropped, kept) if kept else Dropped(dropped)


class Dropped:
    """Records without some of their fields."""

    __slots__ = ("fields",)

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = frozenset(fields)

    def __call__(self, value: Any) -> dict[str, Any]:
        return {name: each for name, each in value.items() if name not in self.fields}


class DroppedOnColumns(Dropped, HasExpression):
    """The same for records whose other fields are known."""

    __slots__ = ("kept",)

    def __init__(self, fields: Sequence[str], kept: Sequence[str]) -> None:
        super().__init__(fields)
        self.kept = tuple(kept)

    def expression(self) -> Expression:
        return Expression("record", self.kept, *map(col, self.kept))
