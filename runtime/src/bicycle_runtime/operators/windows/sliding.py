"""Contents of overlapping windows that fire together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_sdk.windows import Window


class SlidingContents:
    """The contents of a key group in windows, requested in the order of their ends.

    Late slices are merged into one content per key. When the first of them leaves the window, they
    become a stack per key, whose top has all slices since a start: each slice is merged twice.

    Args:
        folding: Merges and copies contents.
        starts: The slices of the group, in order.
        contents: Returns the contents of a slice by key.
    """

    def __init__(
        self, folding: Folding, starts: Sequence[int], contents: Callable[[int], Mapping[Any, Any]]
    ) -> None:
        self._folding, self._starts, self._contents = folding, starts, contents
        self._first = self._middle = self._next = 0  # Positions of slices.
        self._early: dict[Any, list[tuple[int, Any]]] = {}  # Since each start, the latest first.
        self._late: dict[Any, Any] = {}
        self._own: set[Any] = set()  # Keys whose late content may be changed.

    def of_window(self, window: Window) -> dict[Any, Any]:
        """Return the contents of a window by key."""
        # hot path: a window takes 0.4 µs per key that it has, and not per slice.
        starts, merged, copy = self._starts, self._folding.merged, self._folding.copy
        while self._next < len(starts) and starts[self._next] < window.end:
            self._add(starts[self._next])
            self._next += 1
        while self._first < self._next and starts[self._first] < window.start:
            self._first += 1
        if self._first > self._middle:
            self._stack()
        found = {}
        for key, stack in list(self._early.items()):
            while stack and stack[-1][0] < window.start:
                stack.pop()
            if stack:
                found[key] = stack[-1][1]
            else:
                del self._early[key]
        for key, content in self._late.items():
            known = found.get(key)
            found[key] = copy(content) if known is None else merged(copy(known), content)
        return found

    def _add(self, start: int) -> None:
        late, own, folding = self._late, self._own, self._folding
        for key, content in self._contents(start).items():
            if key not in late:
                late[key] = content
                continue
            if key not in own:  # The content of a slice must not be changed.
                late[key] = folding.copy(late[key])
                own.add(key)
            late[key] = folding.merged(late[key], content)

    def _stack(self) -> None:
        """Make stacks of all slices that are still in the window."""
        self._early, self._late, self._own = {}, {}, set()
        self._middle = self._next
        for start in reversed(self._starts[self._first : self._next]):
            for key, content in self._contents(start).items():
                stack = self._early.setdefault(key, [])
                if not stack:
                    stack.append((start, content))
                    continue
                own = self._folding.copy(content)
                stack.append((start, self._folding.merged(own, stack[-1][1])))
