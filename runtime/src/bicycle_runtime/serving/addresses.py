"""The loopback rule: who can reach the service is on this machine.

A job is code that runs as the service's user, so that anyone who may start one may do all that
this user may. Addresses that others reach are refused before anything listens.
"""

from __future__ import annotations

import ipaddress
import socket

from bicycle_runtime.serving.errors import ADDRESS_REFUSED, ADDRESS_TAKEN

__all__ = ["hosts_of", "listen"]

_BACKLOG = 128


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a loopback address.

    Args:
        host: An address, or a name all of whose addresses are loopback ones.
        port: 0 to 65,535; 0 takes any that is free.

    Raises:
        ADDRESS_REFUSED: others could reach the address.
        ADDRESS_TAKEN: the address is none, or is taken.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ADDRESS_TAKEN(host=host, port=port, reason=str(error)) from error
    for _family, _kind, _protocol, _name, place in found:
        address = ipaddress.ip_address(str(place[0]).partition("%")[0])
        if not address.is_loopback:
            text = "any address of this machine" if address.is_unspecified else str(address)
            raise ADDRESS_REFUSED(host=host, port=port, found=text)
    family, kind, protocol, _name, place = found[0]
    # With its protocol: asyncio sends small pieces at once only where it knows that this is TCP,
    # and an answer would else wait 40 ms between head and body.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ADDRESS_TAKEN(host=host, port=port, reason=error.strerror or str(error)) from error
    return listener


def hosts_of(listener: socket.socket, host: str) -> list[str]:
    """Return what requests may call a service that listens there, the best for people first."""
    address, port = listener.getsockname()[:2]
    literal = f"[{address}]" if ":" in address else address
    names = dict.fromkeys([literal, "localhost", host.lower()])
    return [f"{name}:{port}" for name in names if ":" not in name or name.startswith("[")]
