"""The timers of one operator in one subtask, kept with its state, by key group.

Beside the timers of functions there are the times for which records of a key wait (``waiting``).

The queues decide the order; this table saves what changed in them: ``$timers.<domain>`` has
``(key, time)`` for each timer that waits. Who lets them fire is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.memory.space import MemorySpace, StateSpace, timer_section
from bicycle_runtime.state.sealed.changes import Section, make_section
from bicycle_sdk.state.timers import TimerQueue

__all__ = ["TimerTable"]

_KEYS = AnyCodec()
_PREFIX = "$timers."


class TimerTable:
    """A ``StateTable`` of the timers for event time and for processing time.

    Args:
        groups: The key group of a key, by indexing.
        space: Where they lie; None for memory.
    """

    def __init__(self, groups: Mapping[Any, int], *, space: StateSpace | None = None) -> None:
        space = space or MemorySpace()
        self._groups = groups
        self.event = space.timers("event", groups)
        self.processing = space.timers("processing", groups)
        self.waiting = space.timers("waiting", groups)
        self._queues = {
            timer_section("event"): self.event,
            timer_section("processing"): self.processing,
            timer_section("waiting"): self.waiting,
        }

    def is_due(self, watermark: int, now_ms: int) -> bool:
        """Tell whether a timer is due at a watermark and a time of day."""
        event, processing = self.event.next_time_ms(), self.processing.next_time_ms()
        return (event is not None and event <= watermark) or (
            processing is not None and processing <= now_ms
        )

    def claims(self, section_name: str) -> bool:
        """Tell whether a section is one of this table."""
        return section_name.startswith(_PREFIX)

    def reset(self) -> None:
        """Forget all timers, sealed or not."""
        for queue in self._queues.values():
            queue.reset()

    def changes(self) -> list[Section]:
        """Return what changed since the last call, and regard it as written."""
        sections = []
        for name, queue in self._queues.items():
            touched, queue.touched = queue.touched, {}
            sections += self._sections(name, queue, touched)
        return sections

    def apply(self, sections: Iterable[Section]) -> None:
        """Put sealed changes in, oldest first."""
        for section in sections:
            queue = self._queues[section.name]
            if section.is_full:
                self._clear_group(queue, section.group)
            queue.load_all(_decoded(section.keys))
            for key, time_ms in _decoded(section.deleted):
                queue.unload(key, time_ms)

    def _sections(
        self, name: str, queue: TimerQueue, cells: Iterable[tuple[Any, int]]
    ) -> list[Section]:
        parts: dict[int, tuple[list[Any], list[Any]]] = {}
        for cell in cells:
            part = parts.setdefault(self._groups[cell[0]], ([], []))
            part[cell not in queue.waiting].append(cell)
        return [
            make_section(
                group,
                name,
                _KEYS.encode_list(waiting),
                _KEYS.encode_list([None] * len(waiting)),
                deleted=_KEYS.encode_list(gone) if gone else None,
            )
            for group, (waiting, gone) in sorted(parts.items())
        ]

    def _clear_group(self, queue: TimerQueue, group: int) -> None:
        for key, time_ms in [cell for cell in queue.waiting if self._groups[cell[0]] == group]:
            queue.unload(key, time_ms)


def _decoded(cells: Any) -> list[tuple[Any, int]]:
    return _KEYS.decode_list(bytes(cells))
