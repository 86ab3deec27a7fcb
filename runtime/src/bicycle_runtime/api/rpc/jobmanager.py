"""The calls of ``bicycle.v1.JobManager``, over the same service as the REST API."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import msgspec
from google.protobuf import json_format
from google.protobuf.message import Message

from bicycle_runtime.api.calls.jobs import job_metrics
from bicycle_runtime.api.errors import QUERY_UNREADABLE
from bicycle_runtime.api.event_streams import News, news_of, until_closing
from bicycle_runtime.api.route import with_whole_numbers
from bicycle_runtime.api.rpc.calls import SERVICE
from bicycle_runtime.api.rpc.generated import jobmanager_pb2 as shapes
from bicycle_runtime.api.rpc.guard import Context, asking
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.service.metrics.metrics import MetricSample, job_samples
from bicycle_runtime.service.operations.kinds import KINDS
from bicycle_runtime.service.service import Service
from bicycle_runtime.service.users.redaction import redacted
from bicycle_runtime.service.watching.listing import LIMIT_MAX, JobQuery, list_page
from bicycle_runtime.service.watching.workers import worker_rows
from bicycle_streams.access.roles import Role

__all__ = ["ROLES", "SERVICE", "WRITES", "JobManager", "message_of"]

_KINDS = {kind.rpc: kind for kind in KINDS.values() if kind.rpc}
_WRITING = (*_KINDS, "StartOperation")
WRITES = frozenset(f"/{SERVICE}/{name}" for name in _WRITING)
ROLES: Mapping[str, Role] = {
    **dict.fromkeys(WRITES, Role.OPERATOR),
    "/grpc.health.v1.Health/Check": Role.NOBODY,
    "/grpc.health.v1.Health/Watch": Role.NOBODY,
}
_PAGE = 50
_WAIT_S_MAX = 60.0
_WATCH_S = 1.0
T = TypeVar("T", bound=Message)


def message_of(kind: type[T], value: Any) -> T:
    """Return an object of the REST API as a message, without None fields."""
    plain = msgspec.to_builtins(value, str_keys=True)
    message: T = json_format.ParseDict(plain, kind())
    return message


class JobManager:
    """The implementation of the calls; the guard checks permissions before.

    Args:
        service: The service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def SubmitJob(self, request: Any, _context: Context) -> Any:
        """Start the job of a plugin."""
        facts: dict[str, Any] = {
            "plugin": request.plugin, "options": _plain(request.options),
            "params": dict(request.params), "engine": _plain(request.engine),
            "spark": dict(request.spark),
        }  # fmt: skip
        for name in ("digest", "name"):
            if request.HasField(name):
                facts[name] = getattr(request, name)
        if request.HasField("pipeline"):
            facts["pipeline"] = {"file": request.pipeline.file, "text": request.pipeline.text}
        wait_s = _waiting(request.wait_seconds)
        scope = asking().scope
        operation = await scope.ask(_KINDS["SubmitJob"].name, None, facts, key=_key(request))
        operation = await scope.operation(operation.id, wait_s)
        error = operation.error or {}
        return shapes.SubmitJobResponse(
            job_id=operation.job, success=operation.state not in ("failed", "interrupted"),
            message=f"{error['code']} {error['message']}" if error else operation.state,
            operation=message_of(shapes.Operation, operation),
        )  # fmt: skip

    async def GetJobStatus(self, request: Any, _context: Context) -> Any:
        """Return one job with all data of its driver."""
        known = await asking().scope.known(request.job_id)
        detail = {
            "summary": known.summary,
            "metrics": job_metrics(known.status),
            "status": redacted(known.status.to_json()),
        }
        return message_of(shapes.JobDetail, detail)

    async def CancelJob(self, request: Any, _context: Context) -> Any:
        """End a job at once, or with a savepoint after its epoch; return after its end."""
        facts: dict[str, Any] = {}
        if request.savepoint:
            if request.HasField("savepoint_name"):
                facts["name"] = request.savepoint_name
            if request.HasField("savepoint_to"):
                facts["to"] = request.savepoint_to
        kind = _KINDS["CancelJob"]
        kind = (kind.with_savepoint if request.savepoint else None) or kind
        scope = asking().scope
        operation = await scope.ask(kind.name, request.job_id, facts, key=_key(request))
        while not operation.is_over:
            operation = await scope.operation(operation.id, _WAIT_S_MAX)
        if operation.error is not None:
            raise error_from_json(operation.error)
        saved = (operation.result or {}).get("savepoint", {})
        return shapes.CancelJobResponse(
            savepoint_path=saved.get("url", ""), operation=message_of(shapes.Operation, operation)
        )

    async def UpgradeJob(self, request: Any, _context: Context) -> Any:
        """Upgrade a job to another version of its plugin, or plan that."""
        facts = _plain(request)
        kind = _KINDS["UpgradeJob"]
        kind = (kind.plan if request.plan_only else None) or kind
        facts = {info.name: facts[info.name] for info in kind.option_infos if info.name in facts}
        return await _start(request, kind.name, {"digest": "", **facts})

    async def StartOperation(self, request: Any, _context: Context) -> Any:
        """Start an operation of any kind that has a REST route."""
        offered = [kind.name for kind in KINDS.values() if kind.path]
        if request.kind not in offered:
            problem = f"kind is {request.kind!r}, expected one of {', '.join(offered)}"
            raise QUERY_UNREADABLE(problem=problem, known_text="kind")
        return await _start(request, request.kind, _plain(request.options))

    async def ListJobs(self, request: Any, _context: Context) -> Any:
        """List jobs, page by page."""
        limit = request.page_size or _PAGE
        if not 1 <= limit <= LIMIT_MAX:
            problem = f"page_size is {limit}, expected 1 to {LIMIT_MAX}"
            raise QUERY_UNREADABLE(problem=problem, known_text="page_size")
        query = JobQuery(
            state=tuple(request.states), text=request.text, sort=request.sort or JobQuery().sort,
            limit=limit, after=request.page_token or None,
        )  # fmt: skip
        page = list_page(asking().scope.view, query)
        return shapes.ListJobsResponse(
            jobs=[message_of(shapes.JobSummary, job.summary) for job in page.items],
            next_page_token=page.next or "", total=page.total,
        )  # fmt: skip

    async def GetClusterInfo(self, _request: Any, _context: Context) -> Any:
        """Return the totals over all jobs."""
        totals = asking().scope.view.totals()
        return message_of(shapes.ClusterInfo, {**self._service.about, **totals})

    async def ListWorkers(self, _request: Any, _context: Context) -> Any:
        """List the processes of the jobs that have not ended."""
        rows = await self._service.slow(worker_rows, asking().scope.view.jobs)
        return message_of(shapes.ListWorkersResponse, {"items": rows})

    async def GetMetrics(self, request: Any, _context: Context) -> Any:
        """Read the figures of a job, or of all."""
        service, scope = self._service, asking().scope
        jobs = (await scope.known(request.job_id),) if request.job_id else scope.view.jobs
        now_ms = service.clock.now_ms()

        def samples() -> list[MetricSample]:
            return [sample for job in jobs for sample in job_samples(job, now_ms=now_ms)]

        found = await service.slow(samples)
        return message_of(shapes.GetMetricsResponse, {"items": found})

    async def WatchJobs(self, request: Any, _context: Context) -> AsyncIterator[Any]:
        """Yield events of jobs until the caller leaves or is no longer admitted."""
        jobs = frozenset(request.job_ids) or None
        who = asking()
        who.scope.begin_stream()
        for job in jobs or ():
            await who.scope.known(job)
        after = request.after_event if request.HasField("after_event") else None
        news = await news_of(who.scope, jobs, after)
        watched = until_closing(news, self._service, pause_s=_WATCH_S)
        try:
            async for each in watched:
                if not await who.is_still():
                    break
                if each is not None:
                    yield _event(each)
        finally:
            await watched.aclose()

    async def WaitOperation(self, request: Any, _context: Context) -> Any:
        """Show an operation, if asked so only when it is over."""
        wait_s = _waiting(request.wait_seconds)
        found = await asking().scope.operation(request.id, wait_s)
        return message_of(shapes.Operation, found)


