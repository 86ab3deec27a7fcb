"""Logins to pages: a secret in a cookie that represents a token.

The browser does not store the token. A login ends with its token, at a logout, and after half a
day. Only the SHA-256 of its secret is stored.
"""

from __future__ import annotations

import dataclasses
import hashlib
import secrets

from bicycle_sdk.clock import Clock
from bicycle_streams.access.database import Connection, Database
from bicycle_streams.access.errors import TOKEN_REFUSED
from bicycle_streams.access.roles import Identity, Role
from bicycle_streams.access.tokens import Tokens, owners_in

SESSION_MS = 12 * 3_600_000
_LENGTH = 43  # Of 256 bits in the letters of URLs.


class Sessions:
    """Begins, checks and ends logins.

    Args:
        control: The open database.
        tokens: The access tokens.
        clock: The time of day.
    """

    def __init__(self, control: Database, tokens: Tokens, clock: Clock) -> None:
        self._control = control
        self._tokens = tokens
        self._clock = clock

    def begin(self, token: str) -> Identity:
        """Log in with a token; the identity has the secret for the cookie.

        Raises:
            TOKEN_REFUSED: the token is not taken.
        """
        identity = self._tokens.holder(token.strip())
        if identity is None:
            raise TOKEN_REFUSED()
        secret, now_ms = secrets.token_urlsafe(32), self._clock.now_ms()

        def work(connection: Connection) -> None:
            connection.execute("DELETE FROM sessions WHERE expires_ms <= ?", (now_ms,))
            connection.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?)",
                (_hash(secret), identity.token, now_ms, now_ms + SESSION_MS),
            )

        self._control.write(work).result()
        return dataclasses.replace(identity, session=secret)

    def holder(self, secret: str) -> Identity | None:
        """Return the identity of a login's cookie, or None."""
        if len(secret) != _LENGTH or not secret.isascii():
            return None
        sql = (
            "SELECT name, role, owners, id FROM sessions JOIN tokens ON tokens.id = sessions.token"
            " WHERE sessions.hash = ? AND sessions.expires_ms > ? AND tokens.expires_ms > ?"
            " AND revoked_ms IS NULL"
        )
        now_ms = self._clock.now_ms()
        values = (_hash(secret), now_ms, now_ms)
        row = self._control.read(lambda connection: connection.execute(sql, values).fetchone())
        if row is None:
            return None
        role = Role[row["role"].upper()]
        return Identity(
            name=row["name"], role=role, owners=owners_in(row["owners"]), token=row["id"],
            session=secret,
        )  # fmt: skip

    def end(self, secret: str) -> None:
        """Log out."""
        key = _hash(secret)

        def work(connection: Connection) -> None:
            connection.execute("DELETE FROM sessions WHERE hash = ?", (key,))

        self._control.write(work).result()


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
