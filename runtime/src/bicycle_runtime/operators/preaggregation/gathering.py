"""Folding the records of an epoch per key and window, before any state is touched.

Each key and window gets a *ordinal*, an int; contents are columns indexed by ordinal. Selected
values are first put into one list per ordinal and then folded by functions that run in C (``sum``,
``min``), so that a record costs a look-up and an append. Ints that are only to be summed are added
at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.operators.preaggregation.aggregates import Accumulators, Folding
from bicycle_runtime.operators.preaggregation.batch_rows import Rows
from bicycle_runtime.operators.user_calls.batches import each
from bicycle_runtime.operators.user_calls.policy import DROPPED, RecordPolicy
from bicycle_runtime.operators.user_calls.user_functions import eager
from bicycle_runtime.state.memory.windows import Row
from bicycle_sdk.windows import Count, Sum
from bicycle_sdk.windows.aggregates import SelectedAggregate, sums_of_ints

_PENDING_MAX = 1 << 18  # selected values that wait to be folded
_INTS = frozenset({int})


class GatheredContents(ABC):
    """The gathered content of each ordinal."""

    @abstractmethod
    def grow(self, count: int) -> None:
        """Make room: there are ``count`` ordinals now."""

    @abstractmethod
    def prepare(self, rows: Rows) -> Rows:
        """Call the user's functions on the rows; return rows that the policy kept."""

    @abstractmethod
    def add(self, rows: Rows, ordinals: Sequence[int]) -> None:
        """Put rows that were just prepared into ordinals."""

    def may_refuse(self) -> bool:
        """Return whether prepared rows may be left out when they are added."""
        return False

    def takes(self, rows: Rows, index: int, ordinal: int) -> bool:
        """Add a prepared row to an ordinal; return whether it was added."""
        self.add(rows.take([index]), [ordinal])
        return True

    @abstractmethod
    def absorb(self, ordinal: int, other: int) -> None:
        """Merge the content of another ordinal into this one."""

    @abstractmethod
    def take(self) -> Sequence[Any]:
        """Return the content of each ordinal, None where nothing arrived, and start again."""


