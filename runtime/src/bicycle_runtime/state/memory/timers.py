"""The timers of one operator in one subtask, kept with its state, by key group.

Beside the timers of functions there are the times for which records of a key wait (``waiting``).

The queues decide the order; this table saves the changes in them: ``$timers.<domain>`` has ``(key,
time)`` for each timer that waits. Their firing is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from bicycle_runtime.layouts.state import ChangeSet
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.memory.space import MemorySpace, StateSpace, timer_state_name
from bicycle_runtime.state.sealed.changes import divided_change_sets
from bicycle_sdk.state.timers import TimerQueue

_KEYS = AnyCodec()
_PREFIX = "$timers."
_NOTHING = msgspec.Raw(b"\xc0")  # The value of each entry: None.


class TimerTable:
    """A ``StateTable`` of the timers for event time and for processing time.

    Args:
        groups: The key group of a key, by indexing.
        space: Their location; None for memory.
    """

    def __init__(self, groups: Mapping[Any, int], *, space: StateSpace | None = None) -> None:
        space = space or MemorySpace()
        self._groups = groups
        self.event = space.timers("event", groups)
        self.processing = space.timers("processing", groups)
        self.waiting = space.timers("waiting", groups)
        self._queues = {
            timer_state_name("event"): self.event,
            timer_state_name("processing"): self.processing,
            timer_state_name("waiting"): self.waiting,
        }

    def is_due(self, watermark: int, now_ms: int) -> bool:
        """Return whether a timer is due at a watermark and a time of day."""
        event, processing = self.event.next_time_ms(), self.processing.next_time_ms()
        return (event is not None and event <= watermark) or (
            processing is not None and processing <= now_ms
        )

    def claims(self, state_name: str) -> bool:
        """Return whether a change set belongs to this table."""
        return state_name.startswith(_PREFIX)

    def reset(self) -> None:
        """Forget all timers, sealed or not."""
        for queue in self._queues.values():
            queue.reset()

    def changes(self) -> list[ChangeSet]:
        """Return the changes since the last call, and mark them as written."""
        change_sets = []
        for name, queue in self._queues.items():
            touched, queue.touched = queue.touched, {}
            change_sets += self._change_sets(name, queue, touched)
        return change_sets

    def key_count(self) -> int:
        """Return 0: timers are no state of their keys."""
        return 0

    def apply(self, change_sets: Iterable[ChangeSet]) -> None:
        """Put sealed changes in, oldest first."""
        for change_set in change_sets:
            queue = self._queues[change_set.name]
            if change_set.is_full:
                self._clear_group(queue, change_set.group)
            queue.load_all(_decode(change_set.keys))
            for key, time_ms in _decode(change_set.deleted):
                queue.unload(key, time_ms)

    def _change_sets(
        self, name: str, queue: TimerQueue, entry_keys: Iterable[tuple[Any, int]]
    ) -> list[ChangeSet]:
        put: list[tuple[Any, int]] = []
        gone: list[tuple[Any, int]] = []
        for entry_key in entry_keys:
            (put if entry_key in queue.waiting else gone).append(entry_key)
        return divided_change_sets(
            name,
            (self._groups_of(put), _KEYS.encode_items(put), [_NOTHING] * len(put)),
            (self._groups_of(gone), _KEYS.encode_items(gone)),
        )

    def _groups_of(self, entry_keys: Iterable[tuple[Any, int]]) -> list[int]:
        return [self._groups[key] for key, _ in entry_keys]

    def _clear_group(self, queue: TimerQueue, group: int) -> None:
        for key, time_ms in [
            entry_key for entry_key in queue.waiting if self._groups[entry_key[0]] == group
        ]:
            queue.unload(key, time_ms)


def _decode(entry_keys: Any) -> list[tuple[Any, int]]:
    return _KEYS.decode_list(bytes(entry_keys))
