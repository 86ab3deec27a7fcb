"""The guard of every request: host, origin, size, identity, response headers.

Any page in a browser can send requests to this address. So the host name must be a name of this
service (a foreign name may resolve to this address), and a change must have the origin of this
service, or no origin. Bodies have types that a foreign form cannot send: JSON below ``/api``,
except for uploads. Forms of pages must have an origin. A streamed response ends when its caller
loses access.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import time
from collections.abc import Collection
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bicycle_runtime.api.errors import (
    BODY_TOO_LARGE,
    BODY_TOO_SLOW,
    MEDIA_TYPE_UNSUPPORTED,
    ForeignOriginError,
    HostUnknownError,
    answer_code,
    broken_error,
)
from bicycle_runtime.api.refusals import note_refused
from bicycle_runtime.api.route import answer_json
from bicycle_runtime.api.uploads import FORM, body_bytes_max, takes_form
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event
from bicycle_streams.access.answers import plain_answer
from bicycle_streams.access.authentication import Authenticator, require_somebody
from bicycle_streams.access.errors import LOGIN_NEEDED
from bicycle_streams.access.identities import identify, is_still
from bicycle_streams.access.limits import Limits
from bicycle_streams.access.roles import NOBODY, Identity

if TYPE_CHECKING:
    from bicycle_runtime.service.service import Service

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
        service: The service, which counts requests.
        receive: Returns the request.
        send: Sends the response.
        bytes_max: Maximum size of the body; each MiB extends the time limit by a second.
        is_tls: Whether it was sent over TLS; the response then requires TLS for later requests.

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
        self._watched: tuple[Authenticator, Identity] | None = None
        self._is_tls = is_tls
        self._bytes_max = bytes_max
        self._body_s = _BODY_S + (bytes_max >> 20)
        self.has_begun = False
        self.is_over = False

    def watch(self, authenticator: Authenticator, identity: Identity) -> None:
        """End the response once its caller would no longer be admitted."""
        if identity.token:
            self._watched = authenticator, identity

    async def receive(self) -> Message:
        """Return the next part of the request.

        Raises:
            BODY_TOO_LARGE: more was sent than is taken.
            BODY_TOO_SLOW: it takes too long.
        """
        if self._is_read and self._watched is not None:
            return await self._wait_until_gone(*self._watched)
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

    async def _wait_until_gone(self, authenticator: Authenticator, identity: Identity) -> Message:
        """Wait until the reader is gone, or is to go."""
        going = asyncio.ensure_future(self._receive())
        try:
            while await is_still(authenticator, identity):
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


_LOG = logging.getLogger(__name__)
_SAFE = frozenset({"GET", "HEAD"})
_FORMS = frozenset({"application/x-www-form-urlencoded", FORM})
_JSON = "application/json"
_LENGTH_DIGITS_MAX = 15
# Requests that must work in an emergency, by API and by page.
_RESERVED = re.compile(
    r"/health|/api(/v1)?/jobs/[^/]+/(stop|drain|cancel)|/jobs/[^/]+/actions/(stop|drain|cancel)"
)


class Guard:
    """An ASGI application before another one.

    Args:
        app: The wrapped application.
        service: The service, which counts requests and logs rejected changes.
        hosts: The allowed names of this service, with the port.
        authenticator: Determines the caller.
        limits: The limits of callers.
    """

    def __init__(
        self, app: ASGIApp, service: Service, hosts: Collection[str],
        *, authenticator: Authenticator, limits: Limits,
    ) -> None:  # fmt: skip
        self._app = app
        self._authenticator = authenticator
        self._limits = limits
        self._service = service
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(
            self._service, receive, send,
            bytes_max=body_bytes_max(scope["path"]), is_tls=scope["scheme"] == "https",
        )  # fmt: skip
        client = scope.get("client")
        state = scope.setdefault("state", {})
        state["identity"], state["address"] = NOBODY, client[0] if client else ""
        state["limits"] = self._limits
        state.setdefault("connection", None)
        try:
            await self._check(scope)
            exchange.watch(self._authenticator, state["identity"])
            send_answer = functools.partial(self._send, scope, exchange)
            await self._app(scope, exchange.receive, send_answer)
            await exchange.finish()
        except BicycleError as error:
            if exchange.has_begun:
                raise
            self._note_refused(scope, error.code)
            answer = _to_login(scope, error) or error_answer(error)
            await answer(scope, receive, exchange.send)
        except Exception as error:  # The last handler: other exceptions are bugs.
            log_event(_LOG, "request_broke", level=logging.ERROR, error=error, path=scope["path"])
            if not exchange.has_begun:
                await broken_answer(scope["path"], error)(scope, receive, exchange.send)
            elif not exchange.is_over:
                raise  # The server closes the connection: the response is incomplete.
        finally:
            if state["connection"] is not None:
                state["connection"].leave()

    async def _check(self, scope: Scope) -> None:
        """Ensure that a request may be answered at all.

        Raises:
            BicycleError: it may not.
        """
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            raise HostUnknownError(host=host[:100])
        state, is_write = scope["state"], scope["method"] not in _SAFE
        identity = await self._identity(scope, headers)
        state["identity"] = identity
        self._limits.take(identity, state["address"], is_write=is_write)
        if state["connection"] is not None:
            is_reserved = bool(_RESERVED.fullmatch(scope["path"]))
            state["connection"].enter(identity, is_reserved=is_reserved)
        require_somebody(identity, scope["path"])
        length = headers.get("content-length", "0")
        bytes_max = body_bytes_max(scope["path"])
        is_number = length.isascii() and length.isdecimal() and len(length) <= _LENGTH_DIGITS_MAX
        if not is_number or int(length) > bytes_max:
            raise BODY_TOO_LARGE(bytes_max=bytes_max)
        if scope["method"] not in _SAFE:
            _check_change(scope, headers, host)

    async def _identity(self, scope: Scope, headers: Headers) -> Identity:
        state = scope["state"]
        client = str(state.get("client_name", ""))
        try:
            return await identify(
                self._authenticator, headers, scheme=scope["scheme"], client=client
            )
        except BicycleError:
            self._limits.fail(state["address"])
            raise

    async def _send(self, scope: Scope, exchange: Exchange, message: Message) -> None:
        """Send a response; note a refusal of a change by the handler, too."""
        if message["type"] == "http.response.start":
            status = message["status"]
            if status >= 400 and status != 500:  # 500 is a bug, and refuses nothing.
                self._note_refused(scope, str(scope["state"].get("refused", status)))
        await exchange.send(message)

    def _note_refused(self, scope: Scope, code: str) -> None:
        """Keep in the audit log that a change was refused, before that is answered."""
        if scope["method"] in _SAFE:
            return
        if code in (HostUnknownError.code, ForeignOriginError.code):
            self._service.figures.count_refused()
        state = scope["state"]
        note_refused(
            self._service, state["identity"], state["address"],
            action=scope["method"], target=scope["path"], code=code,
        )  # fmt: skip


def _to_login(scope: Scope, error: BicycleError) -> Response | None:
    """Return a redirect to the login for a request of a page, else None."""
    headers = Headers(scope=scope)
    is_page = scope["method"] == "GET" and "text/html" in headers.get("accept", "")
    if error.code != LOGIN_NEEDED.code or not is_page or scope["path"].startswith("/api/"):
        return None
    query = scope["query_string"].decode("ascii", errors="replace")
    wanted = scope["path"] + (f"?{query}" if query else "")
    return RedirectResponse(f"/login?{urlencode({'next': wanted[:1_000]})}", status_code=303)


def _check_change(scope: Scope, headers: Headers, host: str) -> None:
    """Check that a request with a possible change is not from a foreign page."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    ours = f"{scope['scheme']}://{host}"
    if site is not None and site not in ("same-origin", "none"):
        raise ForeignOriginError(origin=(origin or site)[:200])
    if origin is not None and origin.lower() != ours:
        raise ForeignOriginError(origin=origin[:200])
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == FORM and takes_form(scope["method"], scope["path"]):
        return  # Every browser sends the origin of a form, which was checked above.
    if scope["path"].startswith("/api/"):
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if kind != _JSON and (scope["method"] != "DELETE" or has_body):
            raise MEDIA_TYPE_UNSUPPORTED(found=kind)
        return
    if site is None and origin is None:
        raise ForeignOriginError(origin="an unknown page")
    if kind not in (_JSON, *_FORMS, ""):
        raise MEDIA_TYPE_UNSUPPORTED(found=kind)


def broken_answer(path: str, error: Exception) -> Response:
    """Return the response to an unexpected exception; the log has its traceback."""
    return error_answer(broken_error(path, error))


def error_answer(error: BicycleError) -> Response:
    """Return the answer that an error is."""
    code = answer_code(error)
    headers = {"Retry-After": str(error.facts.get("wait_s", 5))} if code in (429, 503) else {}
    if code == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="bicycle"'
    if code == 405:
        headers["Allow"] = str(error.facts["allowed"])
    return answer_json(plain_answer(error), code=code, headers=headers)
