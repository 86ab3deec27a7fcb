"""Which tables an operator works with, and which store keeps them: by the backend of the job.

Operators ask here and do not know the answer. ``memory`` is this module; ``rocksdb`` is loaded when
a job asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.state.memory.attributes import Attribute
from bicycle_runtime.state.memory.keyed import KeyedTable
from bicycle_runtime.state.memory.tables import AccumulatorTable, FunctionTable, StateTable
from bicycle_runtime.state.memory.timers import TimerTable
from bicycle_runtime.state.memory.window_tables import MemoryWindows, WindowTables
from bicycle_runtime.state.sealed.refs import RangeState
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.in_memory import StateStore
from bicycle_runtime.state.values.declaring import accumulator_state
from bicycle_runtime.state.values.reading import StateBook
from bicycle_sdk.state.descriptors import TimeDomain

__all__ = ["MemoryTables", "Store", "Tables", "remove_unowned", "tables_for"]

Table = TypeVar("Table", bound=StateTable)
Made_co = TypeVar("Made_co", bound=StateTable, covariant=True)


class Store(Protocol[Made_co]):
    """Keeps the table of one operator and subtask at the sealed state."""

    def at(self, state: RangeState) -> Made_co:
        """Return the table as of a sealed state. Until ``commit`` it counts as unsealed."""

    def commit(
        self, state: RangeState, *, epoch: int, attempt: str, is_interval_over: bool
    ) -> RangeState:
        """Write what changed since ``at`` and return the state that includes it."""

    def close(self) -> None:
        """Let go of what is open."""


class Tables(Protocol):
    """Makes the tables of one operator in one subtask, and their store.

    ``book`` knows in which forms the states of the operator are sealed, ``windows`` makes the parts
    of the table of a window. ``undoes`` says whether attempts can be undone in what is made.
    """

    book: StateBook
    undoes: bool
    windows: WindowTables

    def accumulators(self, value_type: Any) -> AccumulatorTable:
        """Return an empty table of a running reduce."""

    def attributes(
        self, prototype: Any, attributes: list[Attribute], call_hook: Callable[..., Any]
    ) -> FunctionTable:
        """Return an empty table of a rich function's attributes."""

    def keyed(self, groups: Mapping[Any, int], clock: Callable[[TimeDomain], int]) -> KeyedTable:
        """Return an empty table of keyed states."""

    def timers(self, groups: Mapping[Any, int]) -> TimerTable:
        """Return an empty table of timers."""

    def store(
        self, operator: str, storage: Storage, new_table: Callable[[], Table]
    ) -> Store[Table]:
        """Return the store of a table made of these.

        Args:
            operator: Operator uid.
            storage: Checkpoint storage of the job.
            new_table: Makes an empty table.
        """

    def trim(self) -> None:
        """Keep the bound on what is in memory. Called between batches."""


class MemoryTables:
    """``Tables`` that hold everything in memory."""

    def __init__(self, book: StateBook | None = None) -> None:
        self.book = book or StateBook()
        self.undoes = False
        self.windows: WindowTables = MemoryWindows()

    def accumulators(self, value_type: Any) -> AccumulatorTable:
        opened = self.book.open(accumulator_state(value_type), value_type, None)
        return AccumulatorTable(value_type, opened.codec)

    def attributes(
        self, prototype: Any, attributes: list[Attribute], call_hook: Callable[..., Any]
    ) -> FunctionTable:
        return FunctionTable(prototype, attributes, call_hook, undoes=self.undoes)

    def keyed(self, groups: Mapping[Any, int], clock: Callable[[TimeDomain], int]) -> KeyedTable:
        return KeyedTable(groups, clock, book=self.book)

    def timers(self, groups: Mapping[Any, int]) -> TimerTable:
        return TimerTable(groups)

    def store(
        self, operator: str, storage: Storage, new_table: Callable[[], Table]
    ) -> StateStore[Table]:
        return StateStore(operator, storage, new_table, book=self.book)

    def trim(self) -> None:
        """Keep everything."""


def tables_for(settings: StateSettings, *, job_url: str, book: StateBook | None = None) -> Tables:
    """Return what makes the tables of one operator in one subtask.

    Args:
        settings: The backend and its bounds.
        job_url: The job's checkpoint storage, which tells its state from that of others.
        book: Knows in which forms the states of the operator are sealed; None when nothing is.
    """
    if settings.backend == "memory":
        return MemoryTables(book)
    # A library of 11 MB, which jobs with state in memory do not need.
    from bicycle_runtime.state.stores.on_disk_tables import RocksTables

    return RocksTables(settings, job_url=job_url, book=book)


def remove_unowned(
    settings: StateSettings, *, job_url: str, owned: Mapping[str, Sequence[range]]
) -> int:
    """Remove local state of ranges that no subtask owns any more; return how many folders.

    It is a cache: whoever removes too much makes somebody build it anew.

    Args:
        settings: The backend, and the local folder of this machine.
        job_url: The job's checkpoint storage.
        owned: The key groups of each subtask, by operator.
    """
    if settings.backend == "memory" or settings.folder is None:
        return 0
    # As above: jobs with state in memory have no use for it.
    from bicycle_runtime.state.rocksdb.slots import identity_of, remove_others

    kept = {identity_of(job_url, uid, groups) for uid, parts in owned.items() for groups in parts}
    return remove_others(settings.folder, job_url, kept)
