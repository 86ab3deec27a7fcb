"""A door to an API server that rejects patches, loses answers, and cuts watches."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

_KEPT = ("Authorization", "Content-Type", "Accept")


class FaultyDoor:
    """A proxy of an API server.

    Attributes:
        conflicts: Number of patches of jobs that are rejected with 409 from now on.
        lost: Number of patches of jobs from now on that are applied, but not answered.
        is_open: Whether requests are passed on; the others wait until it is set.
        counts: Number of faults by kind: 409, 410, "lost", "cut".
    """

    def __init__(self, target: str) -> None:
        self.target, self.url = target, ""
        self.conflicts = self.lost = 0
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.counts: Counter[int | str] = Counter()
        self._watches: set[asyncio.Transport] = set()

    def cut_watches(self) -> None:
        """Close the connections of all watches of jobs."""
        for transport in self._watches:
            transport.abort()
        self.counts["cut"] += len(self._watches)
        self._watches.clear()

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Answer a request as the API server does, or with a fault."""
        await self.is_open.wait()
        is_patch = request.method == "PATCH" and "/bicyclejobs/" in request.path
        if is_patch and self.conflicts:
            self.conflicts -= 1
            self.counts[409] += 1
            return web.json_response(_status(409, "Conflict"), status=409)
        headers = {name: request.headers[name] for name in _KEPT if name in request.headers}
        data = await request.read() or None
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
            session.request(
                request.method, f"{self.target}{request.path_qs}", data=data, headers=headers
            ) as answer,
        ):
            if is_patch and self.lost:
                self.lost -= 1
                self.counts["lost"] += 1
                request.transport.abort()
                raise ConnectionResetError
            return await self._pass_on(request, answer)

    async def _pass_on(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        passed = web.StreamResponse(
            status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]}
        )
        await passed.prepare(request)
        is_watch = "watch=true" in request.query_string and "bicyclejobs" in request.path
        if is_watch:
            self._watches.add(request.transport)
        try:
            async for part in answer.content.iter_any():
                self.counts[410] += is_watch and _is_gone(answer.status, part)
                await passed.write(part)
        finally:
            self._watches.discard(request.transport)
        return passed


def _status(code: int, reason: str) -> dict[str, object]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
            "reason": reason, "message": "a fault of the test"}  # fmt: skip


def _is_gone(status: int, part: bytes) -> bool:
    """Return whether a part of the answer to a watch states that its position is too old."""
    return status == 410 or any(map(_is_expiry, part.splitlines()))


def _is_expiry(line: bytes) -> bool:
    try:
        event = json.loads(line)
    except ValueError:  # A part of an event.
        return False
    return event["type"] == "ERROR" and event["object"]["code"] == 410


@asynccontextmanager
async def faulty_door(target: str):
    """Yield a door to an API server."""
    door = FaultyDoor(target)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", door.forward)
    async with TestServer(app) as server:
        door.url = str(server.make_url("")).rstrip("/")
        yield door
