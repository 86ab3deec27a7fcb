"""The tables of an operator, and the state space that a backend's name selects.

Operators call this module and do not know the backend. ``space_for`` alone does: ``memory`` is at
hand, ``rocksdb`` and backends of extensions are loaded when a job names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, TypeVar

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.state.errors import STATE_BACKEND_UNUSABLE
from bicycle_runtime.state.memory.attributes import Attribute
from bicycle_runtime.state.memory.keyed import KeyedTable
from bicycle_runtime.state.memory.space import MemorySpace, StateSpace, StateTable
from bicycle_runtime.state.memory.tables import AccumulatorTable, FunctionTable
from bicycle_runtime.state.memory.timers import TimerTable
from bicycle_runtime.state.memory.windows import WindowTables
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.store import StateStore
from bicycle_runtime.state.values.schema_registry import SchemaRegistry
from bicycle_runtime.state.values.state_metadata import accumulator_state
from bicycle_sdk.state.descriptors import TimeDomain

Table = TypeVar("Table", bound=StateTable)


class Tables:
    """Makes the tables of one operator in one subtask, and their store.

    ``undoes`` means that attempts can be undone in these tables.

    Args:
        registry: Knows in which forms the states of the operator are sealed; None when nothing is.
        space: The location of their entries; None for memory.
    """

    def __init__(
        self, registry: SchemaRegistry | None = None, space: StateSpace | None = None
    ) -> None:
        self.registry = registry or SchemaRegistry()
        self.space = space or MemorySpace()
        self.undoes = False

    @property
    def windows(self) -> WindowTables:
        """Makes the parts of the table of a window."""
        return self.space

    def accumulators(self, value_type: Any) -> AccumulatorTable:
        """Return an empty table of a running reduce."""
        opened = self.registry.open(accumulator_state(value_type), value_type, None)
        return AccumulatorTable(value_type, opened.codec, space=self.space)

    def attributes(
        self, prototype: Any, attributes: list[Attribute], call_hook: Callable[..., Any]
    ) -> FunctionTable:
        """Return an empty table of a rich function's attributes."""
        return FunctionTable(prototype, attributes, call_hook, undoes=self.undoes, space=self.space)

    def keyed(self, groups: Mapping[Any, int], clock: Callable[[TimeDomain], int]) -> KeyedTable:
        """Return an empty table of keyed states."""
        return KeyedTable(groups, clock, space=self.space, registry=self.registry)

    def timers(self, groups: Mapping[Any, int]) -> TimerTable:
        """Return an empty table of timers."""
        return TimerTable(groups, space=self.space)

    def store(
        self, operator: str, storage: Storage, new_table: Callable[[], Table]
    ) -> StateStore[Table]:
        """Return the store of a table made of these.

        Args:
            operator: Operator uid.
            storage: Checkpoint storage of the job.
            new_table: Makes an empty table.
        """
        return StateStore(operator, storage, new_table, registry=self.registry, space=self.space)


def tables_for(
    settings: StateSettings, *, job_url: str, registry: SchemaRegistry | None = None
) -> Tables:
    """Return a factory of the tables of one operator in one subtask.

    Args:
        settings: The backend and its bounds.
        job_url: The job's checkpoint storage, which distinguishes its state from other jobs'.
        registry: Knows in which forms the states of the operator are sealed; None when nothing is.
    """
    return Tables(registry, space_for(settings, job_url=job_url))


def space_for(settings: StateSettings, *, job_url: str) -> StateSpace:
    """Return an empty space of the backend that the settings name.

    Raises:
        STATE_BACKEND_UNUSABLE: it is one of an extension, which cannot be imported, or raised.
    """
    if settings.factory is not None:
        return _made_by_extension(settings, job_url)
    if settings.backend == "memory":
        return MemorySpace()
    # A library of 11 MB, which jobs with state in memory do not need.
    from bicycle_runtime.state.disk.space import DiskSpace

    return DiskSpace(settings, job_url=job_url)


def _made_by_extension(settings: StateSettings, job_url: str) -> StateSpace:
    assert settings.factory is not None
    try:
        made: StateSpace = resolve_name(settings.factory)(settings, job_url=job_url)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise STATE_BACKEND_UNUSABLE(
            backend=settings.backend, factory=settings.factory, reason=reason
        ) from error
    return made


def remove_unowned(
    settings: StateSettings, *, job_url: str, owned: Mapping[str, Sequence[range]]
) -> int:
    """Remove local state of ranges without an owner; return the number of folders.

    It is a cache: missing folders are built again.

    Args:
        settings: The backend, and the local folder of this machine.
        job_url: The job's checkpoint storage.
        owned: The key groups of each subtask, by operator.
    """
    if settings.backend != "rocksdb" or settings.folder is None:
        return 0
    # As above: jobs with state in memory have no use for it.
    from bicycle_runtime.state.rocksdb.claimed_folders import identity_of, remove_others

    kept = {identity_of(job_url, uid, groups) for uid, parts in owned.items() for groups in parts}
    return remove_others(settings.folder, job_url, kept)
