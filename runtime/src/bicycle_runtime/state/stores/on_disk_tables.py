"""The tables and stores of the backend ``rocksdb``, for ``backends``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.state.memory.attributes import Attribute
from bicycle_runtime.state.memory.keyed import KeyedTable
from bicycle_runtime.state.memory.tables import AccumulatorTable, FunctionTable, StateTable
from bicycle_runtime.state.memory.timers import TimerTable
from bicycle_runtime.state.memory.window_tables import WindowTables
from bicycle_runtime.state.paged.keyed import PagedKeyedTable
from bicycle_runtime.state.paged.pages import Pages
from bicycle_runtime.state.paged.tables import PagedAccumulatorTable, PagedFunctionTable
from bicycle_runtime.state.paged.timers import PagedTimerTable
from bicycle_runtime.state.paged.window_tables import RocksWindows
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.on_disk import PagedStore
from bicycle_runtime.state.values.declaring import accumulator_state
from bicycle_runtime.state.values.reading import StateBook
from bicycle_sdk.state.descriptors import TimeDomain

__all__ = ["RocksTables"]

Table = TypeVar("Table", bound=StateTable)


class RocksTables:
    """``Tables`` over one local folder.

    Args:
        settings: Where the folder is, and the bounds of memory.
        job_url: The job's checkpoint storage.
        book: Knows in which forms the states of the operator are sealed; None when nothing is.
    """

    def __init__(
        self, settings: StateSettings, *, job_url: str, book: StateBook | None = None
    ) -> None:
        self.book = book or StateBook()
        self.undoes = False
        self.pages = Pages(settings, job_url=job_url)
        self.windows: WindowTables = RocksWindows(self.pages)

    def accumulators(self, value_type: Any) -> AccumulatorTable:
        opened = self.book.open(accumulator_state(value_type), value_type, None)
        return PagedAccumulatorTable(self.pages, value_type, opened.codec)

    def attributes(
        self, prototype: Any, attributes: list[Attribute], call_hook: Callable[..., Any]
    ) -> FunctionTable:
        return PagedFunctionTable(self.pages, prototype, attributes, call_hook, undoes=self.undoes)

    def keyed(self, groups: Mapping[Any, int], clock: Callable[[TimeDomain], int]) -> KeyedTable:
        return PagedKeyedTable(groups, clock, self.pages, book=self.book)

    def timers(self, groups: Mapping[Any, int]) -> TimerTable:
        return PagedTimerTable(groups, self.pages)

    def store(
        self, operator: str, storage: Storage, new_table: Callable[[], Table]
    ) -> PagedStore[Table]:
        return PagedStore(operator, storage, new_table, pages=self.pages, book=self.book)

    def trim(self) -> None:
        self.pages.trim()
