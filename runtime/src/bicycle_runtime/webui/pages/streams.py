"""The page of streams: which job reads and writes which, as a drawing and as a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from bicycle_runtime.service.watching.fleet import Change
from bicycle_runtime.webui.drawing import topology_drawing
from bicycle_runtime.webui.live import Message, live_answer
from bicycle_runtime.webui.rendering import Site

__all__ = ["streams_live", "streams_page"]

_STREAMS_MS = 5_000


async def streams_page(site: Site, request: Request) -> Response:
    """Return the page."""
    return site.page(request, "streams.html", await _facts(site))


async def streams_live(site: Site, _request: Request) -> Response:
    """Return the stream of the page, renewed every five seconds at most."""
    shown_ms = 0

    async def render(_change: Change | None) -> Iterable[Message]:
        nonlocal shown_ms
        as_of_ms = site.service.fleet.view.as_of_ms
        if as_of_ms - shown_ms < _STREAMS_MS:
            return []
        shown_ms = as_of_ms
        facts = await _facts(site)
        drawing = Message.of("graph", topology_drawing(facts["topology"]))
        return [Message(data=site.text("live/streams.html", facts)), drawing]

    return live_answer(site, render)


async def _facts(site: Site) -> dict[str, Any]:
    return {"topology": await site.service.slow(site.service.readings.topology)}
