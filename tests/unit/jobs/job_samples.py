"""Bundles, requests, statuses and epochs with defaults: a test states only what matters to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import cloudpickle

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.cli.live import status_parts
from bicycle_runtime.contract import Lag
from bicycle_runtime.engine.epoch.stats import EpochStats, Unread
from bicycle_runtime.extraction.bundle import JobBundle, bundle_digest
from bicycle_runtime.jobs.home import Home, JobFolder
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.status import JobState, JobStatus, write_status
from bicycle_sdk import StreamEnvironment


def bundle_of(build: Callable[[StreamEnvironment], Any], *, by_value: bool = False) -> JobBundle:
    """Return the bundle of a job that is built here, without a child process."""
    environment = StreamEnvironment()
    build(environment)
    graph = environment.build_graph("sample")
    payloads = {name: cloudpickle.dumps(value) for name, value in environment.payloads.items()}
    return JobBundle(
        graph=graph,
        payloads=payloads,
        shipping=dict.fromkeys(payloads, "by value" if by_value else "by reference"),
        digest=bundle_digest(graph, payloads),
        plugin="sample",
        plugin_version="1.2.3",
        dist="sample 1.2.3",
        sdk_version="0.1.0",
        python_version="3.11.7",
    )


def request_of(params: dict[str, str] | None = None, **options: Any) -> JobRequest:
    return JobRequest(options=JobOptions(**{"plugin": "sample", **options}), params=params or {})


def status_of(name: str = "sample", **fields: Any) -> JobStatus:
    defaults = {"plugin": "sample", "state": JobState.RUNNING}
    return JobStatus(**{"id": name, "job": name, **defaults, **fields})


def put_job(home: Home, name: str = "job", *, is_ours: bool = False, **fields: Any) -> JobFolder:
    """Put a job's request and status where its driver would; ``is_ours``: this process runs it."""
    folder = home.folder(name)
    folder.write_request(request_of(stop_timeout_ms=1_000))
    if is_ours:
        fields |= {"pid": os.getpid(), "pid_started": start_ticks(os.getpid())}
    write_status(folder.status_path, status_of(name, **fields))
    return folder


def stats_of(epoch: int = 1, **fields: Any) -> EpochStats:
    defaults = {
        "record_count": 10,
        "event_count": 10 * epoch,
        "duration_ms": 5.0,
        "phases_ms": {},
        "unread": Unread(lag=Lag(record_count=7, byte_count=70)),
        "state_bytes": 99,
        "watermark_ms": None,
    }
    return EpochStats(epoch=epoch, **{**defaults, **fields})


def status_line(status: JobStatus, *, now_ms: int | None = None) -> str:
    """Return how a job is doing, as people see it."""
    return "  ".join(status_parts(status, now_ms=now_ms))
