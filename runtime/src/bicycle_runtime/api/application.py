"""The API as routes of Starlette, and the whole application behind the guard."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence

import msgspec
from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp

from bicycle_runtime.api.errors import BODY_UNREADABLE, METHOD_NOT_ALLOWED, ROUTE_UNKNOWN
from bicycle_runtime.api.guard import Guard, broken_answer, error_answer
from bicycle_runtime.api.openapi import document
from bicycle_runtime.api.route import Route, endpoint
from bicycle_runtime.api.routes import ROUTES, served_paths
from bicycle_runtime.service.service import Service
from bicycle_sdk.errors import BicycleError
from bicycle_streams.access.authentication import Authenticator
from bicycle_streams.access.limits import Limits
from bicycle_streams.access.roles import Role, require_role

Missing = Callable[[Request, BicycleError], Response]


class _Number(IntegerConvertor):
    """A number in an address, of no more digits than any of ours has."""

    regex = "[0-9]{1,18}"


register_url_convertor("int", _Number())


def build_application(
    service: Service, *, hosts: Collection[str], authenticator: Authenticator, limits: Limits,
    routes: Sequence[Route] = ROUTES, pages: Sequence[BaseRoute] = (),
    missing: Missing | None = None,
) -> ASGIApp:  # fmt: skip
    """Return the application.

    Args:
        service: The service, which is open while requests arrive.
        hosts: Its allowed names: host and port, as in the header ``Host``.
        authenticator: Determines the caller.
        limits: The limits per token and address.
        routes: Routes of the API.
        pages: Further routes, for paths that the API does not have.
        missing: Renders the page for an unknown address.
    """
    data = msgspec.json.encode(document(routes))

    async def openapi(request: Request) -> Response:
        require_role(request.state.identity, Role.VIEWER)
        return Response(data, media_type="application/json")

    served: list[BaseRoute] = [StarletteRoute("/api/openapi.json", openapi)]
    for route in routes:
        call = endpoint(route, service)
        served += [
            StarletteRoute(path, call, methods=[route.method]) for path in served_paths(route)
        ]
    app = Starlette(
        routes=[*served, *pages],
        exception_handlers={
            HTTPException: functools.partial(_http_error, missing),
            BicycleError: _our_error,
            Exception: _answer_bug,
        },
    )
    return Guard(app, service, hosts, authenticator=authenticator, limits=limits)


async def _our_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, BicycleError)
    request.state.refused = error.code  # For the audit log.
    return error_answer(error)


async def _http_error(missing: Missing | None, request: Request, error: Exception) -> Response:
    """Return Starlette's own errors in the common form."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code == 405:
        words = (error.headers or {}).get("Allow", "").split(", ")  # In the order of a set.
        allowed = ", ".join(sorted(words))
        return error_answer(METHOD_NOT_ALLOWED(path=path, method=request.method, allowed=allowed))
    if error.status_code == 400:  # A form that cannot be read, or has too many fields.
        return error_answer(BODY_UNREADABLE(problem=str(error.detail)))
    unknown = ROUTE_UNKNOWN(path=path)
    is_person = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if missing is not None and is_person and not path.startswith("/api/"):
        return missing(request, unknown)
    return error_answer(unknown)


async def _answer_bug(request: Request, error: Exception) -> Response:
    """Return the answer to a bug; Starlette raises it again, and the guard logs it."""
    return broken_answer(request.url.path, error)
