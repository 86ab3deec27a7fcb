"""The context that a function gets on a worker: with the task's key, state, side outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bicycle_runtime.operators.errors import UnkeyedStateError
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.state.tables import FunctionTable
from bicycle_sdk.contexts import ProcessContext, TaskInfo

__all__ = ["WorkerContext"]


class WorkerContext(ProcessContext):
    """Context of one operator instance. ``record`` and ``index`` are those of the call in flight.

    Args:
        task_info: Which instance this is.
        processing_time: Time of the epoch in ms; ``now()`` gives it, so that a replay sees the
            same.
        key_selector: Gives the key of a record; None when the stream is not keyed.
        group_count: Key groups of the operator.
    """

    def __init__(
        self,
        task_info: TaskInfo,
        *,
        processing_time: int,
        key_selector: Callable[[Any], Any] | None = None,
        group_count: int = 1,
        **others: Any,
    ) -> None:
        super().__init__(task_info=task_info, processing_time=processing_time, **others)
        self._others = others
        self._key_selector = key_selector
        self._groups = GroupCache(group_count)
        self.record: Any = None
        self.index = 0
        self.table: FunctionTable | None = None
        self.sides: list[tuple[str, Any]] = []
        self.watermark = 0

    def clone(self) -> WorkerContext:
        """Return a context for another call in flight: all the same, but a record of its own."""
        twin = WorkerContext(
            self.task_info,
            processing_time=self.processing_time,
            key_selector=self._key_selector,
            group_count=self._groups.group_count,
            **self._others,
        )
        twin.random, twin.metrics = self.random, self.metrics
        twin.table, twin.sides, twin.watermark = self.table, self.sides, self.watermark
        return twin

    def current_watermark(self) -> int:
        """Return the event time in ms up to which input is complete."""
        return self.watermark

    def current_key(self) -> Any:
        """Return the key of the record in hand.

        Raises:
            UnkeyedStateError: the stream is not keyed.
        """
        if self._key_selector is None:
            raise UnkeyedStateError(operator=self.task_info.operator_name, what="current_key()")
        return self._key_selector(self.record)

    def get_state(self, name: str, default: Any = None) -> Any:
        """Return the named value of the current key (of the subtask when not keyed)."""
        return self._named().get(self._state_key(name), default)

    def save_state(self, name: str, value: Any) -> None:
        """Store the named value of the current key; it is sealed with the epoch."""
        self._named()[self._state_key(name)] = value

    def delete_state(self, name: str) -> None:
        """Forget the named value of the current key."""
        self._named().pop(self._state_key(name), None)

    def side_output(self, tag: str, value: Any) -> None:
        """Send a value to the side output ``tag``."""
        self.sides.append((tag, value))

    def _state_key(self, name: str) -> Any:
        return name if self._key_selector is None else (name, self.current_key())

    def _named(self) -> dict[Any, Any]:
        if self.table is None:
            raise UnkeyedStateError(operator=self.task_info.operator_name, what="named state")
        if self._key_selector is None:
            return self.table.group(self.task_info.subtask_index).named.entries
        return self.table.group(self._groups[self.current_key()]).named.entries
