"""One request and its answer as the guard passes them on.

It counts the bytes of the one and adds headers to the other; an answer that is a stream ends when
who reads it would be let in no more.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Receive, Send

from bicycle_runtime.api.errors import BODY_TOO_LARGE, BODY_TOO_SLOW
from bicycle_runtime.service.users.entrance import Entrance
from bicycle_runtime.service.users.roles import Identity

if TYPE_CHECKING:
    from bicycle_runtime.service.service import Service

__all__ = ["HEADERS", "Exchange"]

_WATCH_S = 1.0
_BODY_S = 30.0
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Exchange:
    """One request and its answer.

    Args:
        service: Gets the figures.
        receive: Gives the request.
        send: Takes the answer.
        bytes_max: How large the body may be; for each MiB a second more is given to send it.
        is_tls: Whether it came over TLS: browsers are told to come so always.

    Attributes:
        has_begun: Whether something of the answer is on its way.
        is_over: Whether all of it is.
    """

    def __init__(
        self, service: Service, receive: Receive, send: Send, *, bytes_max: int, is_tls: bool
    ) -> None:
        self._service = service
        self._receive = receive
        self._send = send
        self._began = time.monotonic()
        self._byte_count = 0
        self._is_read = False
        self._watched: tuple[Entrance, Identity] | None = None
        self._is_tls = is_tls
        self._bytes_max = bytes_max
        self._body_s = _BODY_S + (bytes_max >> 20)
        self.has_begun = False
        self.is_over = False

    def watch(self, entrance: Entrance, identity: Identity) -> None:
        """End the answer once who asked would be let in no more."""
        if identity.token:
            self._watched = entrance, identity

    async def receive(self) -> Message:
        """Give the next piece of the request.

        Raises:
            BODY_TOO_LARGE: more was sent than is taken.
            BODY_TOO_SLOW: it takes too long.
        """
        if self._is_read and self._watched is not None:
            return await self._gone(*self._watched)
        message = await (self._receive() if self._is_read else self._piece())
        self._is_read = not message.get("more_body", False)
        self._byte_count += len(message.get("body", b""))
        if self._byte_count > self._bytes_max:
            raise BODY_TOO_LARGE(bytes_max=self._bytes_max)
        return message

    async def _piece(self) -> Message:
        left_s = max(0.0, self._began + self._body_s - time.monotonic())
        try:
            return await asyncio.wait_for(self._receive(), left_s)
        except TimeoutError:
            raise BODY_TOO_SLOW(waited_s=int(self._body_s)) from None

    async def _gone(self, entrance: Entrance, identity: Identity) -> Message:
        """Wait until the reader is gone, or is to go."""
        going = asyncio.ensure_future(self._receive())
        try:
            while entrance.is_still(identity):
                await asyncio.wait({going}, timeout=_WATCH_S)
                if going.done():
                    return going.result()
        finally:
            going.cancel()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take the next piece of the answer."""
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if self._is_tls:
                headers["Strict-Transport-Security"] = "max-age=31536000"
            headers.setdefault("Cache-Control", "no-store")
            self._service.figures.count_request(message["status"], time.monotonic() - self._began)
        else:
            self.is_over = not message.get("more_body", False)
        await self._send(message)

    async def finish(self) -> None:
        """End an answer that was cut off."""
        if self.has_begun and not self.is_over:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
