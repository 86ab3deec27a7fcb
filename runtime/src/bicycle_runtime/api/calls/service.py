"""Looking at the service itself."""

from __future__ import annotations

import shutil

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

import bicycle_runtime
from bicycle_runtime.api.routing import Call, answer_json

__all__ = ["audit", "cluster", "health", "metrics"]


async def health(_call: Call) -> Response:
    """Answer that the service is there."""
    return answer_json({"status": "healthy", "version": bicycle_runtime.__version__})


async def cluster(call: Call) -> Response:
    """Answer with what all jobs come to."""
    return answer_json({**call.service.about, **call.service.fleet.totals()})


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
    own = service.figures.text(
        look_ms=service.watcher.look_ms,
        subscriber_count=service.fleet.subscriber_count,
        operation_count=service.operations.open_count(),
    )
    text = await service.slow(service.metrics.text, now_ms=service.clock.now_ms()) + own
    return Response(text, media_type=CONTENT_TYPE_LATEST)
