"""The first page: problems, running jobs, load, and recent events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from bicycle_runtime.service.scope import Scope
from bicycle_runtime.service.watching.fleet import Change, FleetView
from bicycle_runtime.service.watching.listing import JobQuery, list_page
from bicycle_runtime.service.watching.summaries import NOTHING_RANK, JobSummary
from bicycle_runtime.webui.live import PageMessage, live_answer
from bicycle_runtime.webui.rendering import Site

_ROWS = 10


async def dashboard_page(site: Site, request: Request) -> Response:
    """Return the page."""
    return site.page(request, "dashboard.html", await _facts(site.scope(request)))


async def dashboard_live(site: Site, request: Request) -> Response:
    """Return the stream of the page."""
    scope = site.scope(request)

    async def render(change: Change | None) -> Iterable[PageMessage]:
        if change is None:
            return []
        facts = {**await _facts(scope), "totals": scope.view.totals()}
        return [PageMessage(data=site.text("live/dashboard.html", facts))]

    return live_answer(scope, render)


async def _facts(scope: Scope) -> dict[str, Any]:
    events, view = await scope.latest_events(_ROWS), scope.view
    first = _first(view, "attention")
    running = [job for job in _first(view, "-records_per_second") if job.records_per_second > 0]
    counted = [job for job in _first(view, "-lag_records") if job.lag_records]
    sized = [job for job in _first(view, "-lag_bytes") if job.lag_records is None]
    waiting = [job for job in (*counted, *sized) if not job.end_time]
    return {
        "urgent": [job for job in first if job.attention_rank < NOTHING_RANK],
        "fastest": running[: _ROWS // 2],
        "furthest_behind": [job for job in waiting if job.lag_records or job.lag_bytes][
            : _ROWS // 2
        ],
        "events": events,
    }


def _first(view: FleetView, order: str) -> list[JobSummary]:
    found = list_page(view, JobQuery(sort=order, limit=_ROWS))
    return [job.summary for job in found.items]
