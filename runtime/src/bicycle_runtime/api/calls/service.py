"""Looking at the service itself."""

from __future__ import annotations

import shutil

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

import bicycle_runtime
from bicycle_runtime.api.routing import Call, answer_json
from bicycle_runtime.service.metrics.metrics import MetricSample, job_samples
from bicycle_runtime.service.watching.workers import worker_rows

__all__ = ["all_metrics", "audit", "cluster", "health", "metrics", "slots", "topology", "workers"]


async def health(_call: Call) -> Response:
    """Answer that the service is there."""
    return answer_json({"status": "healthy", "version": bicycle_runtime.__version__})


async def cluster(call: Call) -> Response:
    """Answer with what all jobs come to."""
    return answer_json({**call.service.about, **call.service.fleet.totals()})


async def workers(call: Call) -> Response:
    """Answer with the processes of the jobs that have not ended."""
    view = call.service.fleet.view
    return answer_json({"items": await call.service.slow(worker_rows, view.jobs)})


async def all_metrics(call: Call) -> Response:
    """Answer with the figures of all jobs."""
    jobs, now_ms = call.service.fleet.view.jobs, call.service.clock.now_ms()

    def samples() -> list[MetricSample]:
        return [sample for job in jobs for sample in job_samples(job, now_ms=now_ms)]

    return answer_json({"items": await call.service.slow(samples)})


async def topology(call: Call) -> Response:
    """Answer with the jobs and the streams between them."""
    found = await call.service.slow(call.service.readings.topology)
    return answer_json(found.to_json())


async def slots(call: Call) -> Response:
    """Answer with the slots of the masters."""
    return answer_json({"items": await call.service.slow(call.service.slots)})


async def audit(call: Call) -> Response:
    """Answer with the audit log."""
    query, history = call.query, call.service.history
    found = await call.service.slow(history.audit, after=query.after, limit=query.limit)
    following = str(found[-1].id) if len(found) == query.limit else None
    return answer_json({"items": found, "next": following})


async def metrics(call: Call) -> Response:
    """Answer with the figures of all jobs and of the service, as text for Prometheus."""
    service = call.service
    disk = await service.slow(shutil.disk_usage, service.home.path)
    service.figures.note_disk(free_bytes=disk.free, total_bytes=disk.total)
    service.figures.note_slots(await service.slow(service.slots))
    own = service.figures.text(
        look_ms=service.watcher.look_ms,
        subscriber_count=service.fleet.subscriber_count,
        operation_count=service.operations.open_count(),
    )
    text = await service.slow(service.metrics.text, now_ms=service.clock.now_ms()) + own
    return Response(text, media_type=CONTENT_TYPE_LATEST)
