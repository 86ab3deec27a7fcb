"""A TCP proxy that can stop forwarding data on its connections without closing them."""

import contextlib
import socket
import threading


class DeafProxy:
    """Forwards connections to a port of this machine; later connections are not deaf."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._deaf: set[socket.socket] = set()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def deaf_count(self) -> int:
        """The number of connections that were made deaf."""
        return len(self._deaf) // 2

    def make_deaf(self) -> None:
        """Forward nothing more over the present connections."""
        self._deaf.update(self._open)

    def close(self) -> None:
        """Close all connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if source not in self._deaf:
                    target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
