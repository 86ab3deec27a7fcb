"""Opening a listening TCP socket, with an error that names the port."""

from __future__ import annotations

import logging
import socket

from bicycle_runtime.base.logging import log_event
from bicycle_runtime.connectors.errors import PortUnavailableError

__all__ = ["CLIENT_BACKLOG", "open_listener"]

_logger = logging.getLogger(__name__)
CLIENT_BACKLOG = 128


def open_listener(vertex_id: str, host: str, port: int) -> socket.socket:
    """Return a non-blocking socket that listens; its real port is logged (``port`` 0 takes any).

    Raises:
        PortUnavailableError: the address is in use, or is not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=CLIENT_BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PortUnavailableError(vertex=vertex_id, host=host, port=port, reason=reason) from error
    listener.setblocking(False)
    log_event(
        _logger,
        "socket_listening",
        vertex=vertex_id,
        host=host,
        port=listener.getsockname()[1],
    )
    return listener
