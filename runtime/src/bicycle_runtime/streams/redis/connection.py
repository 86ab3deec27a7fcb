"""Calls of a Redis server that may go away and come back: they are made again, for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConnectionError,
    ResponseError,
    TimeoutError,
)

from bicycle_runtime.base.ids import system_random
from bicycle_runtime.streams.addresses import StreamerUri
from bicycle_runtime.streams.errors import ConnectionLostError, StreamConnectError
from bicycle_runtime.streams.redis.errors import LOGIN_REFUSED
from bicycle_runtime.streams.redis.options import RedisOptions

__all__ = ["LOST", "PORT", "Connection"]

T = TypeVar("T")
# The first two are the client's own.
LOST = (ConnectionError, TimeoutError, OSError)
PORT = 6379
_PAUSE_S, _PAUSE_MAX_S = 0.02, 1.0


class Connection:
    """A server, and how long to wait for it.

    Args:
        uri: ``redis://host:port`` or, with TLS, ``rediss://host:port``.
        options: Options of the backend.
    """

    def __init__(self, uri: StreamerUri, options: RedisOptions) -> None:
        self.address = str(uri)
        self.options = options
        self._random = system_random()
        host, port = uri.host_and_port(PORT)
        timeout_s = options.connect_timeout_ms / 1_000
        tls = _tls(options) if uri.protocol == "rediss" else {}
        self.redis: Any = Redis(
            host=host,
            port=port,
            db=options.db,
            username=options.username,
            password=options.password,
            protocol=2,
            socket_connect_timeout=timeout_s,
            socket_timeout=timeout_s + options.block_ms / 1_000,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),  # `again` tries again.
            **tls,
        )
        self.redis.response_callbacks = {}  # Answers come as they are.

    async def open(self) -> None:
        """Reach the server once.

        Raises:
            StreamConnectError: it is not there, or refuses us.
        """
        try:
            await self.redis.ping()
        except (AuthenticationError, AuthorizationError, ResponseError) as error:
            await self.close()
            raise LOGIN_REFUSED(address=self.address, reason=str(error)) from None
        except LOST as error:
            await self.close()
            raise StreamConnectError(address=self.address, reason=str(error)) from None

    async def close(self) -> None:
        """Close all connections."""
        await self.redis.aclose()

    async def call(self, *words: Any) -> Any:
        """Return the answer to a command that may be given twice."""
        return await self.again(lambda: self.redis.execute_command(*words))

    async def again(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until the server answers.

        Raises:
            ConnectionLostError: it did not in ``retry_timeout_ms``.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.options.retry_timeout_ms / 1_000
        pause_s = _PAUSE_S
        while True:
            try:
                return await call()
            except LOST as error:
                if loop.time() + pause_s > deadline:
                    raise ConnectionLostError(address=self.address, reason=str(error)) from None
            await asyncio.sleep(pause_s * self._random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)


def _tls(options: RedisOptions) -> dict[str, Any]:
    words: dict[str, Any] = {
        "ssl": True,
        "ssl_ca_certs": options.ca_file,
        "ssl_certfile": options.cert_file,
        "ssl_keyfile": options.key_file,
    }
    if not options.verify_certificate:
        words |= {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
    return words
