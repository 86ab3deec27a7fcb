"""A route as data, and how a request becomes the call of its handler."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from bicycle_runtime.api.errors import BODY_UNREADABLE, MEDIA_TYPE_UNSUPPORTED, QUERY_UNREADABLE
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.service.scope import Scope
from bicycle_streams.access.roles import Identity, Role, require_role

if TYPE_CHECKING:
    from bicycle_runtime.service.service import Service

EVENT_STREAM = "text/event-stream"
TEXT = "text/plain"
QUERY_BOUNDS = {"limit": (1, 500), "minutes": (1, 10_080), "wait": (0, 60)}
T = TypeVar("T", bound=msgspec.Struct)


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of requests and responses: exactly the declared fields are accepted."""


class NoQuery(Shape, frozen=True, kw_only=True):
    """The query of a route without parameters."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request for its handler: checked parameters, and the service in scope."""

    request: Request
    scope: Scope
    query: Any
    body: Any

    @property
    def job(self) -> str:
        """The job that the path names."""
        return str(self.request.path_params["job_id"])

    @property
    def identity(self) -> Identity:
        """The identity of the caller."""
        return self.scope.identity

    @property
    def service(self) -> Service:
        """The service, for data about the job in the path, or about no job."""
        return self.scope.service


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route below ``/api/v1``, or at the root with ``is_root``.

    ``answer`` is the shape of a successful response with the status ``code``; ``media`` is its
    type. With ``stream``, the response may be a stream of events. ``errors`` are the other statuses
    for errors, ``codes`` the other statuses for success. ``upload`` are the files of a form, name
    to description; the first is required.
    """

    method: str
    path: str
    summary: str
    handler: Handler
    answer: Any
    role: Role = Role.VIEWER
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    code: int = 200
    media: str = "application/json"
    has_stream: bool = False
    errors: tuple[int, ...] = ()
    is_root: bool = False
    takes_key: bool = False
    codes: tuple[int, ...] = ()
    upload: Mapping[str, str] = field(default_factory=dict)


def answer_json(value: Any, *, code: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return an answer of JSON."""
    data = msgspec.json.encode(value)
    return Response(data, code, headers, media_type="application/json")


def endpoint(route: Route, service: Service) -> Callable[[Request], Awaitable[Response]]:
    """Return a route's endpoint: it checks role, job, query and body for the handler."""

    async def answer(request: Request) -> Response:
        identity: Identity = request.state.identity
        require_role(identity, route.role)
        scope = Scope(
            service, identity, address=str(request.state.address),
            connection=request.state.connection,
        )  # fmt: skip
        if "job_id" in request.path_params:
            await scope.require(str(request.path_params["job_id"]))
        query = _query(request, route.query)
        body = None if route.body is None else await _body(request, route.body)
        return await route.handler(Call(request, scope, query, body))

    return answer


def _query(request: Request, shape: type[T]) -> T:
    """Return the query parameters, checked; refuse an unknown one."""
    fields = {field.name: field for field in msgspec.structs.fields(shape)}
    given: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        is_list = name in fields and fields[name].type == tuple[str, ...]
        given[name] = tuple(values) if is_list else values[-1]
    known_text = ", ".join(fields) or "no query"
    try:
        query = msgspec.convert(given, prepare_type(shape), strict=False)
    except msgspec.ValidationError as error:
        raise QUERY_UNREADABLE(problem=str(error), known_text=known_text) from None
    for name, (low, high) in {**QUERY_BOUNDS, "after": (0, 2**53)}.items():
        value = getattr(query, name, None)
        if isinstance(value, int | float) and not (math.isfinite(value) and low <= value <= high):
            problem = f"{name} is {value}, expected {low} to {high}"
            raise QUERY_UNREADABLE(problem=problem, known_text=known_text)
    return query


async def _body(request: Request, shape: type[T]) -> T:
    """Return the body as its shape; an empty one is an object without fields."""
    found = request.headers.get("content-type", "")
    if found.partition(";")[0].strip().lower() != "application/json":
        raise MEDIA_TYPE_UNSUPPORTED(found=found)
    data = await request.body()
    try:
        plain = json.loads(data, parse_constant=_refuse) if data.strip() else {}
        return msgspec.convert(with_whole_numbers(plain), prepare_type(shape))
    except (ValueError, RecursionError) as error:  # A ValidationError is one.
        raise BODY_UNREADABLE(problem=str(error) or type(error).__name__) from None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def with_whole_numbers(value: Any) -> Any:
    """Return JSON with whole floats as integers: JSON knows no difference."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: with_whole_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [with_whole_numbers(each) for each in value]
    return value
