"""The list of jobs: filter, order, pages, and rows that follow their jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from bicycle_runtime.service.errors import ListQueryError
from bicycle_runtime.service.watching.fleet import Change
from bicycle_runtime.service.watching.listing import JobQuery, list_page
from bicycle_runtime.service.watching.states import State
from bicycle_runtime.webui.live import PageMessage, live_answer
from bicycle_runtime.webui.rendering import Site
from bicycle_streams.access.roles import Role

_LIMIT = 50
_FIRST_ORDER = "attention"
# Heading, field that orders by it, classes of the column. Texts go up first, numbers down.
_COLUMNS = (
    ("name", "name", "name"),
    ("state", "state", "col-state"),
    ("owner", "owner", "roomy col-owner"),
    ("rec/s", "-records_per_second", "number"),
    ("lag", "-lag_records", "number"),
    ("errors", "-errors", "number roomy"),
    ("late", "-late", "number roomy"),
    ("restarts", "-restarts", "number roomy"),
    ("epoch", "-epoch", "number roomy"),
    ("state size", "-state_bytes", "number roomy col-size"),
    ("started (UTC)", "-start_time", "roomy col-start"),
)


async def jobs_page(site: Site, request: Request) -> Response:
    """Return one page of the list; refuse an unknown filter with the known ones."""
    words = request.query_params
    try:
        query = JobQuery(
            state=(words["state"],) if words.get("state") else (),
            owner=words.get("owner", ""),
            text=words.get("text", ""),
            sort=words.get("sort") or _FIRST_ORDER,
            limit=_LIMIT,
            after=words.get("after") or None,
        )
        scope = site.scope(request)
        found = list_page(scope.view, query)
    except ListQueryError as error:
        return site.refusal(request, error, status=400)
    shown = [job.summary for job in found.items]
    facts: dict[str, Any] = {
        "jobs": shown,
        "total": found.total,
        "query": query,
        "states": [state.value for state in State],
        "owners": sorted({job.summary.owner for job in scope.view.jobs} - {""}),
        "queued": scope.queued(),
        "columns": [_column(query, *column) for column in _COLUMNS],
        "next_url": None if found.next is None else _url(query, after=found.next),
        "first_url": _url(query) if query.after else None,
        "live_query": urlencode(
            [*(("job", job.job_id) for job in shown), *(("state", word) for word in query.state)]
        ),
    }
    return site.page(request, "jobs.html", facts)


async def jobs_live(site: Site, request: Request) -> Response:
    """Return the stream of the rows named by ``job``."""
    scope = site.scope(request)
    shown = request.query_params.getlist("job")[:_LIMIT]
    wanted = set(request.query_params.getlist("state"))
    facts = {"may_operate": request.state.identity.may(Role.OPERATOR), "wanted": wanted}

    async def render(change: Change | None) -> Iterable[PageMessage]:
        if change is None:
            return []
        view = scope.view
        rows = [found.summary for job in shown if job in change.jobs and (found := view.get(job))]
        gone = [job for job in shown if job in change.removed]
        known = {
            **facts,
            "queued": scope.queued(),
            "jobs": rows,
            "gone": gone,
            "totals": view.totals(),
        }
        return [PageMessage(data=site.text("live/jobs.html", known))]

    return live_answer(scope, render)


def _column(query: JobQuery, heading: str, order: str, classes: str) -> dict[str, str]:
    """Return a heading with its link, which reverses the order of the current column."""
    field = order.removeprefix("-")
    is_current = query.sort.removeprefix("-") == field
    turned = field if query.sort.startswith("-") else f"-{field}"
    direction = "descending" if query.sort.startswith("-") else "ascending"
    return {
        "heading": heading,
        "classes": classes,
        "url": _url(query, sort=turned if is_current else order),
        "direction": direction if is_current else "",
    }


def _url(query: JobQuery, *, sort: str | None = None, after: str | None = None) -> str:
    words = {
        "state": "".join(query.state),
        "owner": query.owner,
        "text": query.text,
        "sort": sort or query.sort,
        "after": after or "",
    }
    return "/jobs?" + urlencode({name: word for name, word in words.items() if word})
