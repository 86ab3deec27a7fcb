"""The page of streams: the jobs that read and write each, as drawing and list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from bicycle_runtime.service.scope import Scope
from bicycle_runtime.webui.drawing import topology_drawing
from bicycle_runtime.webui.live import PageMessage, paced_answer
from bicycle_runtime.webui.rendering import Site


async def streams_page(site: Site, request: Request) -> Response:
    """Return the page."""
    return site.page(request, "streams.html", await _facts(site.scope(request)))


async def streams_live(site: Site, request: Request) -> Response:
    """Return the stream of the page, renewed every five seconds at most."""
    scope = site.scope(request)

    async def make() -> Iterable[PageMessage]:
        facts = await _facts(scope)
        drawing = PageMessage.of("graph", topology_drawing(facts["topology"]))
        return [PageMessage(data=site.text("live/streams.html", facts)), drawing]

    return paced_answer(scope, make)


async def _facts(scope: Scope) -> dict[str, Any]:
    return {"topology": await scope.topology()}
