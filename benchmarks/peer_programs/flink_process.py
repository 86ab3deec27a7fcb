"""PyFlink: the process functions of ``join_jobs.py``, over rows of JSON in the order of time.

``python flink_process.py INPUT OUTPUT SETTINGS``, which names the form. There are as many files as
subtasks, so that each subtask takes time from one file.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson
from flink_runs import FirstRecord, lines_of, setup, started, write
from pyflink.common import Duration, TypeInformation, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, MapFunction, RuntimeContext
from pyflink.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)

_OUT_OF_ORDER_MS = 1_000
_LAST = 20

Row = tuple[str, int, float]


def row_type() -> TypeInformation:
    """Return the type of rows, new for each use: a used one cannot be sent with a function."""
    return Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])


class ToRow(MapFunction):
    """Parses a line."""

    def __init__(self, times: str) -> None:
        self._first = FirstRecord(times)

    def map(self, value: str) -> Row:
        self._first.note()
        row = orjson.loads(value)
        return row["key"], row["time"], row["value"]


class At(TimestampAssigner):
    """The time of a row."""

    def extract_timestamp(self, value: Row, _: int) -> int:
        return value[1]


class Watch(KeyedProcessFunction):
    """Counts the rows of a key, keeps the newest of each second, and tells every five seconds."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        newest = MapStateDescriptor("newest", Types.LONG(), Types.DOUBLE())
        self._newest = runtime_context.get_map_state(newest)

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        _, time_ms, number = value
        self._count.update((self._count.value() or 0) + 1)
        self._newest.put(time_ms // 1_000, number)
        ctx.timer_service().register_event_time_timer(time_ms // 5_000 * 5_000 + 5_000)
        return iter(())

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[str]:  # fmt: skip
        for second in [each for each in list(self._newest.keys()) if each < timestamp // 1_000]:
            self._newest.remove(second)
        yield f'["{ctx.get_current_key()}",{self._count.value()}]'


class LastRows(KeyedProcessFunction):
    """Keeps the rows of a key, and tells their mean when there are twenty."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self._rows = runtime_context.get_list_state(ListStateDescriptor("rows", row_type()))

    def process_element(self, value: Row, _: KeyedProcessFunction.Context) -> Iterator[str]:
        self._rows.add(value)
        count = (self._count.value() or 0) + 1
        self._count.update(count % _LAST)
        if count == _LAST:
            mean = sum(row[2] for row in self._rows.get()) / _LAST
            self._rows.clear()
            yield f'["{value[0]}",{mean}]'


class Seconds(KeyedProcessFunction):
    """Sums up the rows of a key by the second, and keeps all sums."""

    def open(self, runtime_context: RuntimeContext) -> None:
        sums = MapStateDescriptor("sums", Types.LONG(), Types.DOUBLE())
        self._sums = runtime_context.get_map_state(sums)

    def process_element(self, value: Row, _: KeyedProcessFunction.Context) -> Iterator[str]:
        key, time_ms, number = value
        second = time_ms // 1_000
        total = (self._sums.get(second) or 0.0) + number
        self._sums.put(second, total)
        yield f'["{key}",{second},{total}]'


class Totals(KeyedProcessFunction):
    """Sums up the rows of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.DOUBLE()))

    def process_element(self, value: Row, _: KeyedProcessFunction.Context) -> Iterator[str]:
        total = (self._total.value() or 0.0) + value[2]
        self._total.update(total)
        yield f'["{value[0]}",{total}]'


FORMS = {
    "timers, value and map": Watch,
    "list state": LastRows,
    "map state": Seconds,
    "value state": Totals,
}


def key_of(row: Row) -> str:
    return row[0]


def main() -> None:
    env, source, output, settings = setup()
    rows = lines_of(env, source).map(ToRow(settings["times"]), row_type())
    marks = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(_OUT_OF_ORDER_MS))
    timed = rows.assign_timestamps_and_watermarks(marks.with_timestamp_assigner(At()))
    function = FORMS[settings["form"]]()
    write(timed.key_by(key_of, Types.STRING()).process(function, Types.STRING()), output)
    started(env)


if __name__ == "__main__":
    main()
