"""A table of several state tables of an operator, separated by name prefixes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from bicycle_runtime.layouts.state import ChangeSet
from bicycle_runtime.state.memory.space import StateTable

Main = TypeVar("Main", bound=StateTable)


class NamedTable(StateTable, Protocol):
    """A table that knows its change sets by their names."""

    def claims(self, state_name: str) -> bool:
        """Return whether a change set belongs to this table."""


class CompositeTable(Generic[Main]):
    """A ``StateTable`` made of others.

    Args:
        main: Gets the change sets that no other table claims.
        others: Get the change sets that they claim.
    """

    def __init__(self, main: Main, *others: NamedTable) -> None:
        self.main = main
        self._others = others

    def changes(self) -> list[ChangeSet]:
        """Return the changes since the last call, and mark them as written."""
        change_sets = list(self.main.changes())
        for table in self._others:
            change_sets += table.changes()
        return change_sets

    def key_count(self) -> int:
        """Return how many keys have state, of all tables together."""
        return self.main.key_count() + sum(table.key_count() for table in self._others)

    def apply(self, change_sets: Iterable[ChangeSet]) -> None:
        """Put sealed changes in, oldest first."""
        shares: list[list[ChangeSet]] = [[] for _ in range(len(self._others) + 1)]
        for change_set in change_sets:
            owners = (i for i, table in enumerate(self._others) if table.claims(change_set.name))
            shares[next(owners, -1)].append(change_set)
        self.main.apply(shares.pop())
        for table, share in zip(self._others, shares, strict=True):
            table.apply(share)
