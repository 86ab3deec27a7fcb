"""Sockets and WebSockets in jobs: what is received counts once, what is sent waits."""

import json
import socket
import threading
from urllib.parse import urlencode

import pytest

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG, PublishInterruptedError
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.connectors.running import SinkRun, services_in
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.sinks.addresses import sink_from_uri
from bicycle_streams import StreamUnsupportedError
from tests.certificates import make_certificates
from tests.raising import raises
from tests.waiting import until


class LineServer:
    """A TCP server that can go away and come back; it sends lines, and keeps those that come."""

    def __init__(self):
        self.heard, self.clients, self.port = [], [], 0
        self.start()

    def start(self):
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.accept, args=(self.listener,), daemon=True)
        self.thread.start()

    def accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.clients.append(client)
            threading.Thread(target=self.hear, args=(client,), daemon=True).start()

    def hear(self, client):
        with client.makefile("rb") as lines:
            for line in lines:
                self.heard.append(json.loads(line))

    def send(self, numbers):
        until(lambda: self.clients, "a client")
        self.clients[-1].sendall(b"".join(b'{"n": %d}\n' % number for number in numbers))

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        clients, self.clients = self.clients, []
        for client in clients:
            client.shutdown(socket.SHUT_RDWR)
            client.close()


@pytest.fixture
def server():
    found = LineServer()
    yield found
    found.stop()


def reaches(harness, name, count):
    def is_done():
        harness.run_epoch()
        return len(harness.results(name)) >= count

    until(is_done, lambda: f"{count} records, there are {len(harness.results(name))}")


@pytest.mark.parametrize("point", ["before_seal", "after_seal", "after_publish"])
def test_journalled_lines_count_once_through_crashes_and_lost_servers(server, point):
    def job(env):
        uri = f"socket://127.0.0.1:{server.port}/numbers?journal=true&format=json"
        numbers = env.from_uri(uri, type=dict).uid("in").map(lambda line: line["n"]).uid("n")
        numbers.key_by(lambda n: n % 3).count().uid("count").collect("counts")
        numbers.collect("seen")

    with Harness(job) as harness:
        harness.run_epoch()
        server.send(range(100))
        reaches(harness, "seen", 100)
        harness.fail_at(point)
        server.send(range(100, 200))
        reaches(harness, "seen", 150)
        server.stop()
        server.start()
        server.send(range(200, 300))
        reaches(harness, "seen", 300)
        assert sorted(harness.results("seen")) == list(range(300))
        assert sorted(harness.results("counts"))[-1] == (2, 100)
        assert harness.crash_count == 1


@pytest.fixture
def sink_of(tmp_path):
    """Start the sink of an address."""
    runs = []

    def start(uri):
        found = sink_from_uri(uri)
        spec = ConnectorSpec(
            vertex_id="out",
            connector_type=found.connector_type,
            properties=found.properties,
            payloads=found.payloads,
            record_type=found.input_type,
        )
        runs.append(SinkRun(spec, services_in(tmp_path, clock=SystemClock())).start())
        return runs[-1]

    yield start
    for run in runs:
        run.stop()


def has_peers(sink):
    """What the kernel takes for a connection that is gone already is lost: no case here."""
    streamer = sink._sent_to.streamer
    return streamer is not None and bool(streamer.peers)


def test_a_sealed_epoch_waits_for_a_server_that_is_away(server, sink_of):
    run = sink_of(f"socket://127.0.0.1:{server.port}/out?format=json")
    for part in range(3):
        run.seal([[{"n": n} for n in range(100 * part, 100 * part + 100)]])
        server.stop()
        until(lambda: not has_peers(run.sink), "the connection to be missed")
        bringing = threading.Timer(0.2, server.start)
        bringing.start()
        run.publish()
        bringing.join()
        until(lambda: len(server.heard) >= 100, lambda: f"{len(server.heard)} lines")
        assert [line["n"] for line in server.heard] == list(range(100 * part, 100 * part + 100))
        server.heard.clear()


def test_a_publication_that_waits_gives_up_when_the_job_must_end(server, sink_of):
    run = sink_of(f"socket://127.0.0.1:{server.port}/out?format=json")
    run.seal([[{"n": 1}]])
    server.stop()
    interrupting = threading.Timer(0.1, run.sink.interrupt)
    interrupting.start()
    with pytest.raises(PublishInterruptedError):
        run.publish()
    interrupting.join()
    server.start()


def test_a_record_that_is_no_line_fails_before_its_epoch_is_sealed(server, sink_of):
    run = sink_of(f"socket://127.0.0.1:{server.port}/out")
    with pytest.raises(StreamUnsupportedError, match="line break"):
        run.seal([["one", "two\nlines"]])


@pytest.mark.parametrize(
    ("query", "record", "payload"),
    [("?format=msgpack", {"n": 10}, b"\x81\xa1n\x0a"), ("", "two\nlines", b"two\nlines")],
)
def test_a_backend_of_binary_payloads_also_takes_records_that_are_no_lines(
    sink_of, query, record, payload
):
    run = sink_of(f"pulsar://127.0.0.1:1/out{query}")
    run.seal([[record]])
    assert list(run.sink._payloads(run.sink.staged_files(run.state))) == [payload]


@pytest.mark.parametrize("word", ["ws", "socket"])
def test_a_server_of_a_job_drops_what_nobody_hears_and_counts_it(word, sink_of):
    run = sink_of(f"{word}://127.0.0.1:0/x?listen=true")
    for part in range(2):
        run.seal([["a", "b"]])
        run.publish()
        assert run.sink.dropped_count() == 2 * (part + 1)


def tls(folder, own, trusted):
    names = {"ca_file": f"{trusted}.pem", "cert_file": f"{own}.pem", "key_file": f"{own}.key"}
    return urlencode({option: str(folder / name) for option, name in names.items()})


def test_a_job_sends_to_another_over_tls_with_certificates_of_both(tmp_path, sink_of):
    folder = make_certificates(tmp_path)
    run = sink_of(f"wss://127.0.0.1:0/x?listen=true&{tls(folder, 'service', 'ca')}")
    port = run.sink._sent_to.streamer.port

    def job(env):
        uri = f"wss://127.0.0.1:{port}/x?journal=true&{tls(folder, 'ada', 'service')}"
        env.from_uri(uri).uid("in").collect("seen")

    with Harness(job) as harness:
        harness.run_epoch()
        until(lambda: has_peers(run.sink), "the reading job to connect")
        run.seal([["a", "b"]])
        run.publish()
        reaches(harness, "seen", 2)
        assert harness.results("seen") == ["a", "b"]


@pytest.mark.parametrize("query", ["listen=true", "ca_file=none.pem"])
def test_tls_that_cannot_be_spoken_is_told_before_a_job_starts(sink_of, query):
    with raises(CONNECTOR_OPTION_WRONG):
        sink_of(f"wss://127.0.0.1:0/x?{query}")

    def job(env):
        env.from_uri(f"wss://127.0.0.1:0/x?{query}").uid("in").collect("seen")

    with raises(CONNECTOR_OPTION_WRONG), Harness(job) as harness:
        harness.run_epoch()
