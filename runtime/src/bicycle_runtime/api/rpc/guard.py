"""The guard before every gRPC call: identity, rate limits, and the status of an error.

It is to gRPC what ``api.guard`` is to HTTP: the same tokens, roles, limits and audit log. Browsers
cannot speak this protocol to a foreign host, so nothing is asked about origins.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import grpc

from bicycle_runtime.api.errors import answer_code, broken_error, plain_answer
from bicycle_runtime.api.refusals import note_refused
from bicycle_runtime.base.logging import log_event
from bicycle_runtime.service.scope import Scope
from bicycle_runtime.service.users.authentication import Authenticator
from bicycle_runtime.service.users.errors import LOGIN_NEEDED
from bicycle_runtime.service.users.limits import Limits
from bicycle_runtime.service.users.roles import NOBODY, Identity, Role, require_role
from bicycle_sdk.errors import BicycleError

if TYPE_CHECKING:
    from bicycle_runtime.service.service import Service

__all__ = ["ERROR_KEY", "Asking", "CallGuard", "asking"]

_LOG = logging.getLogger(__name__)
ERROR_KEY = "bicycle-error-bin"
_STATUS = {
    400: grpc.StatusCode.INVALID_ARGUMENT, 401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED, 404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED, 409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED, 422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED, 503: grpc.StatusCode.UNAVAILABLE,
}  # fmt: skip
_CLIENT_NAME = "x509_common_name"

Context = Any  # grpc.aio.ServicerContext: grpc ships no types.
Inner = Callable[[Any, Context], Any]


class Asking:
    """Who asks in the call that goes on, from where, and the service as they see it."""

    def __init__(
        self, service: Service, authenticator: Authenticator, identity: Identity, address: str
    ) -> None:  # fmt: skip
        self._authenticator = authenticator
        self.identity = identity
        self.address = address
        self.scope = Scope(service, identity, address=address)

    def is_still(self) -> bool:
        """Tell whether who asked would be let in now."""
        return self._authenticator.is_still(self.identity)


_ASKING: ContextVar[Asking] = ContextVar("asking")


def asking() -> Asking:
    """Return who asks in this call."""
    return _ASKING.get()


class CallGuard(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc ships no types
    """Lets calls in, or answers why not.

    Args:
        service: Gets refused changes into its audit log.
        authenticator: Tells who asks.
        limits: Counts what they ask.
        roles: The least role of each call by its full name; an unknown one is for viewers.
        writes: The calls that may change something.
        is_tls: Whether calls come over TLS.
    """

    def __init__(
        self, service: Service, *, authenticator: Authenticator, limits: Limits,
        roles: Mapping[str, Role], writes: frozenset[str], is_tls: bool,
    ) -> None:  # fmt: skip
        self._service = service
        self._authenticator = authenticator
        self._limits = limits
        self._roles = roles
        self._writes = writes
        self._scheme = "https" if is_tls else "http"

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Put the door before the handler of a call."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = str(handler_call_details.method)
        answer: Inner
        if handler.request_streaming:  # Of reflection alone.
            answer = functools.partial(self._stream, handler.stream_stream, method)
            make = grpc.stream_stream_rpc_method_handler
        elif handler.response_streaming:
            answer = functools.partial(self._stream, handler.unary_stream, method)
            make = grpc.unary_stream_rpc_method_handler
        else:
            answer = functools.partial(self._unary, handler.unary_unary, method)
            make = grpc.unary_unary_rpc_method_handler
        return make(answer, handler.request_deserializer, handler.response_serializer)

    async def _unary(self, inner: Inner, method: str, request: Any, context: Context) -> Any:
        try:
            self._enter(method, context)
            await _require_jobs(request)
            return await inner(request, context)
        except Exception as error:  # noqa: BLE001 - The last door: a bug is told as one.
            await self._refuse(method, context, error)

    async def _stream(
        self, inner: Inner, method: str, request: Any, context: Context
    ) -> AsyncIterator[Any]:
        try:
            self._enter(method, context)
            await _require_jobs(request)
            async for each in inner(request, context):
                yield each
        except Exception as error:  # noqa: BLE001 - The last door: a bug is told as one.
            await self._refuse(method, context, error)

    def _enter(self, method: str, context: Context) -> None:
        """Find out who asks, and see that they may.

        Raises:
            BicycleError: they may not, or not so often.
        """
        address = _address(context.peer())
        _ASKING.set(Asking(self._service, self._authenticator, NOBODY, address))
        given = dict(context.invocation_metadata() or ())
        headers = {"authorization": given["authorization"]} if "authorization" in given else {}
        names = context.auth_context().get(_CLIENT_NAME, ())
        client = next((name.decode("utf-8", "replace") for name in names), "")
        try:
            identity = self._authenticator.identity(headers, scheme=self._scheme, client=client)
        except BicycleError:
            self._limits.fail(address)
            raise
        _ASKING.set(Asking(self._service, self._authenticator, identity, address))
        self._limits.take(identity, address, is_write=method in self._writes)
        least = self._roles.get(method, Role.VIEWER)
        if identity == NOBODY and least > Role.NOBODY:
            raise LOGIN_NEEDED(path=method)
        require_role(identity, least)

    async def _refuse(self, method: str, context: Context, error: Exception) -> None:
        """Answer with an error: its status, and all of it as JSON."""
        if not isinstance(error, BicycleError):
            if context.done() or isinstance(error, grpc.aio.AbortError):
                raise error
            log_event(_LOG, "request_broke", level=logging.ERROR, error=error, path=method)
            error = broken_error(method, error)
        if method in self._writes:
            who = asking()
            note_refused(
                self._service, who.identity, who.address,
                action="gRPC", target=method, code=error.code,
            )  # fmt: skip
        code = _STATUS.get(answer_code(error), grpc.StatusCode.INTERNAL)
        trailing = ((ERROR_KEY, json.dumps(plain_answer(error)).encode()),)
        await context.abort(code, f"{error.code} {error.summary}", trailing)


async def _require_jobs(request: Any) -> None:
    """See that the jobs that a request names are there for the caller.

    Raises:
        JOB_NOT_FOUND: one is not.
    """
    named = [*getattr(request, "job_ids", ()), getattr(request, "job_id", "")]
    for job in filter(None, named):
        await asking().scope.require(job)


def _address(peer: str) -> str:
    """Return the address in the name that gRPC has for the caller.

    Example:
        >>> _address("ipv4:127.0.0.1:50000"), _address("ipv6:%5B::1%5D:50000")
        ('127.0.0.1', '::1')
    """
    place = peer.partition(":")[2].rpartition(":")[0]
    return place.replace("%5B", "").replace("%5D", "").strip("[]")
