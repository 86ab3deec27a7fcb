"""How much memory open windows and timers take, in memory and on disk, and what they cost.

Each run is a process of its own with one operator, as a worker has it: epochs of records are put
in, advanced and sealed while nothing is due. Its memory is measured when all windows are open, and
above what it was with none. Then time comes, in steps, and all of them fire.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from measuring import Report, Table, Target, WrongOutputError, arguments, run_program
from one_operator import operator_of
from workloads import scratch

from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.operators.batch import Batch, ExchangeLineage
from bicycle_runtime.operators.functions.operator import Advance, EpochTime
from bicycle_runtime.records.keys import encode_key, key_group
from bicycle_runtime.state.settings import StateSettings
from bicycle_sdk import KeyedProcessFunction
from bicycle_sdk.contexts import WATERMARK_MIN

BACKENDS = ("memory", "rocksdb")
GROUPS = 128
BATCH_RECORDS = 4_096
EPOCH_RECORDS = 20_000
FIRING_STEPS = 20
CACHE_PART = 20  # The cache holds this part of all keys.
MIB = 1 << 20


class Alarm(KeyedProcessFunction[str, str, str]):
    """One timer per key."""

    def process_element(self, _value, ctx):
        ctx.timer_service.register_event_time_timer(ctx.timestamp + 1_000_000)
        return []

    def on_timer(self, _timestamp_ms, ctx):
        return [ctx.current_key()]


def listed(elements, ctx):
    """Return the key of a window, for each of its records."""
    return [ctx.current_key() for _ in elements]


def _itself(value: str) -> str:
    return value


FORMS: dict[str, Callable] = {
    "sessions, folded": lambda keyed: keyed.session_window(1_000_000).pre_combine(False).count(),
    "sessions, records": lambda keyed: keyed.session_window(1_000_000).process(listed),
    "windows, records": lambda keyed: keyed.tumbling_window(1_000_000).process(listed),
    "timers": lambda keyed: keyed.process_fn(Alarm()),
}


@dataclass(frozen=True, slots=True)
class Found:
    """What one process found: MiB above the beginning, and microseconds per key."""

    held_mib: float
    put_us: float
    fire_us: float


class Task:
    """One operator, epoch by epoch."""

    def __init__(self, form: str, backend: str, place: Path, *, cache: int) -> None:
        settings = StateSettings(
            backend=backend, folder=str(place / "local"), cache_entries=cache,
            block_cache_bytes=8 * MIB, write_buffer_bytes=8 * MIB,
        )  # fmt: skip
        self._operator = operator_of(
            lambda stream: FORMS[form](stream.key_by(_itself)), place / "sealed", settings
        )
        self._state = RangeState(first_group=0, end_group=GROUPS)
        self._epoch = 0
        self._watermark = WATERMARK_MIN

    def epoch(self, first: int, count: int, watermark: int) -> int:
        """Run an epoch with a record of each of some keys; return how many results it gave."""
        operator = self._operator
        self._epoch += 1
        operator.begin_epoch(EpochTime(epoch=self._epoch, now_ms=self._epoch, seed="s"))
        operator.restore(self._state)
        before = Advance(watermark=self._watermark, previous=self._watermark, now_ms=self._epoch)
        operator.begin_time(before)
        for start in range(first, first + count, BATCH_RECORDS):
            numbers = range(start, min(start + BATCH_RECORDS, first + count))
            keys = [f"user-{number:07}" for number in numbers]
            groups = [key_group(encode_key(key), group_count=GROUPS) for key in keys]
            operator.process(Batch(keys, ExchangeLineage(None, list(numbers)), groups))
        after = Advance(watermark=watermark, previous=self._watermark, now_ms=self._epoch)
        given = len(operator.advance(after).values)
        operator.next_event_ms()
        self._state = operator.commit(self._epoch, f"a{self._epoch}", is_interval_over=False)
        self._watermark = watermark
        return given

    def close(self) -> None:
        """Let go of the local folder, and of a base in the making."""
        self._operator.release()


def measure(form: str, backend: str, key_count: int) -> Found:
    """Open a window, or set a timer, for each key; then let all fire."""
    with scratch("open-windows") as place:
        task = Task(form, backend, place, cache=max(1_000, key_count // CACHE_PART))
        task.epoch(0, 1, 0)
        before = _resident_bytes()
        began = time.process_time()
        for first in range(1, key_count, EPOCH_RECORDS):
            task.epoch(first, min(EPOCH_RECORDS, key_count - first), 0)
        put_s = time.process_time() - began
        held = _resident_bytes() - before
        began = time.process_time()
        # The windows of a tumbling window end together, the others one after another.
        steps = [key_count * step // FIRING_STEPS for step in range(1, FIRING_STEPS + 1)]
        given = sum(task.epoch(0, 0, 1_000_000 + step) for step in steps)
        fire_s = time.process_time() - began
        task.close()
        if given != key_count:
            raise WrongOutputError(f"{given:,} results of {key_count:,} keys")
    return Found(held / MIB, put_s * 1e6 / key_count, fire_s * 1e6 / key_count)


def main() -> None:
    """Measure each kind with both backends, and tell."""
    if sys.argv[1:2] == ["--child"]:
        form, backend, count = sys.argv[2:]
        print(json.dumps(asdict(measure(form, backend, int(count)))))
        return
    options = arguments(__doc__, repeats=1, add=_add_options)
    count = 2_000 if options.quick else options.keys
    rows, targets = [], []
    for form in FORMS:
        found = {backend: _in_process(form, backend, count) for backend in BACKENDS}
        rows += [
            [
                f"{form}, {backend}",
                f"{one.held_mib:,.0f}",
                f"{one.put_us:.1f}",
                f"{one.fire_us:.1f}",
            ]
            for backend, one in found.items()
        ]
        value = found["rocksdb"].held_mib / max(found["memory"].held_mib, 0.1)
        name = f"memory held, rocksdb ÷ memory, {form}"
        targets.append(Target(name=name, value=value, unit="x", high=0.8))
    columns = ["one per key", "MiB held", "µs a key to open", "µs a key to fire"]
    report = Report(
        name="open-windows",
        claim="Open windows and timers on disk take a part of the memory that they take in memory.",
        payload=f"{count:,} keys, a window or a timer each; the cache holds 1 of {CACHE_PART}",
        method=f"one operator in a process of its own; epochs of {EPOCH_RECORDS:,} records; "
        "resident memory above that with one key; processor time with sealing; results counted",
        tables=[Table(title="One operator in one task", columns=columns, rows=rows)],
        targets=targets,
        notes=[
            "with rocksdb up to 24 MiB are buffers, which do not grow; beside timers an operator "
            "remembers the key groups of up to a million keys, with either backend.",
        ],
    )
    report.tell(options)


def _in_process(form: str, backend: str, count: int) -> Found:
    command = [sys.executable, Path(__file__), "--child", form, backend, str(count)]
    return Found(**json.loads(run_program(command)))


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=150_000, help="keys")


if __name__ == "__main__":
    main()
