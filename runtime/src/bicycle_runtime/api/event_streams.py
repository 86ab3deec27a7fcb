"""Server-sent event streams: events of jobs, and their logs.

A stream ends with the service, after an hour, or when its reader disconnects. A reader reconnects
with the number of the last event, and gets the events after it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from bicycle_runtime.api.route import EVENT_STREAM
from bicycle_runtime.service.watching.fleet import Change

if TYPE_CHECKING:
    from bicycle_runtime.service.scope import Scope
    from bicycle_runtime.service.service import Service

T = TypeVar("T")

_COMMENT_S = 15.0
_LIFE_S = 3_600.0
_BACKLOG_MAX = 1_000
_LOG_POLL_S = 0.5
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_KEEP_ALIVE = ": still here\n\n"


async def event_stream(scope: Scope, request: Request, job: str | None) -> StreamingResponse:
    """Return a stream of the events of one job, or of all jobs.

    Events are ``job`` (the row of a changed job), ``gone``, and, with the number for a reconnect,
    the kinds of ``Event``; ``resync`` reports that missed events are no longer available.
    """
    scope.begin_stream()
    last = request.headers.get("last-event-id", "")
    after = int(last) if last.isascii() and last.isdecimal() and len(last) < 16 else None
    jobs = None if job is None else frozenset({job})
    stream = _bound(_texts(await news_of(scope, jobs, after)), scope.service)
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers=_HEADERS)


def log_stream(scope: Scope, job: str, *, after: int | None, limit: int) -> StreamingResponse:
    """Return a stream of ``log`` events, pages of lines, which ends with the job."""
    scope.begin_stream()
    stream = _bound(_log_lines(scope.service, job, after, limit), scope.service)
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers=_HEADERS)


async def _bound(pieces: AsyncGenerator[str, None], service: Service) -> AsyncIterator[str]:
    async for piece in until_closing(pieces, service, pause_s=_COMMENT_S):
        yield _KEEP_ALIVE if piece is None else piece


async def until_closing(
    pieces: AsyncGenerator[T, None], service: Service, *, pause_s: float
) -> AsyncGenerator[T | None, None]:
    """Yield items, or None after a pause; stop with the service, or after an hour."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _LIFE_S
    closing: asyncio.Future[Any] = asyncio.ensure_future(service.closing.wait())
    following: asyncio.Future[Any] | None = None
    try:
        while loop.time() < deadline:
            following = following or asyncio.ensure_future(anext(pieces))
            done, _ = await asyncio.wait(
                {following, closing}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
            )
            if closing in done:
                break
            if following not in done:
                yield None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """An item of news: a changed row, a removed job, an event, or a gap.

    ``data`` is a ``JobSummary``, ``{"job_id": …}``, an ``Event`` or ``{"latest": …}``; ``number``
    is the number for a reconnect, None for news that are not in the history.
    """

    kind: str
    data: Any
    number: int | None = None


async def news_of(
    scope: Scope, jobs: frozenset[str] | None, after: int | None
) -> AsyncGenerator[News, None]:
    """Return the news of some jobs, or of all, from before the end of this call.

    Args:
        scope: The service as the caller sees it.
        jobs: The ids of jobs; None for all jobs of the scope.
        after: Number of the last received event; None for new events only.
    """
    newest = await scope.service.slow(scope.service.history.latest_event)
    return _news_of(scope, jobs, after, newest)


async def _news_of(
    scope: Scope, jobs: frozenset[str] | None, after: int | None, newest: int
) -> AsyncGenerator[News, None]:
    if after is None:
        after = newest
    elif not newest - _BACKLOG_MAX <= after <= newest:
        after = newest
        yield News(kind="resync", data={"latest": newest}, number=newest)
    asked = next(iter(jobs)) if jobs is not None and len(jobs) == 1 else None
    async with scope.service.fleet.changes() as changes:
        async for change in changes:
            for row in _rows(scope, scope.visible(change), jobs):
                yield row
            while events := await scope.events(asked, after):
                for each in events:
                    after = each.id
                    if jobs is None or each.job in jobs:
                        yield News(kind=each.kind, data=each, number=each.id)


async def _texts(news: AsyncGenerator[News, None]) -> AsyncGenerator[str, None]:
    try:
        async for each in news:
            yield _event(each.kind, each.data, number=each.number)
    finally:
        await news.aclose()


def _rows(scope: Scope, change: Change, jobs: frozenset[str] | None) -> list[News]:
    """Return the rows of jobs that changed."""
    view = scope.view
    found = sorted(change.jobs if jobs is None else change.jobs & jobs)
    gone = sorted(change.removed if jobs is None else change.removed & jobs)
    rows = [view.by_id[each].summary for each in found if each in view.by_id]
    return [
        *(News(kind="job", data=row) for row in rows),
        *(News(kind="gone", data={"job_id": each}) for each in gone),
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
