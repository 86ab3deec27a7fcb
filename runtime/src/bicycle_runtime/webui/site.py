"""The addresses of all pages, their streams, and their files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bicycle_runtime.webui.pages.actions import (
    action_do,
    action_page,
    bulk_stop_do,
    bulk_stop_page,
    upgrade_do,
    upgrade_page,
)
from bicycle_runtime.webui.pages.audit import audit_page
from bicycle_runtime.webui.pages.dashboard import dashboard_live, dashboard_page
from bicycle_runtime.webui.pages.explorer import (
    metrics_live,
    metrics_page,
    workers_live,
    workers_page,
)
from bicycle_runtime.webui.pages.job import TABS, job_live, job_page, missing_job
from bicycle_runtime.webui.pages.jobs import jobs_live, jobs_page
from bicycle_runtime.webui.pages.login import login_do, login_page, logout_do
from bicycle_runtime.webui.pages.plugins import (
    operation_page,
    plugins_page,
    remove_do,
    remove_page,
    start_do,
    start_page,
    upload_do,
    withdraw_do,
    withdraw_page,
)
from bicycle_runtime.webui.pages.streams import streams_live, streams_page
from bicycle_runtime.webui.rendering import Site

__all__ = ["page_routes"]

PageOf = Callable[[Site, Request], Awaitable[Response]]


def page_routes(site: Site) -> list[BaseRoute]:
    """Return the routes of all pages.

    Args:
        site: What they show. Each request must carry ``state.identity`` and ``state.address``.
    """
    tabs = [
        route
        for tab in TABS
        for route in (
            _get(f"/jobs/{{job}}/{tab.name}".rstrip("/"), partial(job_page, tab=tab), site),
            _get(f"/live/jobs/{{job}}/{tab.stream}", partial(job_live, tab=tab), site),
        )
    ]
    return [
        _get("/", dashboard_page, site),
        _get("/live/dashboard", dashboard_live, site),
        _get("/jobs", jobs_page, site),
        _get("/live/jobs", jobs_live, site),
        _get("/metrics-explorer", metrics_page, site),
        _get("/live/metrics", metrics_live, site),
        _get("/streams", streams_page, site),
        _get("/live/streams", streams_live, site),
        _get("/workers", workers_page, site),
        _get("/live/workers", workers_live, site),
        _get("/bulk/stop", bulk_stop_page, site),
        _post("/bulk/stop", bulk_stop_do, site),
        _get("/queue/{number:int}", withdraw_page, site),
        _post("/queue/{number:int}", withdraw_do, site),
        _get("/audit", audit_page, site),
        _get("/login", login_page, site),
        _post("/login", login_do, site),
        _post("/logout", logout_do, site),
        *tabs,
        _get("/jobs/{job}/actions/{kind}", action_page, site),
        _post("/jobs/{job}/actions/{kind}", action_do, site),
        _get("/jobs/{job}/upgrade", upgrade_page, site),
        _post("/jobs/{job}/upgrade", upgrade_do, site),
        *_plugin_routes(site),
        Route(f"{site.files.base}/{{path:path}}", site.files.answer, methods=["GET"]),
    ]


def _plugin_routes(site: Site) -> list[BaseRoute]:
    return [
        _get("/plugins", plugins_page, site),
        _post("/plugins", upload_do, site),
        _get("/plugins/operations/{number:int}", operation_page, site),
        _get("/plugins/{digest}/start", start_page, site),
        _post("/plugins/{digest}/start", start_do, site),
        _get("/plugins/{digest}/remove", remove_page, site),
        _post("/plugins/{digest}/remove", remove_do, site),
    ]


def _post(path: str, answer: PageOf, site: Site) -> Route:
    return Route(path, _door(site, partial(answer, site)), methods=["POST"])


def _get(path: str, answer: PageOf, site: Site) -> Route:
    return Route(path, _door(site, partial(answer, site)), methods=["GET"])


def _door(
    site: Site, answer: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """Return a plain function that admits only callers with access to a job.

    Starlette takes other callables for whole applications.
    """

    async def door(request: Request) -> Response:
        job = request.path_params.get("job")
        if job is not None and not site.scope(request).has(job):
            return missing_job(site, request)
        return await answer(request)

    return door
