"""A broker that can make Kafka's client deaf: the client never reaches a broker again."""

import contextlib
import socket
import struct
import threading
import time

from confluent_kafka.admin import AdminClient

TOPIC = "orders"
# Requests of which the client may use these versions; all but metadata are answered by the mock.
VERSIONS = {0: (3, 7), 1: (4, 11), 2: (1, 2), 3: (4, 4), 18: (0, 0), 22: (0, 1)}
API_VERSIONS, METADATA = 18, 3
UNSUPPORTED_VERSION = 35
# Without it, the client would ask its first address again, as librdkafka does but for issue 5301.
SETTINGS = {
    "metadata.recovery.strategy": "none",
    "topic.metadata.refresh.interval.ms": "200",
}


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (more := connection.recv(count - len(data))):
            raise EOFError
        data += more
    return data


class Broker:
    """A broker in front of librdkafka's mock cluster; it can name a wrong port of itself."""

    def __init__(self) -> None:
        self._mock = AdminClient({"test.mock.num.brokers": "1", "log_level": 0})
        [behind] = self._mock.list_topics(TOPIC, timeout=10).brokers.values()
        self._behind = (behind.host, behind.port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self.named_port = self._server.getsockname()[1]
        self.answer_count = 0
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def make_deaf(self, client_count: int = 1) -> None:
        """Name a port without a broker to all clients, and close their connections."""
        with socket.create_server(("127.0.0.1", 0)) as other:
            self.named_port = other.getsockname()[1]
        count = self.answer_count
        while self.answer_count < count + client_count:
            time.sleep(0.05)
        self.hang_up()

    def hang_up(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()
        self.hang_up()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with (
            contextlib.suppress(EOFError, OSError),
            connection,
            socket.create_connection(self._behind) as behind,
        ):
            while True:
                size = read(connection, 4)
                request = read(connection, *struct.unpack(">i", size))
                kind, version, number = struct.unpack(">hhi", request[:8])
                if kind in (API_VERSIONS, METADATA):
                    body = self._versions(version) if kind == API_VERSIONS else self._metadata()
                    answer = struct.pack(">i", number) + body
                else:
                    behind.sendall(size + request)
                    answer = read(behind, *struct.unpack(">i", read(behind, 4)))
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _versions(self, version: int) -> bytes:
        if version > 0:
            return struct.pack(">hi", UNSUPPORTED_VERSION, 0)
        rows = [struct.pack(">hhh", kind, *span) for kind, span in VERSIONS.items()]
        return struct.pack(">hi", 0, len(rows)) + b"".join(rows)

    def _metadata(self) -> bytes:
        self.answer_count += 1
        broker = (
            struct.pack(">ii", 1, 1) + text("127.0.0.1") + struct.pack(">ih", self.named_port, -1)
        )
        topic = struct.pack(">ih", 1, 0) + text(TOPIC) + b"\0"
        partition = struct.pack(">ihiiiiii", 1, 0, 0, 1, 1, 1, 1, 1)
        return (
            struct.pack(">i", 0) + broker + text("mock") + struct.pack(">i", 1) + topic + partition
        )
