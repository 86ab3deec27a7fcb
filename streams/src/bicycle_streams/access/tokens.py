"""Tokens for access to the service, with expiry, role and owners.

A token is ``bic_<id>_<secret>`` with a secret of 256 random bits. It is shown once, when it is
created. Only the SHA-256 of the secret is stored; a random secret of this size needs no slow hash.
A token is read from the database with each request, so a revocation by any process takes effect at
once.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bicycle_sdk.clock import Clock
from bicycle_streams.access.control import CONTROL, SERVICE_FOLDER, note_audit
from bicycle_streams.access.database import Connection, Database, DatabaseServer
from bicycle_streams.access.errors import (
    HOME_UNUSABLE,
    TOKEN_LIFETIME_INVALID,
    TOKEN_NAME_INVALID,
    TOKEN_OWNER_INVALID,
    TOKEN_UNKNOWN,
    TOKEN_UNUSABLE,
)
from bicycle_streams.access.opening import database_of
from bicycle_streams.access.roles import Identity, Role

LIFETIME_MS_MIN = 60_000
LIFETIME_MS_MAX = 3_650 * 86_400_000
_NAME_LENGTH_MAX = 60
_NAME = re.compile(r"[\w.-](?:[\w. @-]*[\w.@-])?")
_FORM = re.compile(r"bic_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NO_HASH = bytes(32)


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it may be shown; times are ms since 1970, ``owners`` is None for all."""

    id: str
    name: str
    role: str
    owners: tuple[str, ...] | None
    made_ms: int
    expires_ms: int
    revoked_ms: int | None

    def is_good(self, now_ms: int) -> bool:
        """Return whether the token is valid at a time."""
        return self.revoked_ms is None and now_ms < self.expires_ms

    @property
    def identity(self) -> Identity:
        """The identity of the token's holder."""
        return Identity(
            name=self.name, role=Role[self.role.upper()], owners=self.owners, token=self.id
        )


class Tokens:
    """Makes, lists, revokes and checks tokens.

    Args:
        control: The database; open.
        clock: The time of day.

    Attributes:
        is_remote: Whether a check may wait for a server.
    """

    def __init__(self, control: Database, clock: Clock) -> None:
        self._control = control
        self.is_remote = control.is_remote
        self._clock = clock

    def create(
        self, name: str, *, role: Role, lifetime_ms: int, by: str,
        owners: Sequence[str] | None = None, given: str | None = None,
    ) -> tuple[TokenEntry, str]:  # fmt: skip
        """Create a token; the second value is the token itself, which is not stored.

        A given token is registered instead of a new one. If it is known, its name, role, owners and
        expiry are replaced; a revoked token stays revoked.

        Args:
            name: Name of its user in operations and the audit log, 1 to 60 characters.
            role: Role of the token.
            lifetime_ms: Its lifetime, a minute to ten years.
            by: The caller that creates it, for the audit log.
            owners: Owners whose jobs it may access, None for all. Jobs that it starts belong to
                ``name`` if that is one of the owners, otherwise to the first owner.
            given: The token to register, as an earlier call returned it, also of another home.

        Raises:
            TOKEN_NAME_INVALID: the name cannot be shown.
            TOKEN_LIFETIME_INVALID: the lifetime is out of bounds.
            TOKEN_OWNER_INVALID: an owner has an invalid name.
            TOKEN_UNUSABLE: the given token is malformed, or its id belongs to another token.
        """
        if not _NAME.fullmatch(name) or len(name) > _NAME_LENGTH_MAX:
            problem = (
                "it contains other characters"
                if len(name) <= _NAME_LENGTH_MAX
                else "it is too long"
            )
            raise TOKEN_NAME_INVALID(name=name, problem=problem, length_max=_NAME_LENGTH_MAX)
        if not LIFETIME_MS_MIN <= lifetime_ms <= LIFETIME_MS_MAX:
            raise TOKEN_LIFETIME_INVALID(
                lifetime_ms=lifetime_ms, low_ms=LIFETIME_MS_MIN, high_ms=LIFETIME_MS_MAX
            )
        chosen = None if owners is None else checked_owners(owners)
        form = _FORM.fullmatch(given or f"bic_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}")
        if form is None:
            raise TOKEN_UNUSABLE(problem="it does not have the form bic_ID_SECRET")
        now_ms = self._clock.now_ms()
        entry = TokenEntry(
            id=form[1], name=name, role=role.name.lower(), owners=chosen,
            made_ms=now_ms, expires_ms=now_ms + lifetime_ms, revoked_ms=None,
        )  # fmt: skip
        row = self._control.write(functools.partial(_store, entry, _hash(form[2]), by)).result()
        if row is None:
            raise TOKEN_UNUSABLE(problem=f"another token has the id {entry.id}")
        return _entry(row), form[0]

    def list(self) -> list[TokenEntry]:
        """Return all tokens, the newest first, revoked and expired ones, too."""
        sql = "SELECT * FROM tokens ORDER BY made_ms DESC, rowid DESC"
        rows = self._control.read(lambda connection: connection.execute(sql).fetchall())
        return [_entry(row) for row in rows]

    def revoke(self, token: str, *, by: str) -> TokenEntry:
        """Revoke a token with its logins; repeating it is harmless.

        Raises:
            TOKEN_UNKNOWN: there is no token of this id.
        """
        now_ms = self._clock.now_ms()

        def work(connection: Connection) -> Any:
            sql = "UPDATE tokens SET revoked_ms = ? WHERE id = ? AND revoked_ms IS NULL"
            if connection.execute(sql, (now_ms, token)).rowcount:
                connection.execute("DELETE FROM sessions WHERE token = ?", (token,))
                _note(connection, "token revoke", token, {}, by=by, at_ms=now_ms)
            return connection.execute("SELECT * FROM tokens WHERE id = ?", (token,)).fetchone()

        row = self._control.write(work).result()
        if row is None:
            raise TOKEN_UNKNOWN(token=token)
        return _entry(row)

    def holder(self, text: str) -> Identity | None:
        """Return the identity of a token's holder, or None.

        The secret is compared in constant time, also where there is no such token.
        """
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        found = self._find(form[1])
        kept = bytes(found["hash"]) if found is not None else _NO_HASH
        is_same = hmac.compare_digest(kept, _hash(form[2]))
        if found is None or not is_same:
            return None
        entry = _entry(found)
        return entry.identity if entry.is_good(self._clock.now_ms()) else None

    def is_good(self, token: str) -> bool:
        """Return whether a token of this id is taken now."""
        found = self._find(token)
        return found is not None and _entry(found).is_good(self._clock.now_ms())

    def _find(self, token: str) -> Any:
        sql = "SELECT * FROM tokens WHERE id = ?"
        row: Any = self._control.read(
            lambda connection: connection.execute(sql, (token,)).fetchone()
        )
        return row


