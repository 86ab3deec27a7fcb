"""What it costs that a function sees records and timers in the order of event time.

Both run the same function through the operator that jobs run it with, epoch by epoch, with restore
and commit, over state in memory and in RocksDB: it counts, compares with the record before and sets
a timer for each key and second. Records come up to half a second out of order; those behind the
watermark wait for the next epoch.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from functools import partial

from measuring import Report, Table, Target, WrongOutputError, arguments, in_turns
from one_operator import operator_of
from workloads import scratch

from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.operators.batch import Batch, ExchangeLineage
from bicycle_runtime.operators.functions.operator import Advance, EpochTime
from bicycle_runtime.records.keys import encode_key, key_group
from bicycle_runtime.state.settings import StateSettings
from bicycle_sdk import DataStream, KeyedProcessFunction, ValueStateDescriptor
from bicycle_sdk.contexts import WATERMARK_MIN

BACKENDS = ("memory", "rocksdb")
BEGAN_MS = 1_700_000_000_000
BATCH_RECORDS = 4_096
GROUPS = 128
KEYS = 1_000
BOUND_MS = 500
RECORDS_PER_MS = 20


class Watch(KeyedProcessFunction[str, str, str]):
    """Counts the records of a key, and tells the count each second in which there was one."""

    count = ValueStateDescriptor("count", int, default=0)
    last = ValueStateDescriptor("last", int, default=0)

    def process_element(self, value, ctx):
        count, last = ctx.get_value_state(self.count), ctx.get_value_state(self.last)
        time_ms = ctx.timestamp
        count.update(count.value() + 1)
        last.update(max(last.value(), time_ms))
        ctx.timer_service.register_event_time_timer(time_ms - time_ms % 1_000 + 999)
        return [value]

    def on_timer(self, timestamp_ms, ctx):  # noqa: ARG002  # the contract
        return [f"{ctx.current_key()} {ctx.get_value_state(self.count).value()}"]


def _itself(value: str) -> str:
    return value


def _form(stream: DataStream, *, is_ordered: bool) -> DataStream:
    watched = stream.key_by(_itself).process_fn(Watch())
    return watched.in_event_time_order() if is_ordered else watched


def main() -> None:
    """Measure both and tell."""
    options = arguments(__doc__, repeats=7, add=_add_options)
    records = 5_000 if options.quick else options.records
    contenders = {
        f"{name}, {backend}": partial(_cost, backend, is_ordered=is_ordered, records=records)
        for backend in BACKENDS
        for name, is_ordered in (("in order", True), ("as they come", False))
    }
    found = in_turns(contenders, rounds=options.repeats)
    rows = [
        [name, f"{statistics.median(costs):.2f}", f"{min(costs):.2f}"]
        for name, costs in found.items()
    ]
    report = Report(
        name="time-order",
        claim="A function in event-time order costs at most 1.5 times as much as without "
        "this order.",
        payload=f"{KEYS:,} keys, {RECORDS_PER_MS} records a ms, up to {BOUND_MS} ms out of order, "
        f"{records:,} records in an epoch",
        method=f"{options.repeats} rounds in turns of 3 epochs through the operator of a job, with "
        "restore and commit; processor time; garbage collection as in a "
        "worker; number of results checked",
        tables=[
            Table(
                title="One record, its timers and the state of its key",
                columns=["us per record", "median", "best"],
                rows=rows,
            )
        ],
        targets=[_target(found, backend) for backend in BACKENDS],
    )
    report.tell(options)


def _target(found: dict[str, list[float]], backend: str) -> Target:
    ordered, others = found[f"in order, {backend}"], found[f"as they come, {backend}"]
    return Target(
        name=f"in event-time order ÷ as records come, {backend}",
        value=statistics.median(a / b for a, b in zip(ordered, others, strict=True)),
        best=min(ordered) / min(others),
        high=1.5,
        unit="x",
    )


def _epochs(records: int) -> list[list[tuple[str, int]]]:
    """Return three epochs of keys and times."""
    chance = random.Random(7)
    return [
        [
            (
                f"user-{chance.randrange(KEYS):04}",
                BEGAN_MS + (epoch * records + index) // RECORDS_PER_MS - chance.randrange(BOUND_MS),
            )
            for index in range(records)
        ]
        for epoch in range(3)
    ]


def _cost(backend: str, *, is_ordered: bool, records: int) -> float:
    """Return microseconds per record."""
    epochs = _epochs(records)
    group_of = {
        key: key_group(encode_key(key), group_count=GROUPS)
        for key in {key for epoch in epochs for key, _ in epoch}
    }
    spent = 0.0
    given = 0
    with scratch("time-order") as place:
        settings = StateSettings(backend=backend, folder=str(place / "local"))
        operator = operator_of(partial(_form, is_ordered=is_ordered), place / "sealed", settings)
        state, watermark = RangeState(first_group=0, end_group=GROUPS), WATERMARK_MIN
        for number, epoch in enumerate(epochs, 1):
            batches = [
                Batch(
                    [key for key, _ in part],
                    ExchangeLineage(None, [time_ms for _, time_ms in part]),
                    [group_of[key] for key, _ in part],
                )
                for part in (
                    epoch[start : start + BATCH_RECORDS]
                    for start in range(0, len(epoch), BATCH_RECORDS)
                )
            ]
            came = max(time_ms for _, time_ms in epoch) - BOUND_MS - 1
            after = Advance(watermark=came, previous=watermark, now_ms=number)
            gc.freeze()
            began = time.process_time()
            operator.begin_epoch(EpochTime(epoch=number, now_ms=number, seed="s"))
            operator.restore(state)
            operator.begin_time(Advance(watermark=watermark, previous=watermark, now_ms=number))
            given += sum(len(operator.process(batch).values) for batch in batches)
            for output in operator.advance(after):
                operator.context.batch = None
                given += len(output.values)
            state = operator.commit(number, f"a{number}", is_interval_over=False)
            spent += time.process_time() - began
            watermark = came
        operator.release()
        gc.unfreeze()
    if given < 3 * records - BOUND_MS * RECORDS_PER_MS * 2:
        raise WrongOutputError(f"{given:,} results of {3 * records:,} records")
    return spent * 1e6 / records / 3


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=100_000, help="records in an epoch")


if __name__ == "__main__":
    main()
