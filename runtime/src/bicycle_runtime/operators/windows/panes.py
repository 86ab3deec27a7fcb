"""A pane: the content of a key's triggered window, for its trigger."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from types import GenericAlias
from typing import Any, get_args

from bicycle_runtime.operators.windows.ended_sessions import is_ended
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_sdk.windows import Window

_ANY = AnyCodec()


@dataclass(slots=True)
class Pane:
    """The bounds, accumulators, trigger state and timers of a pane.

    ``first`` and ``last`` are the least and greatest time of its records since it was last empty.
    """

    start: int
    end: int
    first: int | None = None
    last: int | None = None
    count: int = 0
    content: Any = None
    state: dict[str, Any] = field(default_factory=dict)
    events: set[int] = field(default_factory=set)
    moments: set[int] = field(default_factory=set)
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def window(self) -> Window:
        """The window that the pane belongs to."""
        return Window(self.start, self.end)

    @property
    def is_ended(self) -> bool:
        """Return whether this is the trace of an ended session instead of a window."""
        return is_ended(self.start, self.end)

    def touches(self, window: Window) -> bool:
        """Return whether the pane is a window that overlaps or touches another."""
        return not self.is_ended and self.window.touches(window)

    def take_in(self, time: int) -> None:
        """Take note of the time of a record."""
        self.first = time if self.first is None else min(self.first, time)
        self.last = time if self.last is None else max(self.last, time)
        self.count += 1

    def empty(self) -> None:
        """Remove the records; trigger state and timers remain."""
        self.first = self.last = self.content = None
        self.count = 0


def type_of_panes(accumulators: Any, *, keeps_records: bool) -> Any:
    """Return the type of the results of ``dump_panes``, or None if unknown.

    Args:
        accumulators: Their type, None when unknown.
        keeps_records: Whether panes have no accumulators, since records are kept instead.
    """
    if accumulators is None and not keeps_records:
        return None
    pane = namedtuple("pane", "start end first last count content trigger events moments values")
    content = None if keeps_records else accumulators | None
    times, bound = list[int], int | None
    types = (int, int, bound, bound, int, content, bytes, times, times, bytes)
    pane.__annotations__ = dict(zip(pane._fields, types, strict=True))
    return GenericAlias(list, (pane,))


def dump_panes(panes: list[Pane], *, type_of_all: Any) -> list[Any]:
    """Return the panes of a key as plain data; the form is part of the state format.

    Values that functions save by name have no type: they are encoded by themselves, so that the
    rest has one.

    Args:
        panes: The panes.
        type_of_all: Result of ``type_of_panes``: only its values are stored by their type.
    """
    row = tuple if type_of_all is None else get_args(type_of_all)[0]._make
    return [
        row((
            pane.start, pane.end, pane.first, pane.last, pane.count, pane.content,
            _dump(pane.state), sorted(pane.events), sorted(pane.moments), _dump(pane.values),
        ))
        for pane in panes
    ]  # fmt: skip


def load_panes(data: list[Any]) -> list[Pane]:
    """Return the panes that ``dump_panes`` described."""
    panes = []
    for start, end, first, last, count, content, state, events, moments, values in data:
        pane = Pane(start, end, first, last, count, content, _load(state), values=_load(values))
        pane.events, pane.moments = set(events), set(moments)
        panes.append(pane)
    return panes


def _dump(named: dict[str, Any]) -> bytes:
    """Return encoded named values, names and values in turn, pickled only if required."""
    return _ANY.encode_list([part for pair in named.items() for part in pair]) if named else b""


def _load(data: Any) -> dict[str, Any]:
    if isinstance(data, dict):
        return data  # As panes without a type were stored.
    parts = _ANY.decode_list(data) if data else []
    return dict(zip(parts[::2], parts[1::2], strict=True))


class PaneContext:
    """The ``TriggerContext`` of one pane.

    Args:
        remember: Puts a timer into the index: ``(is_event_time, time, pane)``.
    """

    def __init__(self, remember: Callable[[bool, int], None]) -> None:
        self._remember = remember
        self.pane = Pane(0, 1)
        self.complete = 0
        self.now_ms = 0

    def current_watermark(self) -> int:
        """Return the event time in ms before which input is complete."""
        return self.complete

    def current_processing_time(self) -> int:
        """Return the recorded time of the epoch in ms."""
        return self.now_ms

    def register_event_time_timer(self, time_ms: int) -> None:
        """Set a timer; once is enough."""
        if time_ms not in self.pane.events:
            self.pane.events.add(time_ms)
            self._remember(True, time_ms)

    def register_processing_time_timer(self, time_ms: int) -> None:
        """Set a timer; once is enough."""
        if time_ms not in self.pane.moments:
            self.pane.moments.add(time_ms)
            self._remember(False, time_ms)

    def delete_event_time_timer(self, time_ms: int) -> None:
        """Take a timer back."""
        self.pane.events.discard(time_ms)

    def delete_processing_time_timer(self, time_ms: int) -> None:
        """Take a timer back."""
        self.pane.moments.discard(time_ms)

    def get_state(self, name: str, default: Any = None) -> Any:
        """Return a value of the trigger."""
        return self.pane.state.get(name, default)

    def save_state(self, name: str, value: Any) -> None:
        """Keep a value of the trigger; None forgets it."""
        if value is None:
            self.pane.state.pop(name, None)
        else:
            self.pane.state[name] = value
