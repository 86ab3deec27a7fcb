"""Free ports for a broker that may be down, and must find its port free again.

The ports that the system gives to outgoing connections are avoided: while a broker is down, a
client that keeps trying could be given the very port as its own end, and hold it.
"""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

_LOW = 20_000
_OUTGOING_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_OUTGOING_LOW = 32_768  # Linux's default, for systems without this setting.
_TRY_COUNT_MAX = 200


def is_free(host: str, port: int) -> bool:
    """Return whether a program could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Connections that ended a moment ago do not count: a broker does not mind them.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def choose_port(host: str, source: random.Random, *, besides: int = 0) -> int:
    """Return a free port, other than ``besides``, outside of the range of clients.

    Raises:
        OSError: none was found.
    """
    high = max(_outgoing_low(), _LOW + 1)
    for _ in range(_TRY_COUNT_MAX):
        port = source.randrange(_LOW, high)
        if port != besides and is_free(host, port):
            return port
    raise OSError(f"no free port of {host} between {_LOW} and {high}")


def _outgoing_low() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_OUTGOING_FILE.read_text(encoding="utf-8").split()[0])
    return _OUTGOING_LOW
