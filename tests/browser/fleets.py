"""Homes with jobs for the pages to show: statuses as drivers write them, epochs that were sealed.

No Spark runs here. Each job that is not over has a process of its own, which only sleeps, so that
the service sees it alive, and what a page asks of it can end it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.jobs.home import Home, JobFolder
from bicycle_runtime.jobs.journal import EpochLine, LineJournal
from bicycle_runtime.jobs.status import (
    GuaranteeStatus,
    HotKey,
    JobState,
    JobStatus,
    OperatorStatus,
    RestartNote,
    ShardLag,
    ShardStatus,
    write_status,
)
from bicycle_runtime.operators.metrics import FailureCount
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import StreamEnvironment
from tests.unit.jobs.job_samples import request_of, status_of

HOUR_MS = 3_600_000
LONG_NAME = "a-job-whose-name-is-as-long-as-a-name-may-be-so-that-it-must-wrap"[:63]
MARKUP = "<script>alert('x')</script> & \"quotes\""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def counting(env: StreamEnvironment) -> None:
    """A job with two sources, a chain, a shuffle and two ends."""
    clicks = env.add_source(script_source(str)).uid("clicks").name("clicks")
    orders = env.add_source(script_source(str)).uid("orders").name("orders")
    parsed = clicks.union(orders).map(str.strip).uid("parse").name("parse")
    known = parsed.filter(bool).uid("known").name("only known ones")
    counted = known.key_by(str).count().uid("count-by-user").name("count by user")
    counted.collect("totals")
    known.map(len).uid("lengths").name("lengths of lines, for the report").collect("lengths-out")


@dataclass
class Fleet:
    """A home whose jobs a test changes as their drivers would."""

    home: Home
    stack: ExitStack
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def put(self, name: str, **fields: Any) -> JobFolder:
        """Write a job; one that is not over gets a process."""
        folder = self.home.folder(name)
        started = now_ms() - 3 * HOUR_MS
        status = status_of(name, **{"started_ms": started, "updated_ms": now_ms(), **fields})
        if not status.state.is_final and not status.pid:
            process = self._process(name)
            status.pid, status.pid_started = process.pid, start_ticks(process.pid)
        folder.write_request(request_of({"topic": "clicks"}, name=name))
        write_status(folder.status_path, status)
        if not folder.log_path.exists():
            folder.log_path.write_text("".join(log_lines(name)))
        return folder

    def change(self, name: str, **fields: Any) -> JobStatus:
        """Replace fields of a status, as the driver does at the end of an epoch."""
        folder = self.home.folder(name)
        status = folder.status()
        assert status is not None
        for key, value in {"updated_ms": now_ms(), **fields}.items():
            setattr(status, key, value)
        write_status(folder.status_path, status)
        return status

    def _process(self, name: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", "import signal; signal.pause()"]
        process = self.stack.enter_context(subprocess.Popen(words))
        self.stack.callback(process.kill)
        self.processes[name] = process
        return process

    def checkpoints(self, name: str) -> str:
        """Seal some epochs of a job in the local executor, and note its graph."""
        folder = self.home.path / "checkpoints" / name
        storage = LocalStorage(folder)
        graph = StreamEnvironment()
        counting(graph)
        with Harness(counting) as harness:
            for values in (["ada", "bob", "ada "], ["eve"], ["ada", "", "bob"], ["zoe"]):
                harness.push(values, source="clicks")
                harness.run_epoch()
            for path in harness.storage.list(""):
                storage.write(path, harness.storage.read(path))
        facts = {"graph": json.loads(graph.build_graph(name).to_json())}
        storage.write("job.json", json.dumps(facts).encode())
        letters = "".join(json.dumps(letter(number)) + "\n" for number in range(60))
        storage.write("dead_letters/part-000000000001-0.jsonl", letters.encode())
        return str(folder)


@contextmanager
def fleet_in(home: Home) -> Iterator[Fleet]:
    """Give a home; processes of its jobs end with it."""
    with ExitStack() as stack:
        yield Fleet(home, stack)


def letter(number: int) -> dict[str, Any]:
    """Return a dead letter as a job writes it."""
    return {
        "operator": "parse", "operator_name": "parse", "plugin": "clicks",
        "plugin_version": "1.4.0", "source": "clicks", "shard": "clicks/3", "offset": number,
        "end_offset": None, "key": "none", "exception": "ValueError",
        "message": f"invalid literal for int(): 'a-{number}' {MARKUP}",
        "location": "clicks/parse.py:12 in parse", "traceback": "  File parse.py, line 12",
        "attempt": 1, "encoding": "raw", "value": "YS0x", "event_time_ms": None,
        "source_message": None,
    }  # fmt: skip


def log_lines(name: str) -> Iterator[str]:
    yield f"2026-11-23 20:00:00 INFO job_started job={name} epoch=0 operators=7\n"
    for epoch in range(1, 40):
        yield f"2026-11-23 20:{epoch:02}:00 INFO epoch_sealed job={name} epoch={epoch}\n"
    yield f"2026-11-23 20:41:00 WARNING source_silent job={name} source=clicks text={MARKUP}\n"
    yield '2026-11-23 20:41:09 ERROR task_failed operator=parse reason="no number"\n'


def operators(*, failed: int = 0, late: int = 0) -> dict[str, OperatorStatus]:
    failures = {
        f"ValueError at parse.py:12 {MARKUP}": FailureCount(
            count=failed, example="invalid literal for int(): 'a-1' (clicks/3 at 88,102)"
        )
    }
    mark = now_ms() - 12_000
    return {
        "clicks": OperatorStatus(
            records_out=1_802_113, parallelism=4, watermark_ms=mark, backpressure=0.29
        ),
        "orders": OperatorStatus(records_out=20_412, parallelism=2, watermark_ms=mark),
        "parse": OperatorStatus(
            busy_share=0.71,
            record_p99_ms=0.02,
            records_in=1_822_525,
            records_out=1_822_525 - failed,
            failed=failed,
            failures=failures if failed else {},
            parallelism=4,
            watermark_ms=mark,
        ),
        "count-by-user": OperatorStatus(
            records_in=1_800_011,
            records_out=1_800_011,
            late=late,
            parallelism=8,
            busy_share=0.12,
            record_p99_ms=1.0,
            state_bytes=4_402_341_478,
            state_keys=38_210_004,
            state_growth=2_097_152.0,
            skew=2.4,
            hot_keys=[HotKey(key="user-17", share=0.22), HotKey(key=MARKUP, share=0.041)],
            watermark_ms=mark,
            slowest_input="orders/3",
        ),
    }


def keep_journal(folder: JobFolder, *, last: int) -> None:
    """Write a journal of some epochs, the longest of them the last."""
    book = LineJournal(folder.journal_path, job=folder.path.name)
    for number in range(1, 25):
        phases = {"plan": 1.0, "run": 30.0 * number, "publish_wait": 0.0, "seal": 20.0}
        sealed_ms = now_ms() - (24 - number) * 1_000
        line = EpochLine(
            epoch=last - 24 + number, began_ms=sealed_ms - 50 - 30 * number, sealed_ms=sealed_ms,
            phases_ms=phases, records=1_000 + number, state_bytes=number << 20,
        )  # fmt: skip
        book.take(line, now_s=float(number))


def fill(fleet: Fleet) -> None:
    """Put jobs in every state that people meet."""
    busy: dict[str, Any] = {
        "epoch": 8_811,
        "epoch_count": 811,
        "record_count": 1_822_525,
        "event_count": 48_200_117,
        "records_per_second": 48_112.0,
        "lag_records": 1_200_400,
        "lag_ms": 40_000,
        "lags": {"clicks": {"3": ShardLag(records=1_200_400, waiting_ms=40_000)}},
        "shards": {
            "clicks": {
                "0": ShardStatus(watermark_ms=now_ms() - 9_000, event_ms=1_795_000_000_000),
                "3": ShardStatus(watermark_ms=now_ms() - 12_000, is_idle=True),
            }
        },
        "state_bytes": 4_402_341_478,
        "watermark_ms": now_ms() - 12_000,
        "guarantee": GuaranteeStatus(guarantee="at-least-once", weakest="lengths-out", role="sink"),
        "epoch_p50_ms": 812.4,
        "epoch_p99_ms": 2_140.0,
        "phases_ms": {"plan": 1.2, "run": 790.3, "publish_wait": 0.004, "seal": 20.9},
        "state_growth": 2_097_152.0,
        "has_begun": True,
        "reading_count": 20_117,
        "plugin": "clicks",
        "plugin_version": "1.4.0",
    }
    fleet.put(
        "clicks", operators=operators(late=310), checkpoint=fleet.checkpoints("clicks"), **busy
    )
    keep_journal(fleet.home.folder("clicks"), last=8_811)
    error = {
        "code": "BIC-2107",
        "message": f"operator 'sum' had 128 key groups, this run asks for 64 {MARKUP}",
        "fix": "set key_groups=128, or submit under a new job name to start empty",
        "facts": {"traceback": ['  File "parse.py", line 12, in parse', "ValueError: 'a-1'"]},
    }
    ended = now_ms() - 60_000
    fleet.put("orders-eu", state=JobState.FAILED, error=error, ended_ms=ended, epoch=10_204)
    note = RestartNote(
        time_ms=ended, code="BIC-2301", message="the broker does not answer", epoch=77, attempt=2,
        delay_ms=10_000, position="clicks/3 at 88,102",
    )  # fmt: skip
    fleet.put("payments", state=JobState.RESTARTING, restarts=[note], restart_count=3, epoch=77)
    fleet.put(
        LONG_NAME, operators=operators(failed=12), has_begun=True, records_per_second=312.4,
        lag_records=0, epoch=40, state_bytes=18_000,
    )  # fmt: skip
    fleet.put("sessions", has_begun=True, records_per_second=7.24, lag_records=18, lag_ms=2_100)
    fleet.put("warehouse-load", state=JobState.FINISHED, ended_ms=ended, record_count=99_999)
    fleet.put("clean-up", state=JobState.CANCELED, ended_ms=ended, epoch=3)
    fleet.put("starting", state=JobState.CREATED)
