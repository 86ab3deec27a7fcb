"""The parts of which the table of a window is made, by the backend of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from bicycle_runtime.state.memory.due import DueTimes
from bicycle_runtime.state.memory.windows import Cells, Records, WindowTable
from bicycle_sdk.state.descriptors import TimeDomain

__all__ = ["MemoryWindows", "Moments", "WindowTables"]

Moments = Callable[[Any], Iterable[tuple[TimeDomain, int]]]  # The times that a cell waits for.


class WindowTables(Protocol):
    """Makes the parts of the table of one window operator in one subtask."""

    def cells(
        self,
        prefix: str,
        value_type: Any = None,
        *,
        dump: Callable[[Any], Any] | None = None,
        load: Callable[[Any], Any] | None = None,
    ) -> Cells:
        """Return empty cells."""

    def records(self, value_type: Any, *, is_by_key: bool) -> Records:
        """Return room for the records of windows.

        Args:
            value_type: Declared type of the records, None when unknown.
            is_by_key: Whether they are read and replaced key by key, and never dropped by place;
                else they are read by key group, and only dropped.
        """

    def table(self, cells: Cells, records: Records) -> WindowTable:
        """Return a table of these parts, and of values that window functions keep."""

    def due_times(self, domain: TimeDomain) -> DueTimes:
        """Return an empty index of times."""

    def keep_due_times(self, cells: Cells, moments: Moments, rules: str) -> bool:
        """Keep the times of sealed cells with them, and tell whether that is done.

        Where it is not, the operator goes through the cells when a table was restored.

        Args:
            cells: The cells.
            moments: Gives the times that a cell waits for.
            rules: What ``moments`` goes by, besides the cell.
        """


class MemoryWindows:
    """``WindowTables`` that hold everything in memory."""

    def cells(
        self,
        prefix: str,
        value_type: Any = None,
        *,
        dump: Callable[[Any], Any] | None = None,
        load: Callable[[Any], Any] | None = None,
    ) -> Cells:
        return Cells(prefix, value_type, dump=dump, load=load)

    def records(self, value_type: Any, *, is_by_key: bool) -> Records:  # noqa: ARG002  # all alike
        return Records(value_type)

    def table(self, cells: Cells, records: Records) -> WindowTable:
        return WindowTable(cells, records, self.cells("v"))

    def due_times(self, domain: TimeDomain) -> DueTimes:  # noqa: ARG002  # both alike
        return DueTimes()

    def keep_due_times(self, cells: Cells, moments: Moments, rules: str) -> bool:  # noqa: ARG002  # as the contract says
        return False
