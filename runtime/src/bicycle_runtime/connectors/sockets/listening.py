"""Listening TCP sockets: opened with clear errors, served by a thread each.

A process that is out of file descriptors cannot even refuse a client: the connection waits and
wakes the listener again and again. So each door keeps one descriptor in reserve for that, and takes
no client that would use one of the last descriptors: the process needs them for its work.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable

from bicycle_runtime.base.open_files import is_kept_for_work
from bicycle_runtime.connectors.errors import PORT_UNAVAILABLE
from bicycle_sdk.logging import log_event

_logger = logging.getLogger(__name__)
CLIENT_BACKLOG = 128
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 0.05


def open_listener(vertex_id: str, host: str, port: int) -> socket.socket:
    """Return a non-blocking listening socket; its real port is logged (0: any).

    Raises:
        PORT_UNAVAILABLE: the address is in use, or is not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=CLIENT_BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PORT_UNAVAILABLE(vertex=vertex_id, host=host, port=port, reason=reason) from error
    listener.setblocking(False)
    log_event(
        _logger,
        "socket_listening",
        vertex=vertex_id,
        host=host,
        port=listener.getsockname()[1],
    )
    return listener


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


class SocketServer(ABC):
    """A thread that serves the clients of one listener from ``start`` to ``stop``.

    Args:
        name: Of the thread.
        vertex_id: For the log.
        listener: Listens already, non-blocking; closed by ``stop``.
        clients_max: Clients that may be connected.
    """

    def __init__(
        self, name: str, vertex_id: str, listener: socket.socket, clients_max: int
    ) -> None:
        self.port: int = listener.getsockname()[1]
        self._vertex_id = vertex_id
        self._door = Door(vertex_id, listener, clients_max)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._is_stopping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def refused_count(self) -> int:
        """The number of refused clients."""
        return self._door.refused_count

    def start(self) -> None:
        """Begin to accept clients."""
        self._thread.start()

    def stop(self) -> None:
        """Close everything; returns when the thread has ended."""
        self._is_stopping = True
        self._wake()
        self._thread.join()
        for client in [*self._connections(), self._wake_in, self._wake_out]:
            client.close()
        self._door.close()
        self._selector.close()

    @abstractmethod
    def _connections(self) -> Iterable[socket.socket]:
        """Return the clients that are connected."""

    @abstractmethod
    def _turn(self) -> None:
        """Wait until a socket is ready, and serve it; called until ``stop``."""

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._turn()
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver raises it.
            self._error = error

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_in.send(b"x")


def _reserve() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
