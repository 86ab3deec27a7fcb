"""Tumbling and sliding windows in state: slices of time that windows share."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, ClassVar

from bicycle_runtime.operators.batch import Batch, new_batch
from bicycle_runtime.operators.columnar.field_columns import field_columns, fires_from_columns
from bicycle_runtime.operators.columnar.merge import ColumnMerge, ColumnWindow, result_columns
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.preaggregation.batch_rows import Rows
from bicycle_runtime.operators.windows.base import WindowOperator
from bicycle_runtime.operators.windows.blocks import Partials
from bicycle_runtime.operators.windows.firing import Fired
from bicycle_runtime.operators.windows.kept_windows import KeptWindows
from bicycle_runtime.operators.windows.placements import Placement, SlicePlacement
from bicycle_runtime.state.memory.due import in_order
from bicycle_runtime.state.memory.windows import WindowEntries, WindowTable, WindowTables
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.windows import Window, WindowPlan

_RESULTS_PER_BATCH = 4_096
_CONTENTS_MAX = 1 << 17  # Merged contents that are kept from one epoch to the next.


class SlidingContents:
    """The contents of keys in windows, requested in the order of their ends.

    Late slices are merged into one content per key. When the first of them leaves the window, they
    become a stack per key, whose top has all slices since a start: each slice is merged twice.

    Args:
        folding: Merges and copies contents.
        contents: Returns the contents of a slice by key.
    """

    def __init__(self, folding: Folding, contents: Callable[[int], Mapping[Any, Any]]) -> None:
        self._folding, self._contents = folding, contents
        self._coming: deque[int] = deque()  # Slices that no requested window had.
        self._end = WATERMARK_MIN  # Of the last window.
        self._early: dict[Any, list[tuple[int, Any]]] = {}  # Since each start, the latest first.
        self._late: dict[Any, Any] = {}
        self._late_starts: list[int] = []
        self._own: set[Any] = set()  # Keys whose late content may be changed.

    def __len__(self) -> int:
        return len(self._late) + sum(map(len, self._early.values()))

    def offer(self, starts: Sequence[int]) -> None:
        """Take all slices, in order; earlier windows have the same as before."""
        self._coming = deque(starts[bisect_left(starts, self._end) :])

    def of_window(self, window: Window) -> dict[Any, Any]:
        """Return the contents of a window by key."""
        # hot path: a window takes 0.4 µs per key that it has, and not per slice.
        start, coming = window.start, self._coming
        merged, copy = self._folding.merged, self._folding.copy
        self._end = window.end
        while coming and coming[0] < window.end:
            if (added := coming.popleft()) >= start:
                self._add(added)
        if self._late_starts and self._late_starts[0] < start:
            self._stack(start)
        found = {}
        for key, stack in list(self._early.items()):
            while stack and stack[-1][0] < start:
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
        self._late_starts.append(start)
        for key, content in self._contents(start).items():
            if key not in late:
                late[key] = content
                continue
            if key not in own:  # The content of a slice must not be changed.
                late[key] = folding.copy(late[key])
                own.add(key)
            late[key] = folding.merged(late[key], content)

    def _stack(self, first: int) -> None:
        """Make stacks of all slices that are still in the window."""
        starts, self._late_starts = self._late_starts, []
        self._early, self._late, self._own = {}, {}, set()
        for start in reversed(starts[bisect_left(starts, first) :]):
            for key, content in self._contents(start).items():
                stack = self._early.setdefault(key, [])
                if not stack:
                    stack.append((start, content))
                    continue
                own = self._folding.copy(content)
                stack.append((start, self._folding.merged(own, stack[-1][1])))


class KeptSlices(KeptWindows):
    """Windows stored as an entry (or records) per key and slice, joined on firing.

    Slices that are over are removed one by one, when all windows of a slice are over.
    """

    is_by_key: ClassVar[bool] = False
    columns: ColumnMerge

    def __init__(self, window: WindowOperator, placement: Placement) -> None:
        super().__init__(window, placement)
        assert isinstance(placement, SlicePlacement)
        self._slices, self._accumulators = placement.slices, placement.accumulators
        self._updated: dict[int, dict[int, dict[Any, None]]] = {}
        self._complete: dict[int, ColumnWindow] = {}
        self._sliding: SlidingContents | None = None  # From epoch to epoch.
        self._group_of: dict[Any, int] = {}  # The key group of each key that it has had.
        self._seen: tuple[WindowTable, int] | None = None  # The table whose contents it has.
        self._overlaps = not self.keeps_records and self._slices.slide_ms < self._slices.size_ms
        columns = field_columns(self.folding.functions) or []
        self.columns = ColumnMerge(columns, step_ms=self._slices.step_ms)
        self._fires_from_columns = fires_from_columns(self.plan)

    @classmethod
    def new_entries(
        cls, plan: WindowPlan, folding: Folding, windows: WindowTables
    ) -> WindowEntries:
        return windows.entries("c", None if plan.keeps_records else folding.state_type)

    def clear(self) -> None:
        self.columns.clear()
        self._updated.clear()
        self._complete.clear()

    def take_late(self, rows: Rows) -> None:
        windows = [next(self._slices.windows_of(start)) for start in rows.namespaces]
        self.window.count_late(rows, windows)

    def take_partials(self, group: int, block: Partials) -> None:
        self._settle((start, group, keys, contents) for start, keys, contents in block.parts)

    def settle(self) -> None:
        self._settle(self._accumulators.take())
        for arrived in self.columns.take():
            if arrived.is_whole and self._fires_at_once(arrived.start):
                self._complete[arrived.start] = arrived
            else:
                self._settle(arrived.parts(self.columns.columns))

    def next_event_ms(self) -> int | None:
        namespaces = sorted({*self.table.entries.namespaces, *self.table.records.namespaces})
        for start in namespaces:
            end = self._slices.first_end_after(start, self.window.complete)
            if end is not None:
                return self.window.watermark_for(end)
        if not namespaces:
            return None
        last_end = self._slices.last_end(namespaces[0])
        return self.window.watermark_for(last_end + self.plan.lateness_ms)

    def _settle(self, parts: Iterable[tuple[int, int, list[Any], Sequence[Any]]]) -> None:
        """Add gathered contents to the table: start, key group, keys and contents."""
        for start, group, keys, contents in parts:
            if self.keeps_records:
                for key, row in zip(keys, contents, strict=True):
                    self.table.records.add(start, group, key, row)
            else:
                self._merge(start, group, keys, contents)
            if start < self.window.complete_before:
                self._sliding = None
                updated = self._updated.setdefault(start, {}).setdefault(group, {})
                updated.update(dict.fromkeys(keys))

    def _fires_at_once(self, start: int) -> bool:
        """Return whether a slice's window fires now with only this epoch's content."""
        if not self._fires_from_columns:
            return False
        complete_before, complete = self.window.complete_before, self.window.complete
        is_due = complete_before < self._slices.last_end(start) <= complete
        return is_due and start not in self._namespaces()

    def _merge(self, start: int, group: int, keys: list[Any], contents: Sequence[Any]) -> None:
        entries, merged = self.table.entries, self.folding.merged
        kept = entries.group(start, group)
        entries.touch(start, group, keys)
        if not kept:
            kept.update(zip(keys, contents, strict=True))
            return
        # hot path: 200 ns per key and window that is new, and a merge for the others.
        for key, content in zip(keys, contents, strict=True):
            known = kept.get(key)
            kept[key] = content if known is None else merged(known, content)

    # --- results out -------------------------------------------------------------------------

    def fire(self) -> Iterator[Batch]:
        complete = self._complete
        namespaces = sorted(self._namespaces())
        due = self._windows_due(namespaces, complete)
        if due and self._overlaps:
            self._slide(namespaces)
        # hot path: results that leave before the next are made cost 6 to 10 % less of it all.
        for has_arrived, windows in groupby(due, key=lambda window: window.start in complete):
            if has_arrived:
                yield from self._fire_arrived(windows)
                continue
            fired: list[Fired] = []
            for window in windows:
                fired += self._fire_stored(window, namespaces)
                if len(fired) >= _RESULTS_PER_BATCH:
                    yield self.window.fired(fired)
                    fired = []
            yield self.window.fired(fired)

    def _fire_arrived(self, windows: Iterable[Window]) -> Iterator[Batch]:
        """Yield results of windows whose content all arrived in this epoch, as columns."""
        arrived: list[ColumnWindow] = []
        for window in windows:
            arrived.append(self._complete.pop(window.start))
            if sum(map(len, arrived)) >= _RESULTS_PER_BATCH:
                yield new_batch(*self.window.firing.of_columns(*result_columns(arrived)))
                arrived = []
        if arrived:
            yield new_batch(*self.window.firing.of_columns(*result_columns(arrived)))

    def _slide(self, namespaces: list[int]) -> SlidingContents:
        """Return the contents of overlapping windows, which fire in order."""
        seen = self.table, self.table.generation
        if self._sliding is None or self._seen != seen:
            self._seen, self._group_of = seen, {}
            self._sliding = SlidingContents(self.folding, self._contents_at)
        self._sliding.offer(namespaces)
        return self._sliding

    def _contents_at(self, start: int) -> dict[Any, Any]:
        """Return the contents of a slice by key, and note the key groups of the keys."""
        found: dict[Any, Any] = {}
        for group in self._namespaces()[start]:
            contents = self.table.entries.contents(start, group, None)
            found.update(contents)
            self._group_of.update(dict.fromkeys(contents, group))
        return found

    def _fire_stored(self, window: Window, starts: list[int]) -> Iterator[Fired]:
        """Yield the contents of a window that are in the state, by key group and key."""
        again = window.end <= self.window.complete_before
        found: Iterable[tuple[int, Iterable[Any], Mapping[Any, Any]]]
        if self._overlaps and not again:
            # hot path: most windows with a short slide have few keys, each of another group.
            assert self._sliding is not None
            every, keys_of = self._sliding.of_window(window), dict[int, list[Any]]()
            for key in every:
                keys_of.setdefault(self._group_of[key], []).append(key)
            found = ((group, keys_of[group], every) for group in sorted(keys_of))
        else:
            namespaces = self._namespaces()
            parts = starts[bisect_left(starts, window.start) : bisect_left(starts, window.end)]
            groups = sorted({group for start in parts for group in namespaces[start]})
            found = (
                (group, own := self._contents_of(window, parts, group, is_again=again), own)
                for group in groups
            )
        has_values = self.plan.process is not None and self.plan.lateness_ms
        for group, keys, contents in found:
            for key in in_order(keys):
                values = self._values(window, group, key) if has_values else {}
                yield Fired(key, window, contents[key], values)

    def _windows_due(self, namespaces: list[int], complete: Iterable[int]) -> list[Window]:
        """Return the windows that fire, in the order of their ends."""
        due = set()
        # Of slices that are far back only windows near the watermark fire.
        first = bisect_left(namespaces, self._slices.least_open(self.window.complete_before))
        after = self.window.complete_before
        for start in namespaces[first:]:
            for window in self._slices.windows_between(start, after, self.window.complete):
                due.add(window)
                after = window.end
        for start in complete:
            due.update(self._slices.windows_of(start))
        for start in self._updated:
            for window in self._slices.windows_of(start):
                if window.end <= self.window.complete_before and not self.window.is_closed(
                    window.end
                ):
                    due.add(window)
        return sorted(due)

    def _namespaces(self) -> Any:
        kept = self.table.records if self.keeps_records else self.table.entries
        return kept.namespaces

    def _contents_of(
        self, window: Window, parts: list[int], group: int, *, is_again: bool
    ) -> Mapping[Any, Any]:
        """Return a window's content by key: of all keys, or of keys with new records."""
        keys: set[Any] | None = None
        if is_again:
            keys = set().union(*(self._updated.get(s, {}).get(group, ()) for s in parts))
        if self.keeps_records:
            return self._rows(parts, group, keys)
        contents = partial(self.table.entries.contents, group=group, keys=keys)
        if len(parts) == 1 and keys is None:
            return contents(parts[0])
        sliding = SlidingContents(self.folding, contents)
        sliding.offer(parts)
        found = sliding.of_window(window)
        return {key: each for key, each in found.items() if keys is None or key in keys}

    def _rows(self, parts: list[int], group: int, keys: set[Any] | None) -> dict[Any, Any]:
        joined: dict[Any, Any] = {}
        for start in parts:
            for key, row in self.table.records.rows(start, group, keys).items():
                times, values = joined.setdefault(key, ([], []))
                times += row[0]
                values += row[1]
        return joined

    def _values(self, window: Window, group: int, key: Any) -> dict[str, Any]:
        """Return the values that a window function keeps for a window, as a mutable dict."""
        namespace = window.end - self._slices.size_ms  # Cumulative windows may have the same start.
        found: dict[str, Any] = self.table.values.group(namespace, group).setdefault(key, {})
        self.table.values.touch(namespace, group, (key,))
        return found

    def expire(self) -> None:
        self._updated.clear()
        if self._sliding and max(len(self._sliding), len(self._group_of)) > _CONTENTS_MAX:
            self._sliding = None
        closed = self.window.complete - self.plan.lateness_ms
        for kept in (self.table.entries, self.table.records):
            for start in [s for s in kept.namespaces if self._slices.last_end(s) <= closed]:
                kept.drop(start)
        size = self._slices.size_ms
        for start in [s for s in self.table.values.namespaces if s + size <= closed]:
            self.table.values.drop(start)