class GatheredRecords(GatheredContents):
    """The records themselves, with their times."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def grow(self, count: int) -> None:
        while len(self._rows) < count:
            self._rows.append(([], []))

    def prepare(self, rows: Rows) -> Rows:
        return rows

    def add(self, rows: Rows, ordinals: Sequence[int]) -> None:
        kept = self._rows
        for ordinal, time, value in zip(ordinals, rows.times, rows.batch.values, strict=True):
            times, values = kept[ordinal]
            times.append(time)
            values.append(value)

    def absorb(self, ordinal: int, other: int) -> None:
        self._rows[ordinal][0].extend(self._rows[other][0])
        self._rows[ordinal][1].extend(self._rows[other][1])

    def take(self) -> Sequence[Row]:
        rows, self._rows = self._rows, []
        return rows


class _Selection:
    """Aggregates of one selector, and their values that wait to be folded, by ordinal.

    As long as all values are ints and all aggregates sums, ``totals`` takes them: False in an
    ordinal without a value, which becomes an int with the first value added to it.
    """

    def __init__(self, selector: Callable[[Any], Any]) -> None:
        self.selector = selector
        self.call = eager(selector)
        self.awaits = is_async(selector)
        self.positions: list[int] = []
        self.plain_types: frozenset[type] | None = None
        self.values: list[Any] = []
        self.kinds: set[type] = set()
        self._is_summed = True
        self.clear()

    def join(self, position: int, function: SelectedAggregate[Any, Any, Any] | Count[Any]) -> None:
        """Take an aggregate of this selector in."""
        self.positions.append(position)
        plain = function.plain_types
        self.plain_types = plain if self.plain_types is None else self.plain_types & plain
        self._is_summed = self._is_summed and type(function) is Sum
        self.clear()

    def clear(self) -> None:
        """Forget the values."""
        self.pending: list[list[Any]] = []
        self.totals: list[int] | None = [] if self._is_summed else None

    def grow(self, missing: int) -> None:
        """Make room for more ordinals."""
        if self.totals is None:
            self.pending.extend([[] for _ in range(missing)])
        else:
            self.totals.extend([False] * missing)

    def spread(self) -> int:
        """Accept values of any type from now on; return the number of pending totals."""
        if self.totals is None:
            return 0
        self.pending = [[] if total is False else [total] for total in self.totals]
        self.totals = None
        return len(self.pending)

    def add(self, ordinals: Sequence[int]) -> int:
        """Put the values into ordinals; return how many of them wait to be folded."""
        if not self.kinds <= _INTS:
            self.spread()
        if self.totals is None:
            pending = self.pending
            # hot path: 50 ns a record.
            for ordinal, value in zip(ordinals, self.values, strict=True):
                pending[ordinal].append(value)
            return len(self.values)
        totals = self.totals
        # hot path: 35 ns a record, and nothing is left to fold, which took 200 with few in a
        # ordinal.
        for ordinal, value in zip(ordinals, self.values, strict=True):
            totals[ordinal] += value
        return 0

    def absorb(self, ordinal: int, other: int) -> None:
        """Merge the content of another ordinal into this one."""
        if self.totals is None:
            self.pending[ordinal] += self.pending[other]
            self.pending[other] = []
        elif self.totals[other] is not False:
            self.totals[ordinal] += self.totals[other]
            self.totals[other] = False


class FoldedContents(GatheredContents):
    """Accumulators, and selected values on their way into them.

    Args:
        folding: The aggregates.
        policy: Settles records that a function refuses.
    """

    def __init__(self, folding: Folding, policy: RecordPolicy) -> None:
        self._folding = folding
        self._policy = policy
        self._counts: list[int] = []  # positions of counts
        self._whole: list[int] = []  # positions of functions that get whole records
        self._selections: list[_Selection] = []
        self._columns: list[list[Any]] = [[] for _ in folding.functions]
        self._pending_count = 0
        self._is_careful = False
        self._filled = 0  # ordinals below hold a record, but for the empty ones
        self._empty: set[int] = set()
        for position, function in enumerate(folding.functions):
            selector = getattr(function, "selector", None)
            if type(function) is Count and selector is None:
                self._counts.append(position)
            elif selector is not None and isinstance(function, SelectedAggregate | Count):
                self._selection_of(selector).join(position, function)
            else:
                self._whole.append(position)

    def grow(self, count: int) -> None:
        missing = count - len(self._columns[0])
        for column, function in zip(self._columns, self._folding.functions, strict=True):
            column.extend([function.create_accumulator() for _ in range(missing)])
        for selection in self._selections:
            selection.grow(missing)

    def prepare(self, rows: Rows) -> Rows:
        for selection in self._selections:
            rows = self._select(selection, rows)
        for selection in self._selections:
            selection.values = rows.selected[selection.positions[0]]
            # hot path: set(map(type, …)) costs 12 ns a record and makes checks of sums unnecessary.
            selection.kinds = set(map(type, selection.values))
        self._is_careful = not all(
            selection.kinds <= (selection.plain_types or frozenset())
            for selection in self._selections
        )
        return rows

    def select(self, index: int, rows: Rows) -> Rows:
        """Call an aggregate's first selector; return the rows that the policy kept."""
        [selection] = [one for one in self._selections if one.positions[0] == index]
        return self._select(selection, rows)

    def _select(self, selection: _Selection, rows: Rows) -> Rows:
        index, policy = selection.positions[0], self._policy
        if index in rows.selected:
            return rows
        failed, values = policy.failed, rows.batch.values
        policy.batch = rows.batch
        results = each(selection.call, values, policy=policy, awaits=selection.awaits)
        rows.selected[index] = results
        return rows if policy.failed == failed else rows.without_drops(results)

    def add(self, rows: Rows, ordinals: Sequence[int]) -> None:
        if self._is_careful:
            self._pending_count += sum(selection.spread() for selection in self._selections)
            if self._pending_count:
                self._fold()
            ordinals = self._add_each(rows, ordinals, list(range(len(self._columns))))
        elif self._whole:
            ordinals = self._add_each(rows, ordinals, self._whole)
        if self._empty or len(ordinals) != len(rows.keys):
            self._empty.update(range(self._filled, len(self._columns[0])))
            self._empty.difference_update(ordinals)
        self._filled = len(self._columns[0])
        if self._is_careful:
            return
        for selection in self._selections:
            self._pending_count += selection.add(ordinals)
        for position in self._counts:
            column = self._columns[position]
            for ordinal in ordinals:
                column[ordinal] += 1
        if self._pending_count > _PENDING_MAX:
            self._fold()

    def may_refuse(self) -> bool:
        return self._policy.undoes and (self._is_careful or bool(self._whole))

    def takes(self, rows: Rows, index: int, ordinal: int) -> bool:
        prepared = [selection.values for selection in self._selections]
        for selection, values in zip(self._selections, prepared, strict=True):
            selection.values = [values[index]]
        failed = self._policy.failed
        self.add(rows.take([index]), [ordinal])
        for selection, values in zip(self._selections, prepared, strict=True):
            selection.values = values
        return self._policy.failed == failed

    def absorb(self, ordinal: int, other: int) -> None:
        if ordinal in self._empty and other not in self._empty:
            self._empty.discard(ordinal)
        for selection in self._selections:
            selection.absorb(ordinal, other)
        merged = self._folding.merged(self._accumulators(ordinal), self._accumulators(other))
        for column, accumulator in zip(self._columns, merged, strict=True):
            column[ordinal] = accumulator

    def take(self) -> Sequence[Accumulators | None]:
        self._fold()
        for selection in self._selections:
            if selection.totals is not None:  # Then the accumulators are fresh.
                for position in selection.positions:
                    self._columns[position] = sums_of_ints(selection.totals)
            selection.clear()
        taken: list[Accumulators | None] = list(zip(*self._columns, strict=True))
        for ordinal in self._empty:
            taken[ordinal] = None
        self._columns = [[] for _ in self._columns]
        self._filled = 0
        self._empty.clear()
        return taken

    def _selection_of(self, selector: Callable[[Any], Any]) -> _Selection:
        for selection in self._selections:
            if selection.selector is selector:
                return selection
        self._selections.append(_Selection(selector))
        return self._selections[-1]

    def _accumulators(self, ordinal: int) -> Accumulators:
        return tuple([column[ordinal] for column in self._columns])

    def _fold(self) -> None:
        for selection in self._selections:
            for ordinal, values in enumerate(selection.pending):
                if not values:
                    continue
                for position in selection.positions:
                    column = self._columns[position]
                    column[ordinal] = self._folding.functions[position].add_all(
                        column[ordinal], values
                    )
                selection.pending[ordinal] = []
        self._pending_count = 0

    def _add_each(
        self, rows: Rows, ordinals: Sequence[int], positions: Sequence[int]
    ) -> Sequence[int]:
        """Add records singly; a record that one function refuses is in no accumulator.

        Returns:
            The ordinals of the records that were not left out.
        """
        self._policy.batch = rows.batch
        adds = [(self._columns[position], self._folding.adds[position]) for position in positions]
        awaits = any(is_async(add) for _, add in adds)
        call = partial(_add_later if awaits else _add_one, adds)
        items = list(zip(ordinals, rows.batch.values, strict=True))
        results = each(call, items, policy=self._policy, awaits=awaits)
        if not any(result is DROPPED for result in results):
            return ordinals
        for selection in self._selections:
            selection.values = _without_dropped(selection.values, results)
        return _without_dropped(ordinals, results)


def _add_one(adds: Sequence[tuple[list[Any], Callable[..., Any]]], item: tuple[int, Any]) -> None:
    ordinal, value = item
    added = [add(column[ordinal], value) for column, add in adds]
    for (column, _), accumulator in zip(adds, added, strict=True):
        column[ordinal] = accumulator


async def _add_later(
    adds: Sequence[tuple[list[Any], Callable[..., Any]]], item: tuple[int, Any]
) -> None:
    ordinal, value = item
    added = []
    for column, add in adds:
        result = add(column[ordinal], value)
        added.append(await result if is_async(add) else result)
    for (column, _), accumulator in zip(adds, added, strict=True):
        column[ordinal] = accumulator


def _without_dropped(values: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    return [value for value, result in zip(values, results, strict=True) if result is not DROPPED]
