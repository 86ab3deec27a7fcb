"""How many clients a socket serves, what becomes of the others, and who can reach it."""

import contextlib
import errno
import gc
import logging
import os
import resource
import socket
from pathlib import Path

import pytest

from bicycle_runtime.base.open_files import has_room
from bicycle_runtime.connectors.stream_clients.admission import Door
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.testing.connectors.running import (
    SinkRun,
    SourceRun,
    eventually,
    services_in,
    values_of,
)
from bicycle_sdk.connectors import socket_sink, socket_source
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.stream_options import websocket_sink, websocket_source
from tests.own_process import run_alone

HOST = "127.0.0.1"
KEPT = 64  # Descriptors for other work than clients, if the limit is at least 4 * KEPT.


@contextlib.contextmanager
def serving(kind, folder, **properties):
    """Run a socket connector without saying where it listens."""
    spec = ConnectorSpec(
        vertex_id="v", connector_type="socket", properties={"port": 0, **properties}
    )
    run = (SourceRun if kind == "source" else SinkRun)(spec, services_in(folder)).start()
    try:
        yield getattr(run, kind), run
    finally:
        run.stop() if kind == "source" else run.sink.stop()


@pytest.fixture(params=["source", "sink"])
def served(request, tmp_path):
    """Start a connector of both kinds."""
    with contextlib.ExitStack() as stack:
        yield lambda **properties: stack.enter_context(
            serving(request.param, tmp_path, **properties)
        )


def connected(connector, client=None):
    client = client or socket.socket()
    client.settimeout(20)
    client.connect((HOST, connector.port))
    return client


def is_refused(client):
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


@contextlib.contextmanager
def descriptors_left(count):
    """Lower the limit of open files, so that this process can open ``count`` more.

    The limit is above all descriptors that are open, so the free ones have the highest numbers.
    """
    gc.collect()  # Forgotten files would make room later.
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    limit = max(highest + 1 + count, 4 * KEPT)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    filling = []
    try:
        with contextlib.suppress(OSError):
            while True:
                filling.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(filling.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in filling:
            os.close(descriptor)


def test_clients_beyond_the_maximum_are_refused_and_counted_until_one_leaves(served, caplog):
    connector, _ = served(clients_max=2)
    with caplog.at_level(logging.WARNING):
        first, second = connected(connector), connected(connector)
        surplus = [connected(connector) for _ in range(5)]
        assert all(is_refused(client) for client in surplus)
        eventually(lambda: connector.refused_count == 5)
        # Told at the first, second and fourth.
        assert caplog.messages.count("socket_client_refused") == 3
        first.close()

    def is_admitted():
        with contextlib.closing(connected(connector)) as client:
            client.settimeout(0.2)
            try:
                return client.recv(1) != b""
            except TimeoutError:
                return True
            except ConnectionError:
                return False

    eventually(is_admitted)
    for client in [second, *surplus]:
        client.close()


@pytest.mark.parametrize("kind", ["source", "sink"])
@pytest.mark.parametrize("check", ["few", "none"])
def test_a_socket_that_is_out_of_descriptors_refuses_clients_and_goes_on(check, kind, tmp_path):
    assert "socket_client_refused" in run_alone(check_descriptors, check, kind, str(tmp_path))


def check_descriptors(check, kind, folder):
    logging.basicConfig(level=logging.WARNING)
    with serving(kind, Path(folder)) as (connector, run):
        {"few": check_few_descriptors, "none": check_no_descriptor}[check](connector, run)


def check_few_descriptors(connector, run):
    clients = [socket.socket() for _ in range(6)]
    with descriptors_left(KEPT + 2):
        for client in clients:
            connected(connector, client)
        eventually(lambda: connector.refused_count == 4)
        assert has_room(KEPT - 8), "clients took what other work needs"
    assert sum(is_refused(client) for client in clients[2:]) == 4
    last = connected(connector)
    if isinstance(run, SourceRun):
        for client in [*clients[:2], last]:
            client.sendall(b"line\n")
        eventually(lambda: run.source.poll().lag.byte_count == 15)
        assert values_of(run.drain()) == ["line"] * 3
    else:
        eventually(lambda: connector.client_count == 3)
        run.run_epoch([["line"]])
        run.publish()
        assert [client.recv(9) for client in [*clients[:2], last]] == [b"line\n"] * 3
    for client in [*clients, last]:
        client.close()


def check_no_descriptor(connector, _run):
    clients = [socket.socket() for _ in range(3)]
    with descriptors_left(0):
        for client in clients:
            connected(connector, client)
        eventually(lambda: connector.refused_count == 3)
    assert all(map(is_refused, clients))
    last = connected(connector)
    for client in [*clients, last]:
        client.close()


class Full:
    """A listener whose process has no descriptor left, whatever is closed."""

    def __init__(self):
        self.count = 0

    def accept(self):
        self.count += 1
        raise OSError(errno.EMFILE, "Too many open files")

    def close(self):
        pass


def test_a_door_whose_reserve_is_taken_lets_clients_wait_without_an_error():
    listener = Full()
    door = Door("v", listener, 10)
    assert [door.admit(0) for _ in range(3)] == [None] * 3
    assert (door.refused_count, listener.count) == (0, 6)
    door.close()
    door.close()


def test_sockets_listen_on_this_machine_only_unless_somebody_says_otherwise(served):
    connector, _ = served()
    other = "127.0.0.2"  # Every such address is this machine; only the one listened on answers.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((other, connector.port), timeout=20)
    connected(connector).close()
    everywhere, _ = served(host="0.0.0.0")
    socket.create_connection((other, everywhere.port), timeout=20).close()

    assert socket_source().properties["host"] == socket_sink().properties["host"] == HOST


def test_the_sdk_bounds_clients_and_says_nothing_of_it_by_default():
    assert socket_source(clients_max=3).properties["clients_max"] == 3
    assert socket_sink(clients_max=3).properties["clients_max"] == 3
    assert "clients_max" not in {**socket_source().properties, **socket_sink().properties}
    for call in (socket_source, socket_sink):
        with pytest.raises(BicycleError):
            call(clients_max=0)


@pytest.mark.parametrize("call", [websocket_source, websocket_sink])
def test_the_bound_of_clients_is_of_a_server(call):
    assert call("ws://h/a", listen=True, clients_max=3).properties["clients_max"] == 3
    with pytest.raises(BicycleError, match="it applies to a server"):
        call("ws://h/a", clients_max=3)
