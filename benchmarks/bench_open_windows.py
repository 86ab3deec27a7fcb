"""How much memory open windows and timers take, in memory and on disk, and what they cost.

Each run is a process of its own with one operator, as a worker has it: epochs of records are put
in, advanced and sealed while nothing is due. Its memory is measured when all windows are open, and
above what it was with none. Then time comes, in steps, and all of them fire.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from measuring import Report, Table, Target, WrongOutputError, arguments, run_program
from one_operator import OneTask, resident_bytes
from workloads import scratch

from bicycle_runtime.state.settings import StateSettings
from bicycle_sdk import KeyedProcessFunction

BACKENDS = ("memory", "rocksdb")
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


def measure(form: str, backend: str, key_count: int) -> Found:
    """Open a window, or set a timer, for each key; then let all fire."""
    with scratch("open-windows") as place:
        settings = StateSettings(
            backend=backend, folder=str(place / "local"),
            cache_entries=max(1_000, key_count // CACHE_PART),
            block_cache_bytes=8 * MIB, write_buffer_bytes=8 * MIB,
        )  # fmt: skip
        task = OneTask(
            lambda stream: FORMS[form](stream.key_by(_itself)), place / "sealed", settings
        )
        task.epoch(["user-0000000"], [0], 0)
        before = resident_bytes()
        began = time.process_time()
        for first in range(1, key_count, EPOCH_RECORDS):
            numbers = range(first, min(first + EPOCH_RECORDS, key_count))
            task.epoch([f"user-{number:07}" for number in numbers], numbers, 0)
        put_s = time.process_time() - began
        held = resident_bytes() - before
        began = time.process_time()
        # The windows of a tumbling window end together, the others one after another.
        steps = [key_count * step // FIRING_STEPS for step in range(1, FIRING_STEPS + 1)]
        given = sum(task.epoch([], [], 1_000_000 + step) for step in steps)
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
        claim="Open windows and timers need less memory with RocksDB than in memory.",
        payload=f"{count:,} keys, a window or a timer each; the cache holds 1 of {CACHE_PART}",
        method=f"one operator in a separate process; epochs of {EPOCH_RECORDS:,} records; "
        "growth of the resident memory after the first key; processor time including "
        "sealing; the number of results is checked",
        tables=[Table(title="One operator in one task", columns=columns, rows=rows)],
        targets=targets,
        notes=[
            "with rocksdb, up to 24 MiB are buffers, which do not grow; in addition to "
            "timers, an operator caches the key groups of up to a million keys, with both "
            "backends.",
        ],
    )
    report.tell(options)


def _in_process(form: str, backend: str, count: int) -> Found:
    command = [sys.executable, Path(__file__), "--child", form, backend, str(count)]
    return Found(**json.loads(run_program(command)))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=150_000, help="keys")


if __name__ == "__main__":
    main()
