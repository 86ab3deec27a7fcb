"""Authentication: the identity in the headers of a request, checked first.

A bearer token says it to programs, a cookie to pages. On a loopback address nobody has to say it,
unless the service was told to demand it; a token that is given is checked in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from bicycle_runtime.service.users.errors import LOGIN_NEEDED, TOKEN_REFUSED
from bicycle_runtime.service.users.logins import Sessions
from bicycle_runtime.service.users.roles import LOCAL, NOBODY, Identity
from bicycle_runtime.service.users.tokens import Tokens

_OPEN = frozenset({"/health", "/login"})
_OPEN_BELOW = "/static/"
_COOKIES_LENGTH_MAX = 4_096


class Authenticator:
    """The identification of callers.

    Args:
        tokens: Who may.
        sessions: Who has logged in to pages; None where there are no pages.
        needs_login: Whether a request that says nothing is anybody's; else it is local.
        clients: Who each client with a certificate is, by the common name in it.
    """

    def __init__(
        self, tokens: Tokens, sessions: Sessions | None, *, needs_login: bool,
        clients: Mapping[str, Identity],
    ) -> None:  # fmt: skip
        self._tokens = tokens
        self._sessions = sessions
        self._clients = clients
        self._else = NOBODY if needs_login else LOCAL

    def identity(self, headers: Mapping[str, str], *, scheme: str, client: str = "") -> Identity:
        """Return the identity of a caller.

        Args:
            headers: Those of the request, by names in small letters.
            scheme: ``http`` or ``https``.
            client: The common name of a certificate that was checked, empty without one.

        Raises:
            TOKEN_REFUSED: a token is given, and it is not taken.
        """
        given = headers.get("authorization")
        if given is not None:
            kind, _, text = given.partition(" ")
            found = self._tokens.holder(text.strip()) if kind.lower() == "bearer" else None
            if found is None:
                raise TOKEN_REFUSED()
            return found
        found = None
        if self._sessions is not None:
            name = cookie_name(headers.get("host", ""), scheme)
            secret = _cookie(headers.get("cookie", ""), name)
            found = self._sessions.holder(secret) if secret else None
        if found is None and client in self._clients:
            return self._clients[client]
        return found if found is not None else self._else

    def is_still(self, identity: Identity) -> bool:
        """Return whether an admitted caller would be admitted now."""
        if identity.session and self._sessions is not None:
            return self._sessions.holder(identity.session) is not None
        return not identity.token or self._tokens.is_good(identity.token)


def require_somebody(identity: Identity, path: str) -> None:
    """Require an authenticated caller unless the route is public.

    Raises:
        LOGIN_NEEDED: it is not.
    """
    if identity == NOBODY and not is_open(path):
        raise LOGIN_NEEDED(path=path[:200])


def is_open(path: str) -> bool:
    """Return whether a path is public: the login and the health check."""
    return path in _OPEN or path.startswith(_OPEN_BELOW)


def cookie_name(host: str, scheme: str) -> str:
    """Return the name of a login's cookie, since a host's ports share cookies.

    Example:
        >>> cookie_name("127.0.0.1:9000", "http"), cookie_name("jobs.example", "https")
        ('bicycle-9000', '__Host-bicycle-443')
    """
    port = host.rpartition(":")[2]
    if not port.isdecimal():
        port = "443" if scheme == "https" else "80"
    return f"__Host-bicycle-{port}" if scheme == "https" else f"bicycle-{port}"


def _cookie(text: str, name: str) -> str:
    """Return the value of a cookie, empty if missing or unreadable."""
    if len(text) > _COOKIES_LENGTH_MAX:
        return ""
    try:
        found = SimpleCookie(text).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""
