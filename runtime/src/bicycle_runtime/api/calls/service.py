"""Looking at the service itself."""

from __future__ import annotations

import shutil

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

import bicycle_runtime
from bicycle_runtime.api.route import Call, answer_json
from bicycle_runtime.service.metrics.metrics import MetricSample, job_samples
from bicycle_runtime.service.watching.workers import worker_rows

_MINUTES_BY_SECONDS = 60  # For so long there is a sample every five seconds.
_SUMS = ("lag_records", "state_bytes", "errors", "late")


async def health(_call: Call) -> Response:
    """Answer that the service is there."""
    return answer_json({"status": "healthy", "version": bicycle_runtime.__version__})


async def cluster(call: Call) -> Response:
    """Return the totals over all jobs."""
    return answer_json({**call.service.about, **call.scope.view.totals()})


async def workers(call: Call) -> Response:
    """Answer with the processes of the jobs that have not ended."""
    jobs = call.scope.view.jobs
    return answer_json({"items": await call.service.slow(worker_rows, jobs)})


async def all_metrics(call: Call) -> Response:
    """Answer with the figures of all jobs."""
    jobs, now_ms = call.scope.view.jobs, call.service.clock.now_ms()

    def samples() -> list[MetricSample]:
        return [sample for job in jobs for sample in job_samples(job, now_ms=now_ms)]

    return answer_json({"items": await call.service.slow(samples)})


async def metrics_history(call: Call) -> Response:
    """Answer with the sums of all jobs, point by point."""
    minutes = call.query.minutes
    tier = "5s" if minutes <= _MINUTES_BY_SECONDS else "5m"
    columns = await call.scope.samples_of_all(tier)
    oldest_s = call.service.clock.now_ms() // 1_000 - 60 * minutes
    names = {"records_per_sec": "records_per_second", **{name: name for name in _SUMS}}
    points = [
        {"timestamp": at_s * 1_000, **{name: columns[each][row] for name, each in names.items()}}
        for row, at_s in enumerate(columns["at_s"])
        if at_s > oldest_s
    ]
    return answer_json({"items": points})


async def topology(call: Call) -> Response:
    """Answer with the jobs and the streams between them."""
    return answer_json(await call.scope.topology())


async def slots(call: Call) -> Response:
    """Answer with the slots of the masters."""
    return answer_json({"items": await call.scope.slots()})


async def audit(call: Call) -> Response:
    """Answer with the audit log."""
    query = call.query
    found = await call.scope.audit(query.after, query.limit)
    following = str(found[-1].id) if len(found) == query.limit else None
    return answer_json({"items": found, "next": following})


async def metrics(call: Call) -> Response:
    """Return metrics for Prometheus: of jobs, and for owners of the service."""
    service = call.service
    jobs = await call.scope.metrics_text(older_names=call.query.older_names)
    if call.identity.owners is not None:
        return Response(jobs, media_type=CONTENT_TYPE_LATEST)
    disk = await service.slow(shutil.disk_usage, service.home.path)
    service.figures.note_disk(free_bytes=disk.free, total_bytes=disk.total)
    service.figures.note_slots(await service.slow(service.slots))
    own = service.figures.text(
        look_ms=service.watcher.look_ms,
        subscriber_count=service.fleet.subscriber_count,
        operation_count=service.operations.open_count(),
    )
    return Response(jobs + own, media_type=CONTENT_TYPE_LATEST)
