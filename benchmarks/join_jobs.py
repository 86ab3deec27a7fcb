"""Rows of two sides, and what is done with them: by operators, and by loops that keep nothing.

``FORMS`` adds one operator to two keyed streams, or seven; ``LOOPS`` does the same as each of them
on dicts and sorted lists, for all rows in the order in which the epochs bring them. What waits for
time that has not come stays where it is, in both.
"""

from __future__ import annotations

import heapq
import json
import random
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bicycle_runtime.testing import script_source
from bicycle_sdk import (
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    ListStateDescriptor,
    MapStateDescriptor,
    StreamEnvironment,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from bicycle_sdk.windows import tumbling_windows

__all__ = ["FORMS", "LOOPS", "Epochs", "Row", "job", "result_counts", "rows_of", "write_rows"]

KEYS = 400
EPOCHS = 8
_REACH_MS = 2_000
_MS_PER_ROW = 10
_OUT_OF_ORDER_MS = 1_000
_LAST = 20
_WINDOW_MS = 5_000
RATES = {f"key-{number}": number / 7 for number in range(KEYS)}


@dataclass(frozen=True)
class Row:
    """One row of either side."""

    key: str
    time: int
    value: float


Epochs = list[tuple[list[Row], list[Row]]]  # The rows of both sides in each epoch.


def rows_of(count: int) -> Epochs:
    """Return rows of both sides in the order of time, by epoch; one of five is of the right."""
    span = count * _MS_PER_ROW
    left, right = (_side(size, span) for size in (count * 4 // 5, count // 5))
    return list(zip(left, right, strict=True))


def _side(count: int, span: int) -> list[list[Row]]:
    chance = random.Random(count)
    rows = [
        Row(f"key-{chance.randrange(KEYS)}", chance.randrange(span), chance.random())
        for _ in range(count)
    ]
    rows.sort(key=lambda row: row.time)
    size = -(-count // EPOCHS)
    return [rows[start : start + size] for start in range(0, count, size)]


def write_rows(epochs: Epochs, folder: Path, *, files: int = 2) -> int:
    """Write the rows of both sides as JSON, in the order of time, and return their number."""
    rows = sorted(_rows(epochs), key=lambda row: row.time)
    for number in range(files):
        with (folder / f"rows-{number}.jsonl").open("w") as stream:
            stream.writelines(json.dumps(asdict(row)) + "\n" for row in rows[number::files])
    return len(rows)


def result_counts(epochs: Epochs) -> dict[str, int]:
    """Return how many results process functions give until the end of time, by form."""
    rows = list(_rows(epochs))
    by_key = Counter(row.key for row in rows)
    return {
        "timers, value and map": len({(row.key, row.time // _WINDOW_MS) for row in rows}),
        "list state": sum(count // _LAST for count in by_key.values()),
        "map state": len(rows),
        "value state": len(rows),
    }


def pair(left: Row, right: Row) -> tuple[str, float]:
    """Return a result of two rows."""
    return left.key, left.value * right.value


# --- operators -----------------------------------------------------------------------------------


class Watch(KeyedProcessFunction[str, Row, tuple[str, int]]):
    """Counts the rows of a key, keeps the newest of each second, and tells every five seconds."""

    count = ValueStateDescriptor("count", int, default=0)
    newest = MapStateDescriptor("newest", int, float)

    def process_element(self, value, ctx):
        count = ctx.get_value_state(self.count)
        count.update(count.value() + 1)
        ctx.get_map_state(self.newest).put(value.time // 1_000, value.value)
        ctx.timer_service.register_event_time_timer(value.time // 5_000 * 5_000 + 5_000)
        return []

    def on_timer(self, timestamp_ms, ctx):
        newest = ctx.get_map_state(self.newest)
        for second, _ in list(newest.range(None, timestamp_ms // 1_000)):
            newest.remove(second)
        return [(ctx.current_key(), ctx.get_value_state(self.count).value())]


class LastRows(KeyedProcessFunction[str, Row, tuple[str, float]]):
    """Keeps the rows of a key, and tells their mean when there are twenty."""

    rows = ListStateDescriptor("rows", Row)
    count = ValueStateDescriptor("count", int, default=0)

    def open(self, ctx):
        self._rows, self._count = ctx.get_list_state(self.rows), ctx.get_value_state(self.count)

    def process_element(self, value, _ctx):
        self._rows.add(value)
        count = self._count.value() + 1
        self._count.update(count % _LAST)
        if count < _LAST:
            return []
        mean = sum(row.value for row in self._rows.get()) / _LAST
        self._rows.clear()
        return [(value.key, mean)]


class Seconds(KeyedProcessFunction[str, Row, tuple[str, int, float]]):
    """Sums up the rows of a key by the second, and keeps all sums."""

    sums = MapStateDescriptor("sums", int, float)

    def open(self, ctx):
        self._sums = ctx.get_map_state(self.sums)

    def process_element(self, value, _ctx):
        second = value.time // 1_000
        total = self._sums.get(second, 0.0) + value.value
        self._sums.put(second, total)
        return [(value.key, second, total)]


class Totals(KeyedProcessFunction[str, Row, tuple[str, float]]):
    """Sums up the rows of a key."""

    total = ValueStateDescriptor("total", float, default=0.0)

    def open(self, ctx):
        self._total = ctx.get_value_state(self.total)

    def process_element(self, value, _ctx):
        total = self._total.value() + value.value
        self._total.update(total)
        return [(value.key, total)]


Form = Callable[[KeyedStream, KeyedStream], DataStream]


def _both(function: Callable[[], KeyedProcessFunction]) -> Form:
    def form(left: KeyedStream, right: KeyedStream) -> DataStream:
        return left.union(right).key_by(lambda row: row.key).process_fn(function())

    return form


async def ask(key: str) -> float:
    """Return what another system knows of a key, at once: what is measured is the way there."""
    return RATES[key]


def with_rate(row: Row, rate: float) -> tuple[str, float]:
    """Return a result of a row and its answer."""
    return row.key, row.value * rate


def _looked_up(left: KeyedStream, right: KeyedStream) -> DataStream:
    both = left.union(right)
    return both.lookup_join(lambda row: row.key, ask, with_rate)


_ONE: dict[str, Form] = {
    "interval join": lambda left, right: left.interval_join(right, -_REACH_MS, _REACH_MS, pair),
    "as-of join": lambda left, right: left.as_of_join(right, pair),
    "window join": lambda left, right: left.window_join(right, tumbling_windows(_WINDOW_MS), pair),
    "timers, value and map": _both(Watch),
    "list state": _both(LastRows),
    "map state": _both(Seconds),
    "value state": _both(Totals),
}
LOOKUP = "lookup join"
FORMS = {
    **{name: (form,) for name, form in _ONE.items()},
    LOOKUP: (_looked_up,),
    "all seven": tuple(_ONE.values()),
}


def job(form: str, env: StreamEnvironment) -> None:
    """Add the operators of a form behind the sources ``left`` and ``right``."""
    marks = WatermarkStrategy.bounded_out_of_orderness(timedelta(milliseconds=_OUT_OF_ORDER_MS))
    sides = [
        env.add_source(script_source(Row)).uid(uid)
        .assign_timestamps(marks.with_timestamps(lambda row: row.time))
        .key_by(lambda row: row.key)
        for uid in ("left", "right")
    ]  # fmt: skip
    for number, add in enumerate(FORMS[form]):
        add(*sides).uid(f"judged-{number}").collect(f"out-{number}")


# --- loops ---------------------------------------------------------------------------------------


def joined(epochs: Epochs) -> list[tuple[str, float]]:
    """Return what the interval join gives; all rows are kept."""
    kept: tuple[dict[str, list[Row]], ...] = defaultdict(list), defaultdict(list)
    times: tuple[dict[str, list[int]], ...] = defaultdict(list), defaultdict(list)
    results = []
    for ours, theirs in epochs:
        for side, rows in ((0, ours), (1, theirs)):
            for row in rows:
                other = times[1 - side][row.key]
                low = bisect_left(other, row.time - _REACH_MS)
                high = bisect_right(other, row.time + _REACH_MS)
                results += [
                    pair(row, match) if side == 0 else pair(match, row)
                    for match in kept[1 - side][row.key][low:high]
                ]
                kept[side][row.key].append(row)
                times[side][row.key].append(row.time)
    return results


def watched(epochs: Epochs) -> list[tuple[str, int]]:
    """Return what ``Watch`` gives, with its timers in a heap."""
    counts: dict[str, int] = defaultdict(int)
    newest: dict[str, dict[int, float]] = defaultdict(dict)
    heap: list[tuple[int, str]] = []
    known: set[tuple[int, str]] = set()
    results: list[tuple[str, int]] = []

    def told(until_ms: float) -> Iterator[tuple[str, int]]:
        while heap and heap[0][0] <= until_ms:
            timer = heapq.heappop(heap)
            known.discard(timer)
            seconds = newest[timer[1]]
            for second in [second for second in seconds if second < timer[0] // 1_000]:
                del seconds[second]
            yield timer[1], counts[timer[1]]

    for sides in epochs:
        for row in (row for rows in sides for row in rows):
            counts[row.key] += 1
            newest[row.key][row.time // 1_000] = row.value
            timer = (row.time // 5_000 * 5_000 + 5_000, row.key)
            if timer not in known:
                known.add(timer)
                heapq.heappush(heap, timer)
        least = min(rows[-1].time for rows in sides)
        results += told(least - _OUT_OF_ORDER_MS - 1)
    return results


def followed(epochs: Epochs) -> list[tuple[str, float]]:
    """Return what the as-of join gives: each left row with the newest right row of its time."""
    kept: dict[str, list[Row]] = defaultdict(list)
    times: dict[str, list[int]] = defaultdict(list)
    waiting: list[tuple[int, int, Row]] = []
    results = []
    number = 0
    for ours, theirs in epochs:
        for row in theirs:
            kept[row.key].append(row)
            times[row.key].append(row.time)
        for row in ours:
            number += 1
            heapq.heappush(waiting, (row.time, number, row))
        least = min(ours[-1].time, theirs[-1].time) - _OUT_OF_ORDER_MS - 1
        while waiting and waiting[0][0] <= least:
            row = heapq.heappop(waiting)[2]
            place = bisect_right(times[row.key], row.time)
            if place:
                results.append(pair(row, kept[row.key][place - 1]))
    return results


def met(epochs: Epochs) -> list[tuple[str, float]]:
    """Return what the window join gives: all pairs of a key and window, when it is over."""
    found: dict[int, dict[str, tuple[list[Row], list[Row]]]] = defaultdict(dict)
    results: list[tuple[str, float]] = []

    def told(until_ms: int) -> Iterator[tuple[str, float]]:
        for number in [each for each in found if (each + 1) * _WINDOW_MS - 1 <= until_ms]:
            for ours, theirs in found.pop(number).values():
                yield from (pair(left, right) for left in ours for right in theirs)

    for sides in epochs:
        for side in (0, 1):
            for row in sides[side]:
                window = found[row.time // _WINDOW_MS]
                if row.key not in window:
                    window[row.key] = [], []
                window[row.key][side].append(row)
        results += told(min(rows[-1].time for rows in sides) - _OUT_OF_ORDER_MS - 1)
    return results


def _rows(epochs: Epochs) -> Iterator[Row]:
    return (row for sides in epochs for rows in sides for row in rows)


def listed(epochs: Epochs) -> list[tuple[str, float]]:
    """Return what ``LastRows`` gives."""
    kept: dict[str, list[Row]] = defaultdict(list)
    results = []
    for row in _rows(epochs):
        rows = kept[row.key]
        rows.append(row)
        if len(rows) == _LAST:
            results.append((row.key, sum(each.value for each in rows) / _LAST))
            rows.clear()
    return results


def by_second(epochs: Epochs) -> list[tuple[str, int, float]]:
    """Return what ``Seconds`` gives."""
    sums: dict[str, dict[int, float]] = defaultdict(dict)
    results = []
    for row in _rows(epochs):
        second, known = row.time // 1_000, sums[row.key]
        total = known[second] = known.get(second, 0.0) + row.value
        results.append((row.key, second, total))
    return results


def totals(epochs: Epochs) -> list[tuple[str, float]]:
    """Return what ``Totals`` gives."""
    known: dict[str, float] = defaultdict(float)
    results = []
    for row in _rows(epochs):
        known[row.key] += row.value
        results.append((row.key, known[row.key]))
    return results


def looked_up(epochs: Epochs) -> list[tuple[str, float]]:
    """Return what the lookup join gives."""
    return [with_rate(row, RATES[row.key]) for row in _rows(epochs)]


_LOOPS_OF_ONE: dict[str, Callable[[Epochs], list[Any]]] = {
    "interval join": joined,
    "as-of join": followed,
    "window join": met,
    "timers, value and map": watched,
    "list state": listed,
    "map state": by_second,
    "value state": totals,
}


def all_of_them(epochs: Epochs) -> list[Any]:
    """Return what the seven give, one loop behind the other."""
    return [result for loop in _LOOPS_OF_ONE.values() for result in loop(epochs)]


LOOPS: dict[str, Callable[[Epochs], list[Any]]] = {
    **_LOOPS_OF_ONE,
    LOOKUP: looked_up,
    "all seven": all_of_them,
}
