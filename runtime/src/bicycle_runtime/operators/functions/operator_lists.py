"""Lists of one subtask without keys, which a start or another parallelism divides.

Every subtask writes the elements of its own lists under its own number. When the job starts again,
and when the parallelism changes, each subtask reads the elements of all: an operator list is cut
into even parts, each subtask gets a whole union list. A lost worker changes nothing: its successor
reads the lists of this one subtask.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bicycle_runtime.layouts.state import ChangeSet
from bicycle_runtime.state.memory.keyed import KeyedTable
from bicycle_runtime.state.memory.space import KeyedEntries
from bicycle_runtime.state.values.schema_registry import SchemaRegistry
from bicycle_sdk.contexts import TaskInfo
from bicycle_sdk.errors import StateDefinitionError
from bicycle_sdk.state import StateDescriptor, UnionListStateDescriptor
from bicycle_sdk.state.entries import MapEntries


class _OwnNumber(dict[Any, int]):
    """The group of a subtask's elements: its number, which is their key."""

    def __missing__(self, subtask: Any) -> int:
        return int(subtask)


class OperatorLists(KeyedTable):
    """The lists of one subtask; also the scope of their handles.

    Args:
        task_info: Which subtask this is.
        registry: Knows in which schema versions states are sealed.
    """

    def __init__(self, task_info: TaskInfo, registry: SchemaRegistry) -> None:
        super().__init__(_OwnNumber(), lambda _: 0, prefix="$lists.", registry=registry)
        self._task_info = task_info
        self._is_opened = False

    def state_key(self) -> int:
        """Return the number of the subtask, which is the key of its elements."""
        return self._task_info.subtask_index

    def end_open(self) -> None:
        """Refuse new lists from now on: a restore divides only the known ones."""
        self._is_opened = True

    def entries_of(self, descriptor: StateDescriptor) -> KeyedEntries:
        """Return the entries of a list.

        Raises:
            StateDefinitionError: it is requested after ``open``, or was declared otherwise before.
        """
        if self._is_opened and descriptor.name not in self._states:
            raise StateDefinitionError(
                state=descriptor.name,
                problem="a list of a subtask was requested after open()",
                hint="get it in open() and keep the handle: a restore splits only known lists",
            )
        return super().entries_of(descriptor)

    def divide(self, change_sets: Iterable[ChangeSet]) -> None:
        """Load this subtask's share of the sealed lists of all subtasks.

        Args:
            change_sets: The content of all their files, oldest first.
        """
        self.reset()
        self.apply(change_set for change_set in change_sets if self.claims(change_set.name))
        for descriptor in self.declared():
            entries = self.entries_of(descriptor)
            assert isinstance(entries, MapEntries)
            elements = [
                element
                for _, row in sorted(entries.rows.items())
                for _, element in sorted(row.items(), key=lambda item: item[0])
            ]
            own = self.state_key()
            entries.unload([entry_key for entry_key in entries.entry_keys() if entry_key[0] != own])
            entries.clear(own)
            entries.append(own, self._part(descriptor, elements))

    def _part(self, descriptor: StateDescriptor, elements: list[Any]) -> list[Any]:
        if isinstance(descriptor, UnionListStateDescriptor):
            return elements
        own, count = self.state_key(), self._task_info.parallelism
        return elements[len(elements) * own // count : len(elements) * (own + 1) // count]
