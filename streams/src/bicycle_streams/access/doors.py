"""Settings of the service's doors, passed from ``bicycle up`` to its process."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.database import DatabaseServer, server_of
from bicycle_streams.access.errors import TLS_INCOMPLETE, TLS_UNUSABLE
from bicycle_streams.access.roles import Identity, client_of
from bicycle_streams.access.tokens import tokens_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """The access to the service, and its requirements for clients.

    Attributes:
        needs_login: Whether a token is demanded on loopback addresses, too.
        tls_cert: File with the certificate of the service and those behind it, PEM.
        tls_key: File with its private key, PEM.
        tls_client_ca: File with the certificates that may vouch for clients, PEM.
        client_roles: Common name of a client's certificate -> its role, and behind a colon the
            owners that it counts for; see ``client_of``.
        names: What requests may call the service, beside the address.
        slots: Slots of Spark masters by URL, or the pages that tell them: see ``Slots``.
        grpc_port: Port for gRPC; 0 takes any that is free, None is no gRPC.
        database: URL of the PostgreSQL database of the home; None for SQLite files in the home.
        database_password: Reference to its password, as ``Secret.parse`` reads it.
    """

    needs_login: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    client_roles: Mapping[str, str] = field(default_factory=dict)
    names: Sequence[str] = ()
    slots: Mapping[str, int | str] = field(default_factory=dict)
    grpc_port: int | None = None
    database: str | None = None
    database_password: str | None = None

    @property
    def database_server(self) -> DatabaseServer | None:
        """The database server of the home, or None."""
        return server_of(self.database, self.database_password)

    @property
    def clients(self) -> dict[str, Identity]:
        """The identities of client certificates, by common name."""
        return {name: client_of(name, word) for name, word in self.client_roles.items()}

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context (TLS 1.2 or newer), or None.

        Raises:
            TLS_INCOMPLETE: an option lacks the one that belongs to it.
            TLS_UNUSABLE: a file cannot be read, or is not what it is for.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            raise TLS_INCOMPLETE(missing="--tls-key" if self.tls_cert else "--tls-cert")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise TLS_INCOMPLETE(missing="--tls-cert")
        if bool(self.client_roles) != (self.tls_client_ca is not None):
            missing = "--tls-client-ca" if self.client_roles else "--client-role"
            raise TLS_INCOMPLETE(missing=missing)
        if self.tls_cert is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key, password="")
            if self.tls_client_ca is not None:
                context.load_verify_locations(self.tls_client_ca)
                context.verify_mode = ssl.CERT_OPTIONAL  # Others may send a token.
        except (OSError, ValueError) as error:  # An SSLError is an OSError.
            files = ", ".join(filter(None, (self.tls_cert, self.tls_key, self.tls_client_ca)))
            raise TLS_UNUSABLE(files=files, reason=str(error)) from error
        return context


def missing_of(home: Path, doors: Doors) -> str | None:
    """Return the missing protection of a reachable address, or None."""
    if doors.tls_cert is None:
        return "TLS has no certificate"
    if doors.client_roles:
        return None
    with tokens_of(home, SystemClock(), doors.database_server) as tokens:
        now_ms = SystemClock().now_ms()
        is_any = any(token.is_good(now_ms) for token in tokens.list())
    return None if is_any else "no token exists, so no client could log in"


def common_name(certificate: Mapping[str, Any] | None) -> str:
    """Return the common name in a checked certificate, empty without a certificate."""
    words = [word for words in (certificate or {}).get("subject", ()) for word in words]
    return next((str(value) for name, value in words if name == "commonName"), "")
