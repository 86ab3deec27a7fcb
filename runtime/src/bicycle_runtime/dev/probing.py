"""Does a broker answer? One ApiVersions request by hand, then the list of brokers by the client.

ApiVersions is what every client asks first, before it logs in, so it needs no credentials. The
answer comes a little before the broker counts itself among those that can hold topics; hence the
second question.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from pathlib import Path

__all__ = ["answers_api_versions", "serves_metadata"]

_API_VERSIONS, _VERSION, _CORRELATION, _NO_NAME = 18, 0, 20_261, -1
_REQUEST = struct.pack(">hhih", _API_VERSIONS, _VERSION, _CORRELATION, _NO_NAME)
_ANSWER_BYTES_MAX = 1 << 20


def answers_api_versions(
    host: str, port: int, *, ca_path: Path | None = None, timeout_s: float = 2.0
) -> bool:
    """Tell whether a Kafka broker answers there.

    Args:
        host: Where.
        port: Where.
        ca_path: The certificate to trust, for a listener with TLS.
        timeout_s: For each step of the exchange.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as plain:
            if ca_path is None:
                return _asks(plain)
            context = ssl.create_default_context(cafile=str(ca_path))
            with context.wrap_socket(plain, server_hostname=host) as secured:
                return _asks(secured)
    except OSError:
        return False


def _asks(connection: socket.socket) -> bool:
    connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
    (size,) = struct.unpack(">i", _read(connection, 4))
    if not 6 <= size <= _ANSWER_BYTES_MAX:
        return False
    correlation, error = struct.unpack_from(">ih", _read(connection, size))
    return bool(correlation == _CORRELATION and error == 0)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the other end closed the connection")
        data += piece
    return data


def serves_metadata(settings: Mapping[str, str], *, timeout_s: float) -> bool:
    """Tell whether the cluster has a broker that is ready for topics."""
    # Slow to import, and not needed to find out that nothing answers.
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({**settings, "log_level": 0})
    try:
        return bool(client.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False
