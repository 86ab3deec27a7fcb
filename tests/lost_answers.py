"""A relay in front of a server that loses answers: the server acts, the client gets no success.

So a commit lands while the client gets an error, a time-out, or a 503. The relay is a process of
its own, since some clients hold the interpreter while they wait. ``python -m tests.lost_answers
PORT`` tells its port, takes patterns from its input, and tells what it has lost.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import sys
import threading

from tests.waiting import PATIENCE_S

_CHUNK_BYTES = 1 << 16
_ARMED, _LOST, _SILENCE = "armed", "lost", "silence"


class LostAnswers:
    """Passes bytes to a port of this machine and back; ``port`` is its own.

    Args:
        target: The server's port.
    """

    def __init__(self, target: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.lost_answers", str(target)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._told: queue.Queue[str] = queue.Queue()
        self.lost_count = 0
        threading.Thread(target=self._listen, daemon=True).start()
        self.port = int(self._told.get(timeout=PATIENCE_S))

    def lose(self, pattern: bytes, *, answer: bytes | None = b"") -> None:
        """Lose the answer to the next request that contains the pattern.

        Args:
            pattern: Bytes of the request.
            answer: What the client gets before its connection is closed; None: it gets nothing, and
                the connection stays open.
        """
        given = _SILENCE if answer is None else answer.hex()
        self._process.stdin.write(f"{pattern.hex()}:{given}\n")
        self._process.stdin.flush()
        assert self._told.get(timeout=PATIENCE_S) == _ARMED

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()

    def _listen(self) -> None:
        with self._process.stdout as told:
            for line in told:
                if line.strip() == _LOST:
                    self.lost_count += 1
                else:
                    self._told.put(line.strip())


class _Relay:
    def __init__(self, target: int) -> None:
        self._target = target
        self._pattern = b""
        self._answer: bytes | None = b""

    def run(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        _tell(str(listener.getsockname()[1]))
        for line in sys.stdin:
            pattern, given = line.strip().split(":")
            self._answer = None if given == _SILENCE else bytes.fromhex(given)
            self._pattern = bytes.fromhex(pattern)
            _tell(_ARMED)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            client, _ = listener.accept()
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            is_losing = threading.Event()
            for pump in (self._requests, self._answers):
                words = (client, server, is_losing)
                threading.Thread(target=pump, args=words, daemon=True).start()

    def _requests(
        self, client: socket.socket, server: socket.socket, is_losing: threading.Event
    ) -> None:
        tail = b""
        with contextlib.suppress(OSError):
            while data := client.recv(_CHUNK_BYTES):
                if self._pattern and self._pattern in tail + data:
                    self._pattern = b""
                    is_losing.set()
                tail = (tail + data)[-256:]
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _answers(
        self, client: socket.socket, server: socket.socket, is_losing: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(_CHUNK_BYTES):
                if is_losing.is_set():
                    _tell(_LOST)
                    if self._answer is None:
                        return  # The client waits as long as it likes.
                    client.sendall(self._answer)
                    break
                client.sendall(data)
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _Relay(int(sys.argv[1])).run()
