"""Evictors: records that leave a window before or after it fires. A window then keeps records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from bicycle_sdk.windows.assigners import Duration, duration_ms, whole_count
from bicycle_sdk.windows.panes import Window

__all__ = ["CountEvictor", "Evictor", "TimeEvictor", "TimedValue"]


class TimedValue(NamedTuple):
    """A record of a window with its event time in ms, or its arrival time."""

    timestamp: int
    value: Any


class Evictor(ABC):
    """Selects the records that a firing window keeps; other records are removed."""

    def before(self, elements: list[TimedValue], window: Window) -> list[TimedValue]:
        """Return the records that the function sees.

        Called on a worker before each firing, with the records in the order of arrival.
        """
        return elements

    def after(self, elements: list[TimedValue], window: Window) -> list[TimedValue]:
        """Return the records that stay in the window. Called on a worker after each firing."""
        return elements

    @abstractmethod
    def describe(self) -> str:
        """Return a word or two for plans and graphs."""


class CountEvictor(Evictor):
    """Keeps the last ``count`` records that arrived."""

    def __init__(self, count: int) -> None:
        self.count = whole_count("count", count)

    def before(self, elements: list[TimedValue], window: Window) -> list[TimedValue]:
        return elements[-self.count :]

    def describe(self) -> str:
        return f"the last {self.count}"


class TimeEvictor(Evictor):
    """An evictor that keeps records less than ``span`` older than the newest."""

    def __init__(self, span: Duration) -> None:
        self.span_ms = duration_ms("span", span)

    def before(self, elements: list[TimedValue], window: Window) -> list[TimedValue]:
        if not elements:
            return elements
        newest = max(element.timestamp for element in elements)
        return [element for element in elements if element.timestamp > newest - self.span_ms]

    def describe(self) -> str:
        return f"the last {self.span_ms} ms"
