"""Bytes per key or window: in the memory of a worker, with both backends, and in the checkpoint.

Each figure is measured in a separate process with one operator in one task, as on a worker: epochs
of keys are processed and sealed. The memory is the growth of the resident memory after the first
keys. With RocksDB, the cache of entries is full by then. The checkpoint is its files of state.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measuring import ROOT, Report, Table, Target, arguments, run_program, with_section
from one_operator import OneTask, resident_bytes
from workloads import scratch

from bicycle_runtime.state.settings import StateSettings
from bicycle_sdk import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtl,
    ValueStateDescriptor,
)
from bicycle_sdk.windows import tumbling_windows

PAGE = ROOT / "docs" / "how-to" / "memory.md"
EPOCH_KEYS = 10_000
ITEMS = 10
MIB = 1 << 20
LATER_MS = 10_000_000
DISK_FACTOR = 4  # RocksDB needs more keys, so that its buffers do not count.
SLIDE_MS = LATER_MS // 10


@dataclass(frozen=True, slots=True)
class Profile:
    """A typical value: four fields."""

    name: str
    visits: int
    score: float
    is_member: bool


def _profile(key: str) -> Profile:
    return Profile(f"name of {key}", len(key), 0.5, is_member=True)


class Keep(KeyedProcessFunction[str, str, str]):
    """Store one value per key."""

    def __init__(self, state: ValueStateDescriptor, make: Callable[[str], object]) -> None:
        self.state, self._make = state, make

    def process_element(self, value, ctx):
        """Write the value."""
        ctx.get_value_state(self.state).update(self._make(value))
        return []


class KeepMany(KeyedProcessFunction[str, str, str]):
    """Store several elements per key, in a list or a map."""

    def __init__(self, state: ListStateDescriptor | MapStateDescriptor) -> None:
        self.state = state

    def process_element(self, value, ctx):
        """Write the elements."""
        if isinstance(self.state, ListStateDescriptor):
            ctx.get_list_state(self.state).add_all([len(value) + 1_000 * i for i in range(ITEMS)])
        else:
            entries = ctx.get_map_state(self.state)
            for index in range(ITEMS):
                entries.put(f"page-{index}", 1_000 + index)
        return []


class Alarm(KeyedProcessFunction[str, str, str]):
    """Register one timer per key."""

    def process_element(self, _value, ctx):
        """Register the timer."""
        ctx.timer_service.register_event_time_timer(ctx.timestamp + LATER_MS)
        return []

    def on_timer(self, _timestamp_ms, ctx):
        """Emit the key."""
        return [ctx.current_key()]


def _itself(value: str) -> str:
    return value


def _count(elements, _ctx):
    return [sum(1 for _ in elements)]


def _pair(left: str, right: str) -> tuple[str, str]:
    return left, right


def _value(kind: type, make: Callable[[str], object], **settings) -> Callable:
    state = ValueStateDescriptor("value", kind, **settings)
    return lambda keyed: keyed.process_fn(Keep(state, make))


def _joined(keyed):
    return keyed.interval_join(keyed, 0, LATER_MS, _pair)


# Name of the row -> the operator after ``key_by``, and the records of each key.
FORMS: dict[str, tuple[Callable, int]] = {
    "`ValueState`, `int`": (_value(int, len), 1),
    "`ValueState`, `int`, with a TTL": (_value(int, len, ttl=StateTtl(3_600_000)), 1),
    "`ValueState`, `str` of 20 characters": (_value(str, lambda key: f"{key:>20}"), 1),
    "`ValueState`, frozen dataclass of 4 fields": (_value(Profile, _profile), 1),
    f"`ListState`, {ITEMS} `int`": (
        lambda keyed: keyed.process_fn(KeepMany(ListStateDescriptor("list", int))), 1,
    ),
    f"`MapState`, {ITEMS} entries `str` to `int`": (
        lambda keyed: keyed.process_fn(KeepMany(MapStateDescriptor("map", str, int))), 1,
    ),
    "running `count()`": (lambda keyed: keyed.count(), 1),
    "timer": (lambda keyed: keyed.process_fn(Alarm()), 1),
    "tumbling window, `count()`": (
        lambda keyed: keyed.tumbling_window(LATER_MS).pre_combine(False).count(), 1,
    ),
    "sliding window of 10 slides, `count()`, one slide": (
        lambda keyed: keyed.sliding_window(LATER_MS, SLIDE_MS).pre_combine(False).count(), 1,
    ),
    f"tumbling window, `process`, {ITEMS} records": (
        lambda keyed: keyed.tumbling_window(LATER_MS).process(_count), ITEMS,
    ),
    "session, `count()`": (
        lambda keyed: keyed.session_window(LATER_MS).pre_combine(False).count(), 1,
    ),
    f"session, `process`, {ITEMS} records": (
        lambda keyed: keyed.session_window(LATER_MS).process(_count), ITEMS,
    ),
    "`interval_join`, one row of the left side": (_joined, 1),
    "`window_join`, one row of the left side": (
        lambda keyed: keyed.window_join(keyed, tumbling_windows(LATER_MS), _pair), 1,
    ),
}  # fmt: skip


DISK_FORMS = ("`ValueState`, frozen dataclass of 4 fields", "timer")


def measure(form: str, backend: str, key_count: int) -> tuple[float, float]:
    """Return the bytes per key in memory, and in the checkpoint."""
    build, record_count = FORMS[form]
    with scratch("memory") as place:
        settings = StateSettings(
            backend=backend, folder=str(place / "local"), cache_entries=1_000,
            block_cache_bytes=MIB, write_buffer_bytes=MIB,
        )  # fmt: skip
        task = OneTask(lambda stream: build(stream.key_by(_itself)), place / "sealed", settings)
        first_count = EPOCH_KEYS if backend == "memory" else key_count
        _run(task, range(first_count), record_count)
        before = _held_bytes(place)
        _run(task, range(first_count, first_count + key_count), record_count)
        after = _held_bytes(place)
        task.close()
    memory, sealed = (end - start for start, end in zip(before, after, strict=True))
    return memory / key_count, sealed / key_count


def _run(task: OneTask, numbers: range, record_count: int) -> None:
    for first in range(numbers.start, numbers.stop, EPOCH_KEYS):
        keys = [f"user-{number:07}" for number in numbers if 0 <= number - first < EPOCH_KEYS]
        for time_ms in range(1, record_count + 1):
            task.epoch(keys, [time_ms] * len(keys), 0)


def _held_bytes(place: Path) -> tuple[int, int]:
    gc.collect()
    files = (path for path in (place / "sealed").rglob("*") if path.is_file())
    return resident_bytes(), sum(path.stat().st_size for path in files)


def main() -> None:
    """Measure each kind of state with both backends, and report the table."""
    if sys.argv[1:2] == ["--child"]:
        form, backend, count = sys.argv[2:]
        print(json.dumps(measure(form, backend, int(count))))
        return
    options = arguments(__doc__, repeats=1, add=_add_options)
    count = 2_000 if options.quick else options.keys
    rows, figures = [], {}
    for form in FORMS:
        memory, sealed = _in_process(form, "memory", count)
        figures[form] = memory
        rows.append([form, f"{memory:,.0f}", f"{sealed:,.0f}"])
        print(f"  {rows[-1]}", file=sys.stderr, flush=True)
    columns = ["state of one key", "memory", "checkpoint"]
    table = Table(title="Bytes per key, with the memory backend", columns=columns, rows=rows)
    disk_rows = []
    for form in DISK_FORMS:
        beyond_cache, _ = _in_process(form, "rocksdb", DISK_FACTOR * count)
        disk_rows.append([form, f"{figures[form]:,.0f}", f"{max(0, beyond_cache):,.0f}"])
    columns = ["state of one key", "`memory`", "`rocksdb`, not in the cache"]
    disk_table = Table(title="Bytes of memory per key, by backend", columns=columns, rows=disk_rows)
    report = Report(
        name="memory",
        claim="A key with one value of state takes at most 400 bytes of memory.",
        payload=f"{count:,} keys of 12 characters",
        method="one operator in a separate process; epochs of 10,000 keys; growth of the resident "
        "memory, and of the state files of all epochs, after the first keys",
        tables=[table, disk_table],
        targets=[
            Target(name=f"bytes per key, {form}", value=figures[form], high=400)
            for form in FORMS
            if "ValueState" in form or form.startswith("running")
        ],
    )
    report.tell(options)
    if options.write_docs:
        page = PAGE.read_text()
        for name, each in (("bytes per key", table), ("bytes by backend", disk_table)):
            rows_only = each.markdown().partition("\n\n")[2]
            page = with_section(page, name=name, text=f"\n{rows_only}\n")
        PAGE.write_text(page)


def _in_process(form: str, backend: str, count: int) -> tuple[float, float]:
    command = [sys.executable, Path(__file__), "--child", form, backend, str(count)]
    memory, sealed = json.loads(run_program(command))
    return memory, sealed


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=20_000, help="keys")


if __name__ == "__main__":
    main()
