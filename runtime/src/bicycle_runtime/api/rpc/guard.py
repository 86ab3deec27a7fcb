"""The guard of every gRPC call: identity, rate limits, and error statuses.

gRPC has the same tokens, roles, limits and audit log as HTTP (``api.guard``). Browsers cannot use
this protocol with a foreign host, so origins are not checked.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError

from bicycle_runtime.api.errors import BODY_TOO_SLOW, MESSAGE_UNREADABLE, answer_code, broken_error
from bicycle_runtime.api.refusals import note_refused
from bicycle_runtime.service.scope import Scope
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event
from bicycle_streams.access.answers import plain_answer
from bicycle_streams.access.authentication import Authenticator
from bicycle_streams.access.connections import Connections, OpenConnection
from bicycle_streams.access.errors import LOGIN_NEEDED
from bicycle_streams.access.identities import identify, is_still
from bicycle_streams.access.limits import Limits
from bicycle_streams.access.roles import NOBODY, Identity, Role, require_role

if TYPE_CHECKING:
    from bicycle_runtime.service.service import Service

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
_MESSAGE_S = 30.0
# Calls that must work in an emergency.
_RESERVED = ("/CancelJob", "/Check")

Context = Any  # grpc.aio.ServicerContext: grpc ships no types.
Inner = Callable[[Any, Context], Any]
Read = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One call of the service: its full name, its handler, and its message parser."""

    method: str
    inner: Inner
    read: Read


class Asking:
    """The caller of the present call, its address, and the service in its scope."""

    def __init__(
        self, service: Service, authenticator: Authenticator, identity: Identity, *, address: str,
        connection: OpenConnection,
    ) -> None:  # fmt: skip
        self._authenticator = authenticator
        self.identity = identity
        self.address = address
        self.scope = Scope(service, identity, address=address, connection=connection)

    async def is_still(self) -> bool:
        """Return whether the caller would be admitted now."""
        return await is_still(self._authenticator, self.identity)


_ASKING: ContextVar[Asking] = ContextVar("asking")


def asking() -> Asking:
    """Return the caller of this call."""
    return _ASKING.get()


class CallGuard(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc ships no types
    """The interceptor that admits calls, or answers with an error.

    Args:
        service: The service, which logs rejected changes.
        authenticator: Determines the caller.
        limits: The limits of callers.
        roles: The minimum role of each call by its full name; viewer for an unknown call.
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
        self._connections = Connections()

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Put the door before the handler of a call.

        Each call is taken as a stream of bytes, which is the same on the wire: so nothing of it is
        waited for, or parsed, before the caller is known.
        """
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method, parse = str(handler_call_details.method), handler.request_deserializer
        inner: Inner
        answer: Callable[..., Any]
        if handler.response_streaming:
            inner = handler.stream_stream if handler.request_streaming else handler.unary_stream
            make, answer = grpc.stream_stream_rpc_method_handler, self._stream
        else:
            inner, make = handler.unary_unary, grpc.stream_unary_rpc_method_handler
            answer = self._unary
        read = functools.partial(_read_all if handler.request_streaming else _read_one, parse)
        call = _Call(method=method, inner=inner, read=read)
        return make(functools.partial(answer, call), None, handler.response_serializer)

    async def _unary(self, call: _Call, pieces: Any, context: Context) -> Any:
        with self._count(context) as connection:
            try:
                await self._enter(call.method, context, connection)
                request = await call.read(pieces)
                await _require_jobs(request)
                return await call.inner(request, context)
            except Exception as error:  # noqa: BLE001 - Last handler: an unexpected error is reported as a bug.
                await self._refuse(call.method, context, error)

    async def _stream(self, call: _Call, pieces: Any, context: Context) -> AsyncIterator[Any]:
        with self._count(context) as connection:
            try:
                await self._enter(call.method, context, connection)
                request = await call.read(pieces)
                await _require_jobs(request)
                answers = call.inner(request, context)
                if inspect.isawaitable(answers):  # It writes them by itself.
                    await answers
                    return
                async for each in answers:
                    yield each
            except Exception as error:  # noqa: BLE001 - Last handler: an unexpected error is reported as a bug.
                await self._refuse(call.method, context, error)

    @contextmanager
    def _count(self, context: Context) -> Iterator[OpenConnection]:
        """Count a call while it is met, as HTTP counts connections."""
        task = asyncio.current_task()
        assert task is not None
        connection = self._connections.open(_address(context.peer()), lambda: bool(task.cancel()))
        try:
            yield connection
        finally:
            connection.close()

    async def _enter(self, method: str, context: Context, connection: OpenConnection) -> None:
        """Identify the caller, and check its permission and rate.

        Raises:
            BicycleError: they may not, or not so often.
        """
        address = connection.address
        asked = functools.partial(Asking, self._service, self._authenticator, address=address)
        _ASKING.set(asked(NOBODY, connection=connection))
        given = dict(context.invocation_metadata() or ())
        headers = {"authorization": given["authorization"]} if "authorization" in given else {}
        names = context.auth_context().get(_CLIENT_NAME, ())
        client = next((name.decode("utf-8", "replace") for name in names), "")
        try:
            identity = await identify(
                self._authenticator, headers, scheme=self._scheme, client=client
            )
        except BicycleError:
            self._limits.fail(address)
            raise
        _ASKING.set(asked(identity, connection=connection))
        self._limits.take(identity, address, is_write=method in self._writes)
        connection.enter(identity, is_reserved=method.endswith(_RESERVED))
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


async def _read_one(parse: Callable[[bytes], Any], pieces: Any) -> Any:
    """Return the single message of a call.

    Raises:
        BODY_TOO_SLOW: the message did not arrive in time.
        MESSAGE_UNREADABLE: the message is missing, or has the wrong type for the call.
    """
    try:
        async with asyncio.timeout(_MESSAGE_S):
            data = await anext(aiter(pieces), None)
    except TimeoutError:
        raise BODY_TOO_SLOW(waited_s=int(_MESSAGE_S)) from None
    if data is None:
        raise MESSAGE_UNREADABLE(problem="the call has none")
    return _parse(parse, data)


async def _read_all(parse: Callable[[bytes], Any], pieces: Any) -> AsyncIterator[Any]:
    """Return the messages of a call as they come."""

    async def messages() -> AsyncIterator[Any]:
        async for data in pieces:
            yield _parse(parse, data)

    return messages()


def _parse(parse: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return parse(data)
    except (ValueError, DecodeError) as error:
        raise MESSAGE_UNREADABLE(problem=str(error)) from None


async def _require_jobs(request: Any) -> None:
    """Ensure that the jobs that a request names are there for the caller.

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
    host = peer.partition(":")[2].rpartition(":")[0]
    return host.replace("%5B", "").replace("%5D", "").strip("[]")
