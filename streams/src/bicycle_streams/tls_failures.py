"""Advice about failed TLS handshakes: which option or certificate to correct.

Libraries wrap the errors of OpenSSL, so their texts are compared. Some libraries lose the reason:
a server that rejects a client sends it after the handshake, and then resets the connection on which
the client has written in between. ``refused_handshake`` connects again, writes nothing, and reads
the reason.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

_LOOK_S = 0.05
_CA, _CLIENT = "ca_file", "cert_file and key_file"


def tls_hint(error: BaseException | str, *, ca: str = _CA, client: str = _CLIENT) -> str | None:
    """Return how to correct a failed handshake, or None if TLS is not the cause.

    Args:
        error: The error of a library, with its causes; or its text.
        ca: The option with the trusted certificates.
        client: The options with the certificate of this client.

    Example:
        >>> tls_hint("[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired")
        'the certificate of the server has expired: renew it there'
        >>> tls_hint("connection refused") is None
        True
    """
    text = error if isinstance(error, str) else " ".join(map(str, _causes(error)))
    found = text.lower().replace("_", " ")
    for marks, advice in (
        (
            ("broker certificate could not be verified",),  # The client of Kafka hides the reason.
            f"the certificate of the broker has expired, names another host, or is not trusted: "
            f"compare it with the address, and {ca} with its authority",
        ),
        (("certificate has expired",), "the certificate of the server has expired: renew it there"),
        (("not yet valid",), "the certificate of the server is not valid yet: compare the clocks"),
        (
            ("hostname mismatch", "ip address mismatch", "is not valid for"),
            "the certificate of the server names another host: use its name in the address",
        ),
        (
            ("certificate required", "peer did not return a certificate"),
            f"the server asks for a certificate of the client: set {client}",
        ),
        (  # TLS 1.2 has no alert of its own for a missing certificate.
            ("alert handshake failure",),
            f"the server rejected the handshake: if it asks for a certificate of the client, set "
            f"{client}",
        ),
        (
            ("alert unknown ca", "alert bad certificate", "alert certificate expired"),
            f"the server rejected the certificate of the client: correct {client}",
        ),
        (
            ("certificate verify failed", "self-signed", "unable to get local issuer"),
            f"the certificate of the server is not trusted: set {ca} to that of its authority",
        ),
        (
            ("wrong version number", "record layer failure", "http request"),
            "the server does not speak TLS at this port: correct the address",
        ),
    ):
        if any(mark in found for mark in marks):
            return advice
    return None


def refused_handshake(
    host: str, port: int, context: ssl.SSLContext, *, timeout_s: float
) -> Exception | None:  # fmt: skip
    """Return the error of a TLS handshake, or None if TLS is not the cause. Blocks.

    Args:
        host: The host of the server.
        port: The port of the server.
        context: The TLS context of a client.
        timeout_s: Time limit of each step. A server that accepts the client and sends no ticket of
            TLS is silent for so long.
    """
    try:
        with (
            socket.create_connection((host, port), timeout=timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            secured.settimeout(min(timeout_s, _LOOK_S))
            looks = max(1, round(timeout_s / _LOOK_S))
            while looks > 0 and not _is_accepted(secured):
                looks -= 1
                with contextlib.suppress(TimeoutError):
                    secured.recv(1)
                    break
    except OSError as error:
        return error if tls_hint(error) else None
    return None


def _is_accepted(secured: ssl.SSLSocket) -> bool:
    """Return whether the server has accepted this client.

    TLS 1.2 checks the certificate of a client within the handshake. In TLS 1.3, the server sends a
    ticket afterwards, which a read stores in the session.
    """
    session = secured.session
    return secured.version() != "TLSv1.3" or (session is not None and session.has_ticket)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
