"""What stands before every request: host, origin, size, who asks; and what every answer carries.

A browser can be led to send requests here by any page that its user looks at. So the host must be
ours (a foreign name may lead to this address), a change must come from a page of ours or from no
page at all, and bodies are of types that a foreign form cannot send: JSON below ``/api``, but for
uploads; forms for pages, and then the browser must tell where they come from.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bicycle_runtime.api.errors import (
    BODY_TOO_LARGE,
    MEDIA_TYPE_UNSUPPORTED,
    REQUEST_BROKE,
    ForeignOriginError,
    HostUnknownError,
    answer_code,
    plain_answer,
)
from bicycle_runtime.api.routing import answer_json
from bicycle_runtime.api.uploads import FORM, body_bytes_max, takes_form
from bicycle_runtime.base.logging import log_event
from bicycle_runtime.service.service import Service
from bicycle_runtime.service.users.roles import LOCAL
from bicycle_sdk.errors import BicycleError

__all__ = ["HEADERS", "Guard", "error_answer"]

_LOG = logging.getLogger(__name__)
_SAFE = frozenset({"GET", "HEAD"})
_FORMS = frozenset({"application/x-www-form-urlencoded", FORM})
_JSON = "application/json"
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


class Guard:
    """An ASGI application before another one.

    Args:
        app: The other one.
        service: Gets the figures, and the refused changes into its audit log.
        hosts: What this service may be called, with the port.
    """

    def __init__(self, app: ASGIApp, service: Service, hosts: Collection[str]) -> None:
        self._app = app
        self._service = service
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(self._service, receive, send, bytes_max=body_bytes_max(scope["path"]))
        client = scope.get("client")
        state = scope.setdefault("state", {})
        state["identity"], state["address"] = LOCAL, client[0] if client else ""
        try:
            self._check(scope)
            await self._app(scope, exchange.receive, exchange.send)
        except BicycleError as error:
            if exchange.has_begun:
                raise
            self._note_refused(scope, error)
            await error_answer(error)(scope, receive, exchange.send)
        except Exception as error:  # The last door: a bug is told as one.
            log_event(_LOG, "request_broke", level=logging.ERROR, error=error, path=scope["path"])
            if exchange.has_begun:
                raise
            broken = REQUEST_BROKE(path=scope["path"], exception=type(error).__name__)
            await error_answer(broken)(scope, receive, exchange.send)

    def _check(self, scope: Scope) -> None:
        """See that a request may be answered at all.

        Raises:
            BicycleError: it may not.
        """
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            raise HostUnknownError(host=host[:100])
        length = headers.get("content-length", "0")
        bytes_max = body_bytes_max(scope["path"])
        if not (length.isascii() and length.isdecimal()) or int(length) > bytes_max:
            raise BODY_TOO_LARGE(bytes_max=bytes_max)
        if scope["method"] not in _SAFE:
            _check_change(scope, headers, host)

    def _note_refused(self, scope: Scope, error: BicycleError) -> None:
        """Keep in the audit log that a change was refused at the door."""
        if scope["method"] in _SAFE:
            return
        if isinstance(error, HostUnknownError | ForeignOriginError):
            self._service.figures.count_refused()
        entry = {
            "actor": scope["state"]["identity"].name,
            "address": scope["state"]["address"],
            "action": scope["method"],
            "target": scope["path"][:200],
            "outcome": "refused",
        }
        now_ms = self._service.clock.now_ms()
        self._service.history.note_refused(entry, {"code": error.code}, at_ms=now_ms)


class _Exchange:
    """One request and its answer: counts the bytes of the one, adds headers to the other."""

    def __init__(self, service: Service, receive: Receive, send: Send, *, bytes_max: int) -> None:
        self._service = service
        self._bytes_max = bytes_max
        self._receive = receive
        self._send = send
        self._began = time.monotonic()
        self._byte_count = 0
        self.has_begun = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._byte_count += len(message.get("body", b""))
        if self._byte_count > self._bytes_max:
            raise BODY_TOO_LARGE(bytes_max=self._bytes_max)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
            self._service.figures.count_request(message["status"], time.monotonic() - self._began)
        await self._send(message)


def _check_change(scope: Scope, headers: Headers, host: str) -> None:
    """See that a request that may change something does not come from a foreign page."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    ours = f"{scope['scheme']}://{host}"
    if site is not None and site not in ("same-origin", "none"):
        raise ForeignOriginError(origin=(origin or site)[:200])
    if origin is not None and origin.lower() != ours:
        raise ForeignOriginError(origin=origin[:200])
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == FORM and takes_form(scope["method"], scope["path"]):
        return  # Every browser tells the origin of a form, and it was looked at above.
    if scope["path"].startswith("/api/"):
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if kind != _JSON and (scope["method"] != "DELETE" or has_body):
            raise MEDIA_TYPE_UNSUPPORTED(found=kind)
        return
    if site is None and origin is None:
        raise ForeignOriginError(origin="an unknown page")
    if kind not in (_JSON, *_FORMS, ""):
        raise MEDIA_TYPE_UNSUPPORTED(found=kind)


def error_answer(error: BicycleError) -> Response:
    """Return the answer that an error is."""
    code = answer_code(error)
    headers = {"Retry-After": "5"} if code in (429, 503) else {}
    if code == 405:
        headers["Allow"] = str(error.facts["allowed"])
    return answer_json(plain_answer(error), code=code, headers=headers)
