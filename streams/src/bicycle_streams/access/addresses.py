"""The loopback rule: callers are on this machine, or authenticated over TLS.

A job is code that runs as the service's user, so that anyone who may start one may do all that
this user may. Addresses that others reach are refused before anything listens, unless there is a
certificate, and somebody who may come in.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from typing import Any

from bicycle_streams.access.accepting import ListeningSocket
from bicycle_streams.access.errors import ADDRESS_REFUSED, ADDRESS_TAKEN

_BACKLOG = 128
_NAME = re.compile(r"([^:]+|\[.+\])(?::(\d{1,5}))?")


def listen(host: str, port: int, *, missing: str | None) -> ListeningSocket:
    """Return a socket that listens on an address, and counts connections.

    Args:
        host: An address, or a name.
        port: 0 to 65,535; 0 takes any that is free.
        missing: What an address lacks that others reach; None when it lacks nothing.

    Raises:
        ADDRESS_REFUSED: others could reach the address, and something is missing.
        ADDRESS_TAKEN: the address is none, or is taken.
    """
    family, kind, protocol, each = require_safe(host, port, missing=missing)
    # With its protocol: asyncio sends small pieces at once only where it knows that this is TCP,
    # and an answer would else wait 40 ms between head and body.
    listener = ListeningSocket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(each)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ADDRESS_TAKEN(host=host, port=port, reason=error.strerror or str(error)) from error
    return listener


def require_safe(host: str, port: int, *, missing: str | None) -> tuple[int, int, int, Any]:
    """Return the first resolved address: family, kind, protocol and socket address.

    Raises:
        ADDRESS_REFUSED: others could reach the address, and something is missing.
        ADDRESS_TAKEN: the address is none.
    """
    found = _socket_addresses(host, port)
    for each in found:
        address = ipaddress.ip_address(str(each[3][0]).partition("%")[0])
        if not address.is_loopback and missing is not None:
            text = "all addresses of this machine" if address.is_unspecified else str(address)
            raise ADDRESS_REFUSED(host=host, port=port, found=text, missing=missing)
    return found[0]


def is_loopback(host: str, port: int) -> bool:
    """Return whether only this machine reaches an address.

    Raises:
        ADDRESS_TAKEN: the address is none.
    """
    texts = [str(each[3][0]).partition("%")[0] for each in _socket_addresses(host, port)]
    return all(ipaddress.ip_address(text).is_loopback for text in texts)


def hosts_of(
    listener: socket.socket, host: str, *, names: Sequence[str] = (), is_tls: bool = False
) -> list[str]:
    """Return the host names for requests to a service, the most readable first.

    Args:
        listener: The socket.
        host: What it was asked to listen on.
        names: Further names, which come first. A name may have the port of a proxy.
        is_tls: Whether it speaks TLS: browsers do not tell the port where it is the usual one.
    """
    address, port = listener.getsockname()[:2]
    literal = f"[{address}]" if ":" in address else address
    known = dict.fromkeys([*(n.lower() for n in names), literal, "localhost", host.lower()])
    pairs = [(found[1], int(found[2] or port)) for found in map(_NAME.fullmatch, known) if found]
    usual = 443 if is_tls else 80
    return [f"{name}:{each}" for name, each in pairs] + [n for n, each in pairs if each == usual]


def _socket_addresses(host: str, port: int) -> list[tuple[int, int, int, Any]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ADDRESS_TAKEN(host=host, port=port, reason=str(error)) from error
    return [(family, kind, protocol, each) for family, kind, protocol, _, each in found]
