"""uvicorn with our signals: it ends in order, and so do open streams."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from bicycle_streams.access.accepting import ListeningSocket
from bicycle_streams.access.doors import common_name

_HEADER_BYTES_MAX = 16 << 10
_GRACE_S = 5
_HEAD_S = 15.0
_KEEP_ALIVE_S = 30


class _Protocol(H11Protocol):
    """The HTTP protocol, which adds the client certificate's name and never waits.

    A client that has not sent the head of a request in time is dropped. The application gets the
    connection, too, and counts it for its caller.
    """

    _waiting: asyncio.TimerHandle | None = None

    def __init__(self, *, listener: ListeningSocket, **words: Any) -> None:
        super().__init__(**words)
        self._listener = listener

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        connection = self._listener.connection_of(transport.get_extra_info("peername"))
        connection.drop = transport.abort  # Also where nothing is read at the moment.
        self.app_state = {
            **self.app_state, "client_name": common_name(certificate), "connection": connection
        }  # fmt: skip
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()

    def _wait_for_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(_HEAD_S, self._drop)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _drop(self) -> None:
        self._waiting = None
        if self.conn.their_state is h11.IDLE:
            self.transport.close()


class _Server(uvicorn.Server):
    """A server without signal handlers: uvicorn would raise them again after its end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    app: ASGIApp,
    listener: ListeningSocket,
    *,
    closing: asyncio.Event,
    on_ready: Callable[[], None],
    context: ssl.SSLContext | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends at once.

    Args:
        app: The application.
        listener: Where requests come in.
        closing: Is set when the end begins: streams end then.
        on_ready: Called once requests are answered.
        context: What TLS is spoken with; None for none.
    """
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, proxy_headers=False,
        lifespan="off", ws="none", loop="asyncio",
        # uvicorn calls it as it would call the class.
        http=functools.partial(_Protocol, listener=listener),  # type: ignore[arg-type]
        h11_max_incomplete_event_size=_HEADER_BYTES_MAX,
        timeout_graceful_shutdown=_GRACE_S, timeout_keep_alive=_KEEP_ALIVE_S,
        ssl_context_factory=None if context is None else lambda _config, _default: context,
    )  # fmt: skip
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True
        closing.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    running = asyncio.ensure_future(server.serve([listener]))
    await _until_started(server, running)
    if not running.done():
        on_ready()
    await running


async def _until_started(server: uvicorn.Server, running: Awaitable[None]) -> None:
    """Wait until requests are answered, or the server has ended."""
    ended = asyncio.ensure_future(running)
    while not server.started and not ended.done():
        await asyncio.wait({ended}, timeout=0.01)
