"""The context of a function on a worker: the task's key, state, side outputs.

Properties of the current record (its key, its event time, its message) are looked up on access. The
context holds the batch and knows the position in it; nothing is written per record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from bicycle_runtime.operators.batch import Batch, SourceLineage
from bicycle_runtime.operators.errors import UNKEYED_STATE
from bicycle_runtime.records.keys import GroupCache
from bicycle_runtime.state.memory.tables import FunctionTable
from bicycle_runtime.state.memory.undoing import UndoList
from bicycle_runtime.state.undo import Attempts
from bicycle_sdk.contexts import WATERMARK_MIN, ProcessContext, SourceMessage, TaskInfo
from bicycle_sdk.errors import StateDefinitionError
from bicycle_sdk.state import StateDescriptor
from bicycle_sdk.state.handles import KeyScope

# A record for a side output: tag, value, event time, and the index of the record in hand.
Sent = tuple[str, Any, int | None, int]


class WorkerContext(ProcessContext):
    """Context of one operator instance. ``record`` is that of the call in flight.

    ``batch`` is set by the operator before its calls; ``follow`` and ``hold`` set the position in
    it.

    Args:
        task_info: Which instance this is.
        processing_time: Time of the epoch in ms; ``now()`` returns it, so that a replay sees the
            same.
        key_selector: Returns the key of a record; None when the stream is not keyed.
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
        self.batch: Batch | None = None  # None without a record, as while timers fire
        self._results: Sequence[Any] = ()
        self._timer_ms: int | None = None
        self._held: int | None = None
        self._times: Sequence[int] | None = None
        self._messages: Any = None
        self._times_of: Batch | None = None
        self._messages_of: Batch | None = None
        super().__init__(task_info=task_info, processing_time=processing_time, **others)
        self._others = others
        self._key_selector = key_selector
        self._groups = GroupCache(group_count)
        self.table: FunctionTable | None = None
        self.sides: list[Sent] = []
        self.before_end = WATERMARK_MIN  # the watermark of the records, at the end of all input
        self.attempts: Attempts | None = None

    def undo_attempts(self, attempts: Attempts) -> None:
        """Enable undo of failed attempts. Called before any access to state."""
        self.attempts = attempts
        self.sides = UndoList()

    def clone(self) -> Self:
        """Return a context for another call in flight, with its own current record."""
        twin = type(self)(
            self.task_info,
            processing_time=self.processing_time,
            key_selector=self._key_selector,
            group_count=self._groups.group_count,
            **self._others,
        )
        twin.random, twin.metrics = self.random, self.metrics
        twin.table, twin.sides, twin.watermark = self.table, self.sides, self.watermark
        twin.batch, twin.attempts = self.batch, self.attempts
        return twin

    # --- the record in hand ------------------------------------------------------------------

    def follow(self, results: Sequence[Any]) -> None:
        """Make the record after the last result the current one, from now on."""
        self._results, self._held = results, None

    def hold(self, index: int) -> None:
        """Make the record at a position of the batch the current one."""
        self._held = index

    @property
    def index(self) -> int:
        """Position of the record in hand."""
        return len(self._results) if self._held is None else self._held

    @property
    def record(self) -> Any:
        """The record in hand."""
        assert self.batch is not None
        return self.batch.values[self.index]

    @property
    def timestamp(self) -> int | None:
        """The event time of the current record or timer, or None."""
        batch = self.batch
        if batch is None:
            return self._timer_ms
        if self._times_of is not batch:
            self._times_of, self._times = batch, batch.lineage.times()
        return None if self._times is None else self._times[self.index]

    @timestamp.setter
    def timestamp(self, timestamp: int | None) -> None:
        self._timer_ms = timestamp

    @property
    def message(self) -> SourceMessage | None:
        """The source's message of the current record; None after an exchange."""
        batch = self.batch
        if batch is None:
            return None
        if self._messages_of is not batch:
            self._messages_of, self._messages = batch, batch.lineage.messages()
        if self._messages is None:
            return None
        columns, positions = self._messages
        found = columns.at(positions[self.index])
        return None if found is None else _message(*found)

    @message.setter
    def message(self, message: SourceMessage | None) -> None:
        assert message is None, "a record's message comes with its batch"

    def current_key(self) -> Any:
        """Return the key of the record in hand.

        Raises:
            UNKEYED_STATE: the stream is not keyed.
        """
        if self._key_selector is None:
            raise UNKEYED_STATE(operator=self.task_info.operator_name, what="current_key()")
        return self._key_selector(self.record)

    def get_state(self, name: str, default: Any = None) -> Any:
        """Return the named value of the current key (of the subtask when not keyed)."""
        return self._named_states().get(self._state_key(name), default)

    def save_state(self, name: str, value: Any) -> None:
        """Store the named value of the current key; it is sealed with the epoch."""
        self._named_states()[self._state_key(name)] = value

    def delete_state(self, name: str) -> None:
        """Forget the named value of the current key."""
        self._named_states().pop(self._state_key(name), None)

    def operator_list_scope(self, descriptor: StateDescriptor) -> KeyScope:
        """Return whose list of a subtask is meant.

        Raises:
            StateDefinitionError: the operator has no such lists.
        """
        raise StateDefinitionError(
            state=descriptor.name,
            problem="lists of a subtask require a function with state on a stream without keys",
            hint=(
                "use get_list_state() after key_by, otherwise a RichAsyncFunction or "
                "ProcessFunction"
            ),
        )

    def side_output(self, tag: str, value: Any) -> None:
        """Send a value to the side output ``tag``."""
        self.sides.append((tag, value, self.timestamp, self.index))

    def _state_key(self, name: str) -> Any:
        return name if self._key_selector is None else (name, self.current_key())

    def _named_states(self) -> dict[Any, Any]:
        if self.table is None:
            raise UNKEYED_STATE(operator=self.task_info.operator_name, what="named state")
        if self._key_selector is None:
            return self.table.group(self.task_info.subtask_index).named.entries
        return self.table.group(self._groups[self.current_key()]).named.entries


def _message(lineage: SourceLineage, index: int) -> SourceMessage:
    return SourceMessage(
        source=lineage.source,
        shard=lineage.shard,
        offset=lineage.offsets[index],
        key=None if lineage.keys is None else lineage.keys[index],
        headers=() if lineage.headers is None else lineage.headers[index],
        timestamp_ms=None if lineage.timestamps is None else lineage.timestamps[index],
    )