@contextmanager
def tokens_of(home: Path, clock: Clock, server: DatabaseServer | None = None) -> Iterator[Tokens]:
    """Yield the tokens of a home for a command, also while its service runs.

    Args:
        home: The home.
        clock: The time of day.
        server: The database server of the home, if it has one.

    Raises:
        DATABASE_UNUSABLE: the database cannot be used.
        DATABASE_SERVER_UNAVAILABLE: the database server cannot be reached.
        HOME_UNUSABLE: the home cannot be created.
    """
    folder = home / SERVICE_FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise HOME_UNUSABLE(path=str(home), reason=error.strerror or str(error)) from error
    with database_of(folder, "control", CONTROL, server=server, synchronous="FULL") as control:
        yield Tokens(control, clock)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def checked_owners(owners: Sequence[str]) -> tuple[str, ...]:
    """Return distinct owners; refuse invalid names.

    Raises:
        TOKEN_OWNER_INVALID: an owner has an invalid name, or the list is empty.
    """
    for owner in owners or ("",):
        if not _NAME.fullmatch(owner) or len(owner) > _NAME_LENGTH_MAX:
            raise TOKEN_OWNER_INVALID(owner=owner, length_max=_NAME_LENGTH_MAX)
    return tuple(dict.fromkeys(owners))


def owners_in(text: str | None) -> tuple[str, ...] | None:
    """Return the owners in a column of the table; None for all."""
    return None if text is None else tuple(json.loads(text))


def _entry(row: Any) -> TokenEntry:
    plain = {name: row[name] for name in TokenEntry.__struct_fields__}
    return TokenEntry(**{**plain, "owners": owners_in(row["owners"])})


def _store(entry: TokenEntry, digest: bytes, by: str, connection: Connection) -> Any:
    """Insert or update a token; return its row, or None if its id has another hash."""
    kept = None if entry.owners is None else json.dumps(entry.owners)
    connection.execute(
        "INSERT INTO tokens (id, name, hash, role, made_ms, expires_ms, owners)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name,"
        " role = excluded.role, expires_ms = excluded.expires_ms, owners = excluded.owners"
        " WHERE tokens.hash = excluded.hash",
        (entry.id, entry.name, digest, entry.role, entry.made_ms, entry.expires_ms, kept),
    )
    facts = {
        "name": entry.name, "role": entry.role, "owners": entry.owners,
        "expires_ms": entry.expires_ms,
    }  # fmt: skip
    sql = "SELECT * FROM tokens WHERE id = ? AND hash = ?"
    row = connection.execute(sql, (entry.id, digest)).fetchone()
    if row is not None:
        _note(connection, "token create", entry.id, facts, by=by, at_ms=entry.made_ms)
    return row


def _note(
    connection: Connection, action: str, token: str, facts: dict[str, Any], *, by: str,
    at_ms: int,
) -> None:  # fmt: skip
    entry = {"actor": by, "address": "", "action": action, "target": token, "outcome": "accepted"}
    note_audit(connection, entry, facts, at_ms=at_ms)
