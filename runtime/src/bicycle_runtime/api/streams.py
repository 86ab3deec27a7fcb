"""Streams of events (server-sent): what happens to jobs, and what they log.

A stream ends with the service, after an hour, or when its reader is gone; a reader connects again
with the number of the last event, and goes on behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from bicycle_runtime.api.routing import EVENT_STREAM
from bicycle_runtime.service.service import Service
from bicycle_runtime.service.watching.fleet import Change

__all__ = ["event_stream", "log_stream"]

_COMMENT_S = 15.0
_LIFE_S = 3_600.0
_BACKLOG_MAX = 1_000
_LOG_POLL_S = 0.5
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_KEEP_ALIVE = ": still here\n\n"


async def event_stream(service: Service, request: Request, job: str | None) -> StreamingResponse:
    """Return a stream of what happens to one job, or to all, from before its answer begins.

    Events are ``job`` (the row of a job that changed), ``gone``, and, with the number that a reader
    goes on from, the kinds of ``Event``; ``resync`` says that more was missed than is told.
    """
    last = request.headers.get("last-event-id", "")
    after = int(last) if last.isascii() and last.isdecimal() and len(last) < 16 else None
    newest = await service.slow(service.history.latest_event)
    stream = _bounded(_events(service, job, after, newest), service)
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers=_HEADERS)


def log_stream(service: Service, job: str, *, after: int | None, limit: int) -> StreamingResponse:
    """Return a stream of ``log`` events, each a page of lines; it ends when the job has."""
    stream = _bounded(_log_lines(service, job, after, limit), service)
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers=_HEADERS)


async def _bounded(pieces: AsyncGenerator[str, None], service: Service) -> AsyncIterator[str]:
    """Yield pieces, a comment when there is none for long, and end with the service."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _LIFE_S
    closing: asyncio.Future[Any] = asyncio.ensure_future(service.closing.wait())
    following: asyncio.Future[Any] | None = None
    try:
        while loop.time() < deadline:
            following = following or asyncio.ensure_future(anext(pieces))
            done, _ = await asyncio.wait(
                {following, closing}, timeout=_COMMENT_S, return_when=asyncio.FIRST_COMPLETED
            )
            if closing in done:
                break
            if following not in done:
                yield _KEEP_ALIVE
                continue
            try:
                piece = following.result()
            except StopAsyncIteration:
                break
            following = None
            yield piece
    finally:
        closing.cancel()
        if following is not None:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                await following
        await pieces.aclose()


async def _events(
    service: Service, job: str | None, after: int | None, newest: int
) -> AsyncGenerator[str, None]:
    history = service.history
    if after is None:
        after = newest
    elif not newest - _BACKLOG_MAX <= after <= newest:
        after = newest
        yield _event("resync", {"latest": newest}, number=newest)
    async with service.fleet.changes() as changes:
        async for change in changes:
            for piece in _rows(service, change, job):
                yield piece
            while events := await service.slow(history.events, job, after=after):
                for each in events:
                    yield _event(each.kind, each, number=each.id)
                    after = each.id


def _rows(service: Service, change: Change, job: str | None) -> list[str]:
    """Return the rows of jobs that changed."""
    view = service.fleet.view
    found = sorted(change.jobs if job is None else change.jobs & {job})
    gone = sorted(change.removed if job is None else change.removed & {job})
    rows = [view.by_id[each].summary for each in found if each in view.by_id]
    return [
        *(_event("job", row) for row in rows),
        *(_event("gone", {"job_id": each}) for each in gone),
    ]


async def _log_lines(
    service: Service, job: str, after: int | None, limit: int
) -> AsyncGenerator[str, None]:
    readings, fleet = service.readings, service.fleet
    while True:
        known = fleet.view.get(job)
        page = await service.slow(readings.logs, job, after=after, limit=limit)
        if page["lines"]:
            yield _event("log", page, number=page["next"])
        is_behind = bool(page["lines"]) and page["next"] < page["size"]
        after = page["next"]
        if is_behind:
            continue
        if known is None or known.summary.end_time is not None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(service.closing.wait(), _LOG_POLL_S)
        if service.closing.is_set():
            return


def _event(kind: str, data: Any, *, number: int | None = None) -> str:
    text = msgspec.json.encode(data).decode()
    head = f"id: {number}\n" if number is not None else ""
    return f"{head}event: {kind}\ndata: {text}\n\n"
