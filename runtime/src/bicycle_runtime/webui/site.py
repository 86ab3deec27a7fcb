"""The addresses of all pages, their streams, and their files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bicycle_runtime.webui.pages.actions import action_do, action_page, bulk_stop_do, bulk_stop_page
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
from bicycle_runtime.webui.rendering import Site, SitePage
from bicycle_streams.access.roles import Role, require_role

_TABS = [
    page
    for tab in TABS
    for page in (
        SitePage(
            path=f"/jobs/{{job}}/{tab.name}".rstrip("/"), handler=partial(job_page, tab=tab)
        ),
        SitePage(path=f"/live/jobs/{{job}}/{tab.stream}", handler=partial(job_live, tab=tab)),
    )
]  # fmt: skip
_PLUGIN_PAGES = (
    SitePage(path="/plugins", handler=plugins_page, title="Plugins"),
    SitePage(path="/plugins", handler=upload_do, method="POST"),
    SitePage(path="/plugins/operations/{number:int}", handler=operation_page),
    SitePage(path="/plugins/{digest}/start", handler=start_page),
    SitePage(path="/plugins/{digest}/start", handler=start_do, method="POST"),
    SitePage(path="/plugins/{digest}/remove", handler=remove_page),
    SitePage(path="/plugins/{digest}/remove", handler=remove_do, method="POST"),
)
# The built-in pages, in the format of extensions. Links at the head are in this order.
PAGES: tuple[SitePage, ...] = (
    SitePage(path="/", handler=dashboard_page, title="Dashboard"),
    SitePage(path="/live/dashboard", handler=dashboard_live),
    SitePage(path="/jobs", handler=jobs_page, title="Jobs"),
    SitePage(path="/live/jobs", handler=jobs_live),
    *_PLUGIN_PAGES,
    SitePage(path="/streams", handler=streams_page, title="Streams"),
    SitePage(path="/live/streams", handler=streams_live),
    SitePage(path="/workers", handler=workers_page, title="Workers"),
    SitePage(path="/live/workers", handler=workers_live),
    SitePage(path="/metrics-explorer", handler=metrics_page, title="Metrics"),
    SitePage(path="/live/metrics", handler=metrics_live),
    SitePage(path="/bulk/stop", handler=bulk_stop_page),
    SitePage(path="/bulk/stop", handler=bulk_stop_do, method="POST"),
    SitePage(path="/queue/{number:int}", handler=withdraw_page),
    SitePage(path="/queue/{number:int}", handler=withdraw_do, method="POST"),
    SitePage(path="/audit", handler=audit_page, title="Audit", role=Role.ADMIN),
    SitePage(path="/login", handler=login_page, role=Role.NOBODY),
    SitePage(path="/login", handler=login_do, method="POST", role=Role.NOBODY),
    SitePage(path="/logout", handler=logout_do, method="POST", role=Role.NOBODY),
    *_TABS,
    SitePage(path="/jobs/{job}/actions/{kind}", handler=action_page),
    SitePage(path="/jobs/{job}/actions/{kind}", handler=action_do, method="POST"),
)


def page_routes(site: Site) -> list[BaseRoute]:
    """Return the routes of all pages of a site.

    Each request must carry ``state.identity`` and ``state.address``.
    """
    return [
        *(Route(page.path, _door(site, page), methods=[page.method]) for page in site.pages),
        Route(f"{site.files.base}/{{path:path}}", site.files.answer, methods=["GET"]),
    ]


def _door(site: Site, page: SitePage) -> Callable[[Request], Awaitable[Response]]:
    """Return a plain function that admits callers with the role and access to the job.

    Starlette takes other callables for whole applications.
    """

    async def door(request: Request) -> Response:
        require_role(request.state.identity, page.role)
        job = request.path_params.get("job")
        if job is not None and not site.scope(request).has(job):
            return missing_job(site, request)
        return await page.handler(site, request)

    return door
