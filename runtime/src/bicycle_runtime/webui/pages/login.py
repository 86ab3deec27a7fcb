"""The login to pages: a token is exchanged for a cookie that scripts cannot read."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bicycle_runtime.webui.rendering import Site
from bicycle_sdk.errors import BicycleError
from bicycle_streams.access.authentication import cookie_name
from bicycle_streams.access.errors import TOKEN_REFUSED
from bicycle_streams.access.logins import SESSION_MS

_NEXT_LENGTH_MAX = 1_000


async def login_page(site: Site, request: Request) -> Response:
    """Return the page that requests a token."""
    facts = {"next": way_back(request.query_params.get("next", "")), "error": None}
    return site.page(request, "login.html", facts)


async def login_do(site: Site, request: Request) -> Response:
    """Take a token, and go where the person wanted to go."""
    async with request.form() as form:
        token, wanted = str(form.get("token", "")), way_back(str(form.get("next", "")))
    try:
        identity = await site.service.slow(site.service.sessions.begin, token)
    except BicycleError as error:
        if error.code != TOKEN_REFUSED.code:
            raise
        return _refuse(site, request, wanted, error)
    answer = RedirectResponse(wanted, status_code=303)
    answer.set_cookie(value=identity.session, max_age=SESSION_MS // 1_000, **_cookie(request))
    return answer


def _refuse(site: Site, request: Request, wanted: str, error: BicycleError) -> Response:
    """Return the page again, and count the wrong token like one in a header."""
    status, headers = 401, {}
    try:
        request.state.limits.fail(request.state.address)
    except BicycleError as exceeded:
        error, status = exceeded, 429
        headers = {"Retry-After": str(exceeded.facts["wait_s"])}
    facts = {"next": wanted, "error": error.to_json(), "fix": error.remedy}
    answer = site.page(request, "login.html", facts, status=status)
    answer.headers.update(headers)
    return answer


async def logout_do(site: Site, request: Request) -> Response:
    """End the login, here and in the browser."""
    if request.state.identity.session:
        await site.service.slow(site.service.sessions.end, request.state.identity.session)
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(**_cookie(request))
    return answer


def way_back(wanted: str) -> str:
    """Return where to go after the login: a page of ours, whatever is requested.

    Example:
        >>> [way_back(text) for text in ("/jobs?text=a", "//evil.example", "https://evil.example")]
        ['/jobs?text=a', '/', '/']
    """
    is_ours = wanted.startswith("/") and wanted[1:2] not in ("/", "\\")
    is_plain = len(wanted) <= _NEXT_LENGTH_MAX and wanted.isascii() and wanted.isprintable()
    is_page = not wanted.startswith(("/log", "/live/", "/api/", "/static/"))
    return wanted if is_ours and is_plain and is_page else "/"


def _cookie(request: Request) -> dict[str, Any]:
    scheme = request.url.scheme
    return {
        "key": cookie_name(request.headers.get("host", ""), scheme),
        "path": "/", "httponly": True, "samesite": "strict", "secure": scheme == "https",
    }  # fmt: skip
