"""Authentication: the identity in the headers of a request, checked first.

Programs send a bearer token, pages a cookie. On a loopback address, no token is required unless
``--require-auth`` is set. A token in a request is always validated.
"""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from bicycle_streams.access.errors import LOGIN_NEEDED, TOKEN_REFUSED
from bicycle_streams.access.logins import Sessions
from bicycle_streams.access.roles import LOCAL, NOBODY, Identity
from bicycle_streams.access.tokens import Tokens

_OPEN = frozenset({"/health", "/login"})
_OPEN_BELOW = "/static/"
_COOKIES_LENGTH_MAX = 4_096


class Authenticator:
    """The identification of callers.

    Args:
        tokens: The access tokens.
        sessions: The logins to the pages; None without pages.
        needs_login: Whether a request without a token is rejected; otherwise it is local.
        clients: The identities of clients with certificates, by common name.

    Attributes:
        is_remote: Whether the identification of a caller may wait for a server.
    """

    def __init__(
        self, tokens: Tokens, sessions: Sessions | None, *, needs_login: bool,
        clients: Mapping[str, Identity],
    ) -> None:  # fmt: skip
        self._tokens = tokens
        self.is_remote = tokens.is_remote
        self._sessions = sessions
        self._clients = clients
        self._else = NOBODY if needs_login else LOCAL

    def identity(self, headers: Mapping[str, str], *, scheme: str, client: str = "") -> Identity:
        """Return the identity of a caller.

        Args:
            headers: The headers of the request, by lower-case names.
            scheme: ``http`` or ``https``.
            client: The common name of a verified certificate, empty without a certificate.

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
