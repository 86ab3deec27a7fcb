"""Pages across jobs: metrics over time, and the processes that run jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from bicycle_runtime.service.scope import Scope
from bicycle_runtime.service.watching.fleet import Change
from bicycle_runtime.service.watching.workers import JobWorkers, workers_now
from bicycle_runtime.webui.live import PageMessage, live_answer, paced_answer
from bicycle_runtime.webui.pages.job import missing_job
from bicycle_runtime.webui.rendering import Site

# Title, column of the samples, how it is written, color.
_CHARTS = (
    ("Records per second", "records_per_second", "count", "--series-1"),
    ("Lag in records", "lag_records", "count", "--series-2"),
    ("Lag in bytes", "lag_bytes", "bytes", "--series-2"),
    ("Age of the oldest unread record", "lag_ms", "duration", "--series-2"),
    ("State size", "state_bytes", "bytes", "--series-1"),
    ("Failed records of the run", "errors", "count", "--series-2"),
    ("Late records of the run", "late", "count", "--series-2"),
)
# The same of one operator.
_OPERATOR_CHARTS = (
    ("Input records of the run", "records_in", "count", "--series-1"),
    ("Output records of the run", "records_out", "count", "--series-1"),
    ("Busy share of task time", "busy_share", "share", "--series-2"),
    ("Time per record, p99", "record_p99_ms", "duration", "--series-2"),
    ("State size", "state_bytes", "bytes", "--series-1"),
    ("Failed records of the run", "failed", "count", "--series-2"),
    ("Late records of the run", "late", "count", "--series-2"),
)


async def metrics_page(site: Site, request: Request) -> Response:
    """Return charts of one job, or of the sums of all."""
    job, operator, tier = _read_query(request)
    view = site.scope(request).view
    known = view.get(job) if job is not None else None
    if job is not None and known is None:
        request.path_params["job"] = job
        return missing_job(site, request)
    operators = [] if known is None else list(known.status.operators)
    operator = operator if operator in operators else None
    facts = {
        "charts": _CHARTS if operator is None else _OPERATOR_CHARTS,
        "chosen": job,
        "operator": operator,
        "operators": operators,
        "tier": tier,
        "samples": await _samples(site.scope(request), job, operator, tier),
        "names": sorted(known.summary.job_id for known in view.jobs),
    }
    return site.page(request, "metrics.html", facts)


async def metrics_live(site: Site, request: Request) -> Response:
    """Return the stream of samples; a new one comes every five seconds."""
    job, operator, tier = _read_query(request)
    scope = site.scope(request)
    sampled: list[int] | None = None
    if job is not None:
        await scope.require(job)

    async def render(_change: Change | None) -> Iterable[PageMessage]:
        nonlocal sampled
        samples = await _samples(scope, job, operator, tier)
        if samples["at_s"][-1:] == sampled:
            return []
        sampled = samples["at_s"][-1:]
        return [PageMessage.of("samples", samples)]

    return live_answer(scope, render)


async def _samples(
    scope: Scope, job: str | None, operator: str | None, tier: str
) -> dict[str, Any]:  # fmt: skip
    """Return the samples of all jobs, of one, or of one of its operators."""
    slow, history = scope.service.slow, scope.service.history
    if job is None:
        return await scope.samples_of_all(tier)
    if operator is None:
        return await slow(history.samples, job, tier=tier)
    return await slow(history.operator_samples, job, operator, tier=tier)


async def workers_page(site: Site, request: Request) -> Response:
    """Return the processes of all jobs that have not ended."""
    return site.page(request, "workers.html", await _workers(site.scope(request)))


async def workers_live(site: Site, request: Request) -> Response:
    """Return the stream of the page, renewed every five seconds at most."""
    scope = site.scope(request)

    async def make() -> Iterable[PageMessage]:
        return [PageMessage(data=site.text("live/workers.html", await _workers(scope)))]

    return paced_answer(scope, make)


async def _workers(scope: Scope) -> dict[str, Any]:
    jobs = scope.view.jobs
    found: list[JobWorkers] = await scope.service.slow(workers_now, jobs)
    return {"workers": found, "masters": await scope.slots()}


def _read_query(request: Request) -> tuple[str | None, str | None, str]:
    """Return job, operator and tier."""
    words = request.query_params
    tier = "5m" if words.get("tier") == "5m" else "5s"
    return words.get("job") or None, words.get("operator") or None, tier
