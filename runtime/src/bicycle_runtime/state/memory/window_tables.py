"""What window operators ask of a space: the parts of which the table of a window is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from bicycle_runtime.state.memory.due import DueTimes
from bicycle_runtime.state.memory.windows import Records, WindowEntries, WindowTable
from bicycle_sdk.state.descriptors import TimeDomain

__all__ = ["Moments", "WindowTables"]

Moments = Callable[[Any], Iterable[tuple[TimeDomain, int]]]  # The times that an entry waits for.


class WindowTables(ABC):
    """Makes the parts of the table of one window operator in one subtask."""

    @abstractmethod
    def entries(
        self, prefix: str, value_type: Any = None,
        *, dump: Callable[[Any], Any] | None = None, load: Callable[[Any], Any] | None = None,
    ) -> WindowEntries:  # fmt: skip
        """Return empty entries; the arguments are those of ``WindowEntries``."""

    @abstractmethod
    def records(self, value_type: Any, *, is_by_key: bool) -> Records:
        """Return room for the records of windows.

        Args:
            value_type: Declared type of the records, None when unknown.
            is_by_key: Whether they are read and replaced key by key, and never dropped by
                namespace; else they are read by key group, and only dropped.
        """

    @abstractmethod
    def due_times(self, domain: TimeDomain) -> DueTimes:
        """Return an empty index of times."""

    @abstractmethod
    def keep_due_times(self, entries: WindowEntries, moments: Moments, rules: str) -> bool:
        """Keep the times of sealed entries with them, and tell whether that is done.

        Where it is not, the operator goes through the entries when a table was restored.

        Args:
            entries: The entries.
            moments: Gives the times that an entry waits for.
            rules: What ``moments`` goes by, besides the entry.
        """

    def table(self, entries: WindowEntries, records: Records) -> WindowTable:
        """Return a table of these parts, and of values that window functions keep."""
        return WindowTable(entries, records, self.entries("v"))
