"""Looking at jobs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from bicycle_runtime.api.event_streams import event_stream, log_stream
from bicycle_runtime.api.route import Call, answer_json
from bicycle_runtime.api.shapes import JobMetrics
from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.savepoints.commands import savepoint_of, savepoint_report
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.service.errors import ListQueryError
from bicycle_runtime.service.metrics.metrics import job_samples
from bicycle_runtime.service.store.history import TIERS
from bicycle_runtime.service.users.redaction import redacted
from bicycle_runtime.service.watching.listing import list_page

if TYPE_CHECKING:
    from bicycle_runtime.service.service import Service


async def jobs(call: Call) -> Response:
    """Answer with one page of jobs; with 304 while nothing of it changed."""
    view = call.scope.view
    page = list_page(view, call.query)
    seen_as = (call.identity.owners, call.query)
    asked = hashlib.sha256(msgspec.json.encode(seen_as)).hexdigest()[:12]
    tag = f'"{call.service.started_ms}-{view.revision}-{asked}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    known = call.request.headers.get("if-none-match", "")
    if tag in known or known.strip() == "*":
        return Response(status_code=304, headers=headers)
    items = [each.summary for each in page.items]
    plain = {"items": items, "next": page.next, "total": page.total}
    return answer_json(plain, headers=headers)


async def job(call: Call) -> Response:
    """Answer with one job."""
    known = await call.scope.known(call.job)
    plain = {
        "summary": known.summary,
        "metrics": job_metrics(known.status),
        "status": redacted(known.status.to_json()),
    }
    return answer_json(plain)


async def status(call: Call) -> Response:
    """Return the status of a job from its file."""
    found = await call.service.slow(job_status, call.service.home, call.job)
    return answer_json({"status": _redact_status(call.service, found)})


async def statuses(call: Call) -> Response:
    """Return the statuses of all jobs from their files."""
    found = await call.scope.statuses()
    return answer_json({"items": [_redact_status(call.service, each) for each in found]})


def _redact_status(service: Service, status: JobStatus) -> dict[str, Any]:
    """Return a status as plain data without secrets."""
    return redacted(service.secrets.hide_in_status(status).to_json())


async def metrics(call: Call) -> Response:
    """Answer with the figures of a job."""
    known = await call.scope.known(call.job)
    return answer_json({"items": job_samples(known, now_ms=call.service.clock.now_ms())})


async def tasks(call: Call) -> Response:
    """Answer with the operators of a job."""
    found = await call.service.slow(call.service.readings.tasks, call.job)
    return answer_json({"items": found})


async def graph(call: Call) -> Response:
    """Answer with the graph of a job."""
    return answer_json(await call.service.slow(call.service.readings.graph, call.job))


async def epochs(call: Call) -> Response:
    """Answer with the epochs that are retained."""
    readings, query = call.service.readings, call.query
    found = await call.service.slow(readings.epochs, call.job, limit=query.limit, after=query.after)
    return answer_json(found)


async def savepoints(call: Call) -> Response:
    """Answer with the savepoints of a job."""
    found = await call.service.slow(call.service.readings.savepoints, call.job)
    return answer_json({"items": found})


async def savepoint(call: Call) -> Response:
    """Return the report of a savepoint."""
    name, home = str(call.request.path_params["name"]), call.service.home
    now_ms, is_thorough = call.service.clock.now_ms(), call.query.verify

    def report() -> dict[str, Any]:
        storage = savepoint_of(home, call.job, name)
        return savepoint_report(storage, is_thorough=is_thorough, now_ms=now_ms)

    return answer_json(redacted(await call.service.slow(report)))


async def all_savepoints(call: Call) -> Response:
    """Answer with the savepoints of all jobs."""
    found = await call.scope.savepoints()
    return answer_json({"items": found})


async def exceptions(call: Call) -> Response:
    """Return the failures of a job."""
    found = await call.service.slow(call.service.readings.exceptions, call.job)
    return answer_json({"items": found})


async def config(call: Call) -> Response:
    """Return the configuration with which a job was started."""
    return answer_json(await call.service.slow(call.service.readings.config, call.job))


async def logs(call: Call) -> Response:
    """Answer with lines of the log, or with a stream of them."""
    service, query = call.service, call.query
    if query.follow:
        await call.scope.known(call.job)
        return log_stream(call.scope, call.job, after=query.after, limit=query.limit)
    found = await service.slow(
        service.readings.logs, call.job, after=query.after, limit=query.limit
    )  # fmt: skip
    return answer_json(found)


async def samples(call: Call) -> Response:
    """Answer with the samples of a job."""
    await call.scope.known(call.job)
    read, tier = call.service.history.samples, _tier(call)
    return answer_json(await call.service.slow(read, call.job, tier=tier))


async def operator_samples(call: Call) -> Response:
    """Return the samples of one operator; refuse one that the job lacks."""
    known = await call.scope.known(call.job)
    operator = str(call.request.path_params["operator"])
    if operator not in known.status.operators:
        names = ", ".join(known.status.operators) or "none yet"
        problem, hint = "unknown operator", f"operators of the job: {names}"
        raise ListQueryError(name="operator", found=operator, problem=problem, hint=hint)
    read, tier = call.service.history.operator_samples, _tier(call)
    return answer_json(await call.service.slow(read, call.job, operator, tier=tier))


def _tier(call: Call) -> str:
    tier: str = call.query.tier
    if tier not in TIERS:
        problem, hint = "unknown tier", f"use one of {', '.join(TIERS)}"
        raise ListQueryError(name="tier", found=tier, problem=problem, hint=hint)
    return tier


async def state_changes(call: Call) -> Response:
    """Answer with the steps in the life of a job."""
    await call.scope.known(call.job)
    found = await call.service.slow(
        call.service.history.state_changes, call.job, limit=call.query.limit
    )
    return answer_json({"items": found})


async def events(call: Call) -> Response:
    """Answer with a stream of events, of one job or of all."""
    job_id = call.request.path_params.get("job_id")
    if job_id is not None:
        await call.scope.known(job_id)
    return await event_stream(call.scope, call.request, job_id)


def job_metrics(status: JobStatus) -> JobMetrics:
    """Return the records of a job, added up over its ends."""
    ends = [each for each in status.operators.values() if not each.records_out]
    sizes = [each.bytes_out for each in status.operators.values() if each.bytes_out is not None]
    return JobMetrics(
        records_in=status.record_count,
        records_out=sum(each.records_in for each in ends),
        bytes_out=sum(sizes) if sizes else None,
    )
