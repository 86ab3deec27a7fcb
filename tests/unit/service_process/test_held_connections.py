"""Connections that are held open: by strangers, by one token, and by all callers together."""

import contextlib
import signal
import socket
import ssl
import time
from urllib.parse import urlsplit

import pytest

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState
from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.connections import ConnectionOptions
from bicycle_streams.access.roles import Role
from bicycle_streams.access.tokens import tokens_of
from tests.unit.jobs.job_samples import put_job
from tests.unit.service_process.served import Served
from tests.waiting import PATIENCE_S, until

BOUNDS = ConnectionOptions()
ROUNDS = 5


@pytest.fixture
def door(tmp_path):
    home = Home(tmp_path / "home")
    put_job(home, "job", state=JobState.FINISHED, ended_ms=1)
    found = Served(home.path, needs_login=True)
    with tokens_of(home.path, SystemClock()) as tokens:
        found.tokens = {
            role: tokens.create(role.name, role=role, lifetime_ms=10**8, by="test")[1]
            for role in (Role.VIEWER, Role.ADMIN)
        }
    found.start()
    yield found
    found.end(signal.SIGKILL)


class Held:
    """Connections that are held open, and opened again when they are cut."""

    def __init__(self, url, first):
        self.port = urlsplit(url).port
        self.first = first
        self.lines = []

    def fill(self, count):
        for line in [line for line in self.lines if not is_open(line)]:
            line.close()
            self.lines.remove(line)
        while len(self.lines) < count:
            line = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
            line.sendall(self.first)
            self.lines.append(line)

    def close(self):
        for line in self.lines:
            line.close()


def is_open(line):
    line.setblocking(False)
    try:
        return line.recv(1 << 16) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def codes_of_root(door):
    words = {"authorization": f"Bearer {door.tokens[Role.ADMIN]}"}
    return {
        door.ask("GET", "/health")[0],
        door.ask("GET", "/api/v1/jobs", **words)[0],
        door.ask("POST", "/api/v1/jobs/job/stop", {}, **words)[0],
    }


def test_connections_without_a_request_keep_nobody_out(door):
    with contextlib.closing(Held(door.url, b"GET / HT")) as held:
        for _ in range(ROUNDS):
            held.fill(2 * BOUNDS.strangers_per_address)
            assert codes_of_root(door) <= {200, 202, 409}
        until(
            lambda: sum(map(is_open, held.lines)) <= BOUNDS.strangers_per_address,
            "the end of those that are too many",
        )


def test_streams_of_one_token_keep_nobody_out_and_end_at_a_bound(door):
    viewer = door.tokens[Role.VIEWER]
    head = f"GET /api/v1/events HTTP/1.1\r\nHost: {urlsplit(door.url).netloc}\r\n"
    first = f"{head}Authorization: Bearer {viewer}\r\n\r\n".encode()
    with contextlib.closing(Held(door.url, first)) as held:
        held.fill(100)
        answers = [line.recv(200).split(b"\r\n")[0] for line in held.lines]

        assert codes_of_root(door) <= {200, 202, 409}
        assert door.ask("GET", "/api/v1/jobs", authorization=f"Bearer {viewer}")[0] == 200

    taken = sum(b" 200 " in each for each in answers)
    assert taken == BOUNDS.streams_per_identity
    assert sum(b" 429 " in each for each in answers) == 100 - taken


def test_a_stream_that_ends_makes_room_for_another(door):
    viewer = door.tokens[Role.VIEWER]
    head = f"GET /live/dashboard HTTP/1.1\r\nHost: {urlsplit(door.url).netloc}\r\n"
    first = f"{head}Authorization: Bearer {viewer}\r\n\r\n".encode()
    with contextlib.closing(Held(door.url, first)) as held:
        held.fill(BOUNDS.streams_per_identity)
        assert all(b" 200 " in line.recv(200) for line in held.lines)
        held.lines.pop().close()

        def is_taken():
            with contextlib.closing(Held(door.url, first)) as one:
                one.fill(1)
                return b" 200 " in one.lines[0].recv(200)

        until(is_taken, "room for another stream")


def test_a_body_that_nobody_is_known_to_send_gives_way(door):
    host = urlsplit(door.url).netloc
    head = (
        f"POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\n"
    )
    with contextlib.closing(Held(door.url, head.encode())) as held:
        for _ in range(ROUNDS):
            held.fill(2 * BOUNDS.strangers_per_address)
            assert codes_of_root(door) <= {200, 202, 409}


@pytest.mark.extended
def test_handshakes_that_never_end_keep_nobody_out(tmp_path, certificates):
    home = Home(tmp_path / "home")
    cert, key = (str(certificates / f"service.{end}") for end in ("pem", "key"))
    found = Served(home.path, needs_login=True, tls_cert=cert, tls_key=key).start()
    port = urlsplit(found.url).port
    context = ssl.create_default_context(cafile=str(certificates / "service.pem"))

    def health():
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as line,
        ):
            line.sendall(f"GET /health HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            return line.recv(100).split(b"\r\n")[0]

    try:
        with contextlib.closing(Held(found.url, b"\x16\x03\x01")) as held:
            for _ in range(ROUNDS):
                held.fill(2 * BOUNDS.strangers_per_address)
                assert health() == b"HTTP/1.1 200 OK"
    finally:
        found.end(signal.SIGKILL)


@pytest.mark.extended
def test_the_reserve_answers_stop_while_all_else_is_taken(tmp_path):
    """Callers that need no token have no bound of their own: they may take the whole."""
    put_job(Home(tmp_path / "home"), "job", state=JobState.FINISHED, ended_ms=1)
    found = Served(tmp_path / "home").start()
    host = urlsplit(found.url).netloc
    head = (
        f"POST /api/v1/jobs HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        "Content-Length: 9\r\n\r\n{"
    )
    try:
        with contextlib.closing(Held(found.url, head.encode())) as held:
            held.fill(BOUNDS.known)
            until(lambda: found.ask("GET", "/api/v1/jobs")[0] == 503, "the service is full")
            began = time.monotonic()
            stopped = found.ask("POST", "/api/v1/jobs/job/stop", {})[0]
            health = found.ask("GET", "/health")[0]
    finally:
        found.end(signal.SIGKILL)

    assert (stopped, health) == (202, 200)
    assert time.monotonic() - began < PATIENCE_S