async def _start(request: Any, kind: str, facts: Mapping[str, Any]) -> Any:
    """Start an operation, and return it after it has ended or the wait is over."""
    wait_s, scope = _waiting(request.wait_seconds), asking().scope
    asked = await scope.ask(kind, request.job_id or None, facts, key=_key(request))
    return message_of(shapes.Operation, await scope.operation(asked.id, wait_s))


def _key(request: Any) -> str | None:
    return request.idempotency_key if request.HasField("idempotency_key") else None


def _plain(struct: Any) -> dict[str, Any]:
    """Return free data of a request; a number that is whole is an integer, as in JSON."""
    found = json_format.MessageToDict(struct, preserving_proto_field_name=True)
    plain: dict[str, Any] = with_whole_numbers(found)
    return plain


def _waiting(seconds: float) -> float:
    if not (math.isfinite(seconds) and 0 <= seconds <= _WAIT_S_MAX):
        problem = f"wait_seconds is {seconds}, expected 0 to 60"
        raise QUERY_UNREADABLE(problem=problem, known_text="wait_seconds")
    return seconds


def _event(news: News) -> Any:
    """Return news of jobs as a message."""
    number = news.number or 0
    if news.kind == "job":
        return shapes.JobEvent(id=number, job=message_of(shapes.JobSummary, news.data))
    if news.kind == "gone":
        return shapes.JobEvent(id=number, gone=news.data["job_id"])
    if news.kind == "resync":
        return shapes.JobEvent(id=number, resync=shapes.Resync(latest=news.data["latest"]))
    return shapes.JobEvent(id=number, event=message_of(shapes.Event, news.data))
