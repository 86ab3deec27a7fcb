import contextlib
import socket
import struct
import threading

import pytest

from bicycle_runtime.dev.kafka_broker import answers_api_versions


@contextlib.contextmanager
def server(answer):
    """Accept one connection, read a request, send `answer(correlation)`, close."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection:
                request = connection.recv(1024)
                connection.sendall(answer(struct.unpack_from(">i", request, 8)[0]))

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def good(correlation):
    body = struct.pack(">ihi", correlation, 0, 0)
    return struct.pack(">i", len(body)) + body


BAD = {
    "another correlation": lambda correlation: good(correlation + 1),
    "an error": lambda correlation: struct.pack(">iihi", 10, correlation, 35, 0),
    "nothing": lambda _: b"",
    "half an answer": lambda correlation: good(correlation)[:7],
    "another protocol": lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a size of zero": lambda _: bytes(8),
}


def test_an_answer_to_the_request_counts():
    with server(good) as port:
        assert answers_api_versions("127.0.0.1", port)


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD)
def test_another_answer_does_not_count(answer):
    with server(answer) as port:
        assert not answers_api_versions("127.0.0.1", port)


def test_a_program_that_listens_and_is_silent_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        assert not answers_api_versions("127.0.0.1", port, timeout_s=0.2)


def test_where_nobody_listens_nobody_answers():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert not answers_api_versions("127.0.0.1", port)
