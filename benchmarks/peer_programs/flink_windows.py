"""PyFlink: count, sum and average by sensor and window of 10 s, readings up to 5 s out of order.

``python flink_windows.py INPUT OUTPUT SETTINGS``. There are as many files as subtasks, so that each
subtask takes time from one file: of two that it reads in turn, the second would come late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson
from flink_runs import FirstRecord, lines_of, setup, started, write
from pyflink.common import Duration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import MapFunction
from pyflink.datastream.functions import AggregateFunction, ProcessWindowFunction
from pyflink.datastream.window import TumblingEventTimeWindows

_WINDOW_MS = 10_000
_OUT_OF_ORDER_MS = 5_000

Reading = tuple[str, int, float]
Cell = tuple[int, float]


class ToReading(MapFunction):
    """Parses a line."""

    def __init__(self, times: str) -> None:
        self._first = FirstRecord(times)

    def map(self, value: str) -> Reading:
        self._first.note()
        reading = orjson.loads(value)
        return reading["sensor"], reading["at"], float(reading["value"])


class At(TimestampAssigner):
    """The time of a reading."""

    def extract_timestamp(self, value: Reading, _: int) -> int:
        return value[1]


class Folded(AggregateFunction):
    """Number and sum."""

    def create_accumulator(self) -> Cell:
        return 0, 0.0

    def add(self, value: Reading, accumulator: Cell) -> Cell:
        return accumulator[0] + 1, accumulator[1] + value[2]

    def get_result(self, accumulator: Cell) -> Cell:
        return accumulator

    def merge(self, acc_a: Cell, acc_b: Cell) -> Cell:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class ToText(ProcessWindowFunction):
    """Writes a window."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Cell]
    ) -> Iterator[str]:
        window = context.window()
        for count, total in elements:
            average = total / count
            yield f'["{key}",{window.start},{window.end},[{count},{total},{average}]]'


def sensor_of(reading: Reading) -> str:
    return reading[0]


def main() -> None:
    env, source, output, settings = setup()
    kind = Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])
    readings = lines_of(env, source).map(ToReading(settings["times"]), kind)
    marks = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(_OUT_OF_ORDER_MS))
    timed = readings.assign_timestamps_and_watermarks(marks.with_timestamp_assigner(At()))
    windows = timed.key_by(sensor_of, Types.STRING()).window(
        TumblingEventTimeWindows.of(Time.milliseconds(_WINDOW_MS))
    )
    cell = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
    texts = windows.aggregate(
        Folded(), ToText(), accumulator_type=cell, output_type=Types.STRING()
    )  # fmt: skip
    write(texts, output)
    started(env)


if __name__ == "__main__":
    main()
