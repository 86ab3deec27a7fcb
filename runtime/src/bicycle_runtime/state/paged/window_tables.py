"""The parts of the table of a window, of which only a part is in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bicycle_runtime.state.memory.due import DueTimes
from bicycle_runtime.state.memory.window_tables import Moments
from bicycle_runtime.state.memory.windows import Cells, Records, WindowTable
from bicycle_runtime.state.paged.due import PagedDueTimes
from bicycle_runtime.state.paged.pages import Pages
from bicycle_runtime.state.paged.records import PagedKeyRecords, PagedPlaceRecords
from bicycle_runtime.state.paged.windows import PagedCells, PagedWindowTable
from bicycle_runtime.state.rocksdb.indexes import DueIndex
from bicycle_sdk.state.descriptors import TimeDomain

__all__ = ["RocksWindows"]


class RocksWindows:
    """``WindowTables`` over one local folder.

    Args:
        pages: The operator's.
    """

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def cells(
        self,
        prefix: str,
        value_type: Any = None,
        *,
        dump: Callable[[Any], Any] | None = None,
        load: Callable[[Any], Any] | None = None,
    ) -> Cells:
        return PagedCells(self._pages, prefix, value_type, dump=dump, load=load)

    def records(self, value_type: Any, *, is_by_key: bool) -> Records:
        kind = PagedKeyRecords if is_by_key else PagedPlaceRecords
        return kind(self._pages, value_type)

    def table(self, cells: Cells, records: Records) -> WindowTable:
        return PagedWindowTable(self._pages, cells, records, self.cells("v"))

    def due_times(self, domain: TimeDomain) -> DueTimes:
        return PagedDueTimes(self._pages, domain)

    def keep_due_times(self, cells: Cells, moments: Moments, rules: str) -> bool:
        self._pages.keep_index(DueIndex(cells.prefix, cells.decoded, moments, rules))
        return True
