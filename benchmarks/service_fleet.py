"""A home with many jobs, as their drivers would keep it: what benchmarks of the service look at.

``python service_fleet.py HOME COUNT`` starts a sleeping process for each job and replaces all
status files twice a second until it is ended. It stands back as jobs of a service do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from bicycle_runtime.base.processes import keep_niceness, stand_back, start_ticks
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.status import (
    HotKey,
    JobState,
    JobStatus,
    OperatorStatus,
    ShardLag,
    write_status,
)
from bicycle_runtime.operators.metrics import Durations

__all__ = ["job_name", "status_of"]

_OPERATORS = ("lines", "parse", "known", "times", "keys", "count", "window", "out")


def job_name(number: int) -> str:
    """Return the name of a job."""
    return f"job-{number:03}"


def status_of(number: int, *, tick: int, pid: int, pid_started: int, now_ms: int) -> JobStatus:
    """Return the status of a job of eight operators that has run for so many ticks."""
    records = 1_000 * tick + number
    times = Durations(seconds=records / 1e5, buckets={3: records, 4: records // 10, 9: 1})
    operators = {
        uid: OperatorStatus(
            records_in=records, records_out=records, parallelism=4, times=times,
            busy_share=place / 10, record_p50_ms=0.01, record_p99_ms=0.2,
            watermark_ms=now_ms - 2_000, slowest_input="lines/3",
            state_bytes=1_000 * records if uid in ("count", "window") else 0,
            hot_keys=[HotKey(key=f"user-{key}", share=0.1) for key in range(5)],
            failed=tick // 10 if number % 10 == 0 else 0,
        )
        for place, uid in enumerate(_OPERATORS)
    }  # fmt: skip
    lags = {str(shard): ShardLag(records=number * shard, waiting_ms=40) for shard in range(8)}
    return JobStatus(
        id=job_name(number), job=job_name(number), plugin="clicks", plugin_version="1.4.0",
        state=JobState.RUNNING, pid=pid, pid_started=pid_started, checkpoint="",
        started_ms=1_000 + number, running_ms=2_000, has_begun=True, updated_ms=now_ms,
        epoch=tick, epoch_count=tick, record_count=records, event_count=records,
        records_per_second=1_000.0 + number, lag_records=28 * number, lag_ms=40,
        state_bytes=2_000 * records, watermark_ms=now_ms - 2_000, operators=operators,
        lags={"lines": lags}, epoch_times=times, phase_times={"run": times, "seal": times},
        phases_ms={"plan": 0.1, "run": 90.0, "seal": 9.0}, epoch_p50_ms=90.0, epoch_p99_ms=140.0,
    )  # fmt: skip


def _keep(home: Home, count: int) -> None:
    home.prepare()
    stand_back()  # As drivers do that the service has started.
    keep_niceness(os.getpid())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # So that what is below ends them.
    sleepers = [subprocess.Popen(["sleep", "1000000"]) for _ in range(count)]
    try:
        for number in range(count):
            options = JobOptions(plugin="clicks", name=job_name(number))
            home.folder(job_name(number)).write_request(JobRequest(options=options))
        pids = [(sleeper.pid, start_ticks(sleeper.pid)) for sleeper in sleepers]
        tick = 0
        while True:
            began = time.monotonic()
            for number, (pid, started) in enumerate(pids):
                now_ms = time.time_ns() // 1_000_000
                status = status_of(number, tick=tick, pid=pid, pid_started=started, now_ms=now_ms)
                write_status(home.folder(job_name(number)).status_path, status)
            if tick == 0:
                print("ready", flush=True)
            tick += 1
            time.sleep(max(0.0, 0.5 - (time.monotonic() - began)))
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


if __name__ == "__main__":
    _keep(Home(Path(sys.argv[1])), int(sys.argv[2]))
