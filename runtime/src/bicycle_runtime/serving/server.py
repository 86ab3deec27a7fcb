"""uvicorn with our signals: it ends in order, and so do open streams."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

__all__ = ["serve"]

_HEADER_BYTES_MAX = 16 << 10
_CONNECTIONS_MAX = 200
_GRACE_S = 5
_KEEP_ALIVE_S = 30


class _Server(uvicorn.Server):
    """A server that leaves signals alone: uvicorn would raise them again behind its end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    closing: asyncio.Event,
    on_ready: Callable[[], None],
) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends at once.

    Args:
        app: The application.
        listener: Where requests come in.
        closing: Is set when the end begins: streams end then.
        on_ready: Called once requests are answered.
    """
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, proxy_headers=False,
        lifespan="off", ws="none", http="h11", loop="asyncio",
        h11_max_incomplete_event_size=_HEADER_BYTES_MAX, limit_concurrency=_CONNECTIONS_MAX,
        timeout_graceful_shutdown=_GRACE_S, timeout_keep_alive=_KEEP_ALIVE_S,
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
