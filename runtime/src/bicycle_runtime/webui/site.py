"""All addresses of pages, their streams, and the files they link to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bicycle_runtime.service.service import Service
from bicycle_runtime.webui.pages.actions import (
    action_do,
    action_page,
    bulk_stop_do,
    bulk_stop_page,
)
from bicycle_runtime.webui.pages.audit import audit_page
from bicycle_runtime.webui.pages.dashboard import dashboard_live, dashboard_page
from bicycle_runtime.webui.pages.explorer import (
    metrics_live,
    metrics_page,
    workers_live,
    workers_page,
)
from bicycle_runtime.webui.pages.job import TABS, job_live, job_page
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


def page_routes(service: Service) -> list[BaseRoute]:
    """Return the routes of all pages.

    Args:
        service: What they show. Each request must carry ``state.identity`` and ``state.address``.
    """
    site = Site(service)
    tabs = [
        route
        for tab in TABS
        for route in (
            _get(f"/jobs/{{job}}/{tab.name}".rstrip("/"), partial(job_page, site, tab=tab)),
            _get(f"/live/jobs/{{job}}/{tab.stream}", partial(job_live, site, tab=tab)),
        )
    ]
    return [
        _get("/", partial(dashboard_page, site)),
        _get("/live/dashboard", partial(dashboard_live, site)),
        _get("/jobs", partial(jobs_page, site)),
        _get("/live/jobs", partial(jobs_live, site)),
        _get("/metrics-explorer", partial(metrics_page, site)),
        _get("/live/metrics", partial(metrics_live, site)),
        _get("/streams", partial(streams_page, site)),
        _get("/live/streams", partial(streams_live, site)),
        _get("/workers", partial(workers_page, site)),
        _get("/live/workers", partial(workers_live, site)),
        _get("/bulk/stop", partial(bulk_stop_page, site)),
        _post("/bulk/stop", partial(bulk_stop_do, site)),
        _get("/queue/{number:int}", partial(withdraw_page, site)),
        _post("/queue/{number:int}", partial(withdraw_do, site)),
        _get("/audit", partial(audit_page, site)),
        _get("/login", partial(login_page, site)),
        _post("/login", partial(login_do, site)),
        _post("/logout", partial(logout_do, site)),
        *tabs,
        _get("/jobs/{job}/actions/{kind}", partial(action_page, site)),
        _post("/jobs/{job}/actions/{kind}", partial(action_do, site)),
        *_plugin_routes(site),
        _get(f"{site.files.base}/{{path:path}}", site.files.answer),
    ]


def _plugin_routes(site: Site) -> list[BaseRoute]:
    return [
        _get("/plugins", partial(plugins_page, site)),
        _post("/plugins", partial(upload_do, site)),
        _get("/plugins/operations/{number:int}", partial(operation_page, site)),
        _get("/plugins/{digest}/start", partial(start_page, site)),
        _post("/plugins/{digest}/start", partial(start_do, site)),
        _get("/plugins/{digest}/remove", partial(remove_page, site)),
        _post("/plugins/{digest}/remove", partial(remove_do, site)),
    ]


def _post(path: str, answer: Callable[[Request], Awaitable[Response]]) -> Route:
    return Route(path, _door(answer), methods=["POST"])


def _get(path: str, answer: Callable[[Request], Awaitable[Response]]) -> Route:
    return Route(path, _door(answer), methods=["GET"])


def _door(
    answer: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return a plain function: Starlette takes other callables for whole applications."""

    async def door(request: Request) -> Response:
        return await answer(request)

    return door
