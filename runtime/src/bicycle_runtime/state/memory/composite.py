"""Several state tables of one operator in the same files, told apart by the names of sections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from bicycle_runtime.state.memory.tables import StateTable
from bicycle_runtime.state.sealed.changes import Section

__all__ = ["CompositeTable", "NamedTable"]

Main = TypeVar("Main", bound=StateTable)


class NamedTable(StateTable, Protocol):
    """A table that knows its sections by their names."""

    def claims(self, section_name: str) -> bool:
        """Tell whether a section is one of this table."""


class CompositeTable(Generic[Main]):
    """A ``StateTable`` made of others.

    Args:
        main: Gets the sections that nobody else claims.
        others: Get those that they claim.
    """

    def __init__(self, main: Main, *others: NamedTable) -> None:
        self.main = main
        self._others = others

    def changes(self) -> list[Section]:
        """Return what changed since the last call, and regard it as written."""
        sections = list(self.main.changes())
        for table in self._others:
            sections += table.changes()
        return sections

    def apply(self, sections: Iterable[Section]) -> None:
        """Put sealed changes in, oldest first."""
        shares: list[list[Section]] = [[] for _ in range(len(self._others) + 1)]
        for section in sections:
            owners = (i for i, table in enumerate(self._others) if table.claims(section.name))
            shares[next(owners, -1)].append(section)
        self.main.apply(shares.pop())
        for table, share in zip(self._others, shares, strict=True):
            table.apply(share)
