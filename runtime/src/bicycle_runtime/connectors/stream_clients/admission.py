"""The admission of clients of a listening TCP socket.

A process that is out of file descriptors cannot even refuse a client: the connection waits and
wakes the listener again and again. So each door keeps one descriptor in reserve for that, and takes
no client that would use one of the last descriptors: the process needs them for its work.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading

from bicycle_runtime.base.open_files import is_kept_for_work
from bicycle_sdk.logging import log_event

_logger = logging.getLogger(__name__)
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 0.05


class Door:
    """The admission of clients, up to a maximum; others are refused.

    Args:
        vertex_id: For the log.
        listener: Listens already, non-blocking; closed by ``close``.
        clients_max: Clients that may be connected.
    """

    def __init__(self, vertex_id: str, listener: socket.socket, clients_max: int) -> None:
        self.listener = listener
        self.refused_count = 0
        self._vertex_id = vertex_id
        self._clients_max = clients_max
        self._reserve: int | None = _reserve()

    def admit(self, client_count: int) -> tuple[socket.socket, str] | None:
        """Return a waiting client and its address, or None if it left or was refused.

        Args:
            client_count: Clients that are connected now.
        """
        try:
            client, address = self.listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as error:
            if error.errno not in _OUT_OF_RESOURCES:
                raise
            self._turn_away(error.strerror or str(error))
            return None
        if is_kept_for_work(client.fileno()):
            client.close()
            self._note_refused("too many files are open")
            return None
        if client_count >= self._clients_max:
            client.close()
            self._note_refused(f"clients_max is {self._clients_max}")
            return None
        client.setblocking(False)
        log_event(_logger, "socket_client_connected", vertex=self._vertex_id, client=str(address))
        return client, str(address)

    def close(self) -> None:
        """Close the listener."""
        self.listener.close()
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    def _turn_away(self, reason: str) -> None:
        """Accept a client with the descriptor in reserve, to close its connection at once."""
        if self._reserve is None:
            threading.Event().wait(_PAUSE_S)  # Another one took it; the client continues to wait.
        else:
            os.close(self._reserve)
            self._reserve = None
            with contextlib.suppress(OSError):  # It left, or the descriptor is taken already.
                self.listener.accept()[0].close()
                self._note_refused(reason)
        self._reserve = self._reserve_again()

    def _reserve_again(self) -> int | None:
        with contextlib.suppress(
            OSError
        ):  # The next client is turned away as soon as there is one.
            return _reserve()
        return None

    def _note_refused(self, reason: str) -> None:
        """Count a refused client; log the first, and then increasingly rarely."""
        self.refused_count += 1
        if self.refused_count & (self.refused_count - 1) == 0:
            log_event(
                _logger, "socket_client_refused", level=logging.WARNING, vertex=self._vertex_id,
                reason=reason, refused_count=self.refused_count,
            )  # fmt: skip


def _reserve() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
