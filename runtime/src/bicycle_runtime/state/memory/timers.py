"""The timers of one operator in one subtask, kept with its state, by key group.

The queues decide the order; this table saves what changed in them: ``$timers.<domain>`` has
``(key, time)`` for each timer that waits. Who lets them fire is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.records.keys import encode_key
from bicycle_runtime.state.sealed.changes import Section, make_section
from bicycle_sdk.state.descriptors import TimeDomain
from bicycle_sdk.state.timers import TimerQueue

__all__ = ["TimerTable"]

_KEYS = AnyCodec()
_PREFIX = "$timers."


class TimerTable:
    """A ``StateTable`` of the timers for event time and for processing time.

    Args:
        groups: The key group of a key, by indexing.
        new_queue: Makes the queue of a domain.
    """

    def __init__(
        self,
        groups: Mapping[Any, int],
        new_queue: Callable[[TimeDomain], TimerQueue] = lambda domain: TimerQueue(
            domain, encode_key
        ),
    ) -> None:
        self._groups = groups
        self.event = new_queue("event")
        self.processing = new_queue("processing")

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
        self.event.reset()
        self.processing.reset()

    def changes(self) -> list[Section]:
        """Return what changed since the last call, and regard it as written."""
        sections = []
        for queue in (self.event, self.processing):
            touched, queue.touched = queue.touched, {}
            sections += self._sections(queue, touched)
        return sections

    def apply(self, sections: Iterable[Section]) -> None:
        """Put sealed changes in, oldest first."""
        for section in sections:
            queue = self.queue_of(section.name)
            if section.is_full:
                self._clear_group(queue, section.group)
            queue.load_all(_decoded(section.keys))
            for key, time_ms in _decoded(section.deleted):
                queue.unload(key, time_ms)

    def queue_of(self, section_name: str) -> TimerQueue:
        """Return the queue that a section belongs to."""
        return self.event if section_name == _name(self.event) else self.processing

    def _sections(self, queue: TimerQueue, cells: Iterable[tuple[Any, int]]) -> list[Section]:
        parts: dict[int, tuple[list[Any], list[Any]]] = {}
        for cell in cells:
            part = parts.setdefault(self._groups[cell[0]], ([], []))
            part[cell not in queue.waiting].append(cell)
        return [
            make_section(
                group,
                _name(queue),
                _KEYS.encode_list(waiting),
                _KEYS.encode_list([None] * len(waiting)),
                deleted=_KEYS.encode_list(gone) if gone else None,
            )
            for group, (waiting, gone) in sorted(parts.items())
        ]

    def _clear_group(self, queue: TimerQueue, group: int) -> None:
        for key, time_ms in [cell for cell in queue.waiting if self._groups[cell[0]] == group]:
            queue.unload(key, time_ms)


def _name(queue: TimerQueue) -> str:
    return _PREFIX + queue.domain


def _decoded(cells: Any) -> list[tuple[Any, int]]:
    return _KEYS.decode_list(bytes(cells))
