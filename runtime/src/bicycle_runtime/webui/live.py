"""Streams that keep an open page up to date, one for each page.

A message without a name contains parts of the page, each in ``<hx-partial id="…">``: the browser
changes only the differences. The first message of a stream contains all parts that can change, so
that a lost message does no harm. A message with a name is data for a script: ``samples`` for
charts, ``graph`` for the drawing, ``beat`` for the line with the age of the page. A beat is sent
after some seconds without another message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import StreamingResponse

from bicycle_runtime.service.scope import Scope
from bicycle_runtime.service.watching.fleet import Change, FleetSubscription

BEAT_S = 5.0
_PACE_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PageMessage:
    """One message: parts of a page, or with ``name`` data for a script."""

    data: str
    name: str = ""

    def encoded(self) -> bytes:
        """Return the bytes of a server-sent event."""
        head = f"event: {self.name}\n" if self.name else ""
        lines = "".join(f"data: {line}\n" for line in self.data.splitlines() if line.strip())
        return f"{head}{lines}\n".encode()

    @classmethod
    def of(cls, name: str, facts: Any) -> PageMessage:
        """Return data for a script."""
        return cls(name=name, data=msgspec.json.encode(facts).decode())


Render = Callable[[Change | None], Awaitable[Iterable[PageMessage]]]


def live_answer(scope: Scope, render: Render, *, beat_s: float = BEAT_S) -> StreamingResponse:
    """Return a stream of a page's changes, which ends with the service.

    Args:
        scope: The scope of the caller.
        render: Returns messages for a change, or for None without a change; the first change
            contains every job.
        beat_s: Time without a change after which a beat is sent.

    Raises:
        CONNECTIONS_TOO_MANY: the caller has as many streams as it may.
        CONNECTIONS_EXHAUSTED: all callers together have.
    """
    scope.begin_stream()
    return StreamingResponse(_messages(scope, render, beat_s), media_type="text/event-stream")


def paced_answer(
    scope: Scope, make: Callable[[], Awaitable[Iterable[PageMessage]]]
) -> StreamingResponse:
    """Return the stream of a page that is made again every five seconds at most."""
    made_ms = 0

    async def render(_change: Change | None) -> Iterable[PageMessage]:
        nonlocal made_ms
        as_of_ms = scope.service.fleet.view.as_of_ms
        if as_of_ms - made_ms < _PACE_MS:
            return []
        made_ms = as_of_ms
        return await make()

    return live_answer(scope, render)


async def _messages(scope: Scope, render: Render, beat_s: float) -> AsyncIterator[bytes]:
    service, closing = scope.service, scope.service.closing
    async with service.fleet.changes() as changes:
        while not closing.is_set():
            try:
                change = await _next(changes, closing, beat_s)
            except StopAsyncIteration:
                return
            told = None if change is None else scope.visible(change)
            for message in await render(told):
                yield message.encoded()
            yield PageMessage.of("beat", {"as_of_ms": service.fleet.view.as_of_ms}).encoded()


async def _next(changes: FleetSubscription, closing: asyncio.Event, beat_s: float) -> Change | None:
    """Return the next change, or None after some seconds or at the service's end."""
    news = asyncio.ensure_future(anext(changes))
    end = asyncio.ensure_future(closing.wait())
    try:
        await asyncio.wait({news, end}, timeout=beat_s, return_when=asyncio.FIRST_COMPLETED)
        return news.result() if news.done() else None
    finally:
        news.cancel()
        end.cancel()
