"""rediss:// on a real server that speaks TLS alone, and asks clients for certificates."""

import asyncio
import contextlib
import itertools
import socket
import socketserver
import ssl
import struct
import threading
from urllib.parse import urlencode

import pytest

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.testing import Harness
from bicycle_streams import StreamConnectError, connect
from bicycle_streams.errors import STREAM_TLS_REFUSED
from tests.raising import raises
from tests.redis.redis_server import RedisServer


@pytest.fixture(scope="module")
def tls_server(certificates):
    server = RedisServer(certificates)
    yield server
    server.remove()


def options_of(folder, *, client="ada", authority="service"):
    return {
        "ca_file": str(folder / f"{authority}.pem"),
        "cert_file": str(folder / f"{client}.pem"),
        "key_file": str(folder / f"{client}.key"),
    }


def send_and_read(uri, options):
    async def whole():
        async with asyncio.timeout(60), connect(uri, options) as streamer:
            consumer = await streamer.create_consumer("a")
            producer = await streamer.create_producer("a")
            await producer.send("x")
            return (await consumer.next()).as_str()

    return asyncio.run(whole())


def test_messages_pass_through_tls_with_the_certificate_of_a_client(tls_server, certificates):
    assert tls_server.uri.startswith("rediss://")
    assert send_and_read(tls_server.uri, options_of(certificates)) == "x"


def test_a_server_that_nobody_vouches_for_is_refused_unless_it_is_asked_for(
    tls_server, certificates
):
    strict = options_of(certificates, authority="stranger")
    with pytest.raises(StreamConnectError):
        send_and_read(tls_server.uri, strict)
    assert send_and_read(tls_server.uri, strict | {"verify_certificate": False}) == "x"


@pytest.mark.parametrize("client", ["stranger", None])
def test_a_client_that_the_server_does_not_know_is_told(tls_server, certificates, client):
    options = options_of(certificates, client=client or "ada")
    if client is None:
        options = {"ca_file": options["ca_file"]}
    with pytest.raises(StreamConnectError) as refusing:
        send_and_read(tls_server.uri, options)
    assert refusing.value.code == "BIC-2659"
    assert "cert_file and key_file" in refusing.value.summary


@contextlib.contextmanager
def resetting_server(folder):
    """Run a server that resets its first connection, and asks all others for a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "service.pem", folder / "service.key")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    count = itertools.count()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            if next(count) == 0:
                self.request.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
            else:
                with pytest.raises(ssl.SSLError):
                    context.wrap_socket(self.request, server_side=True)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"rediss://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
    assert next(count) == 2


def test_a_client_is_told_also_when_the_reset_comes_before_the_reason(certificates):
    with resetting_server(certificates) as uri, raises(STREAM_TLS_REFUSED) as caught:
        send_and_read(uri, {"ca_file": str(certificates / "service.pem")})
    assert "cert_file and key_file" in caught.value.summary


def copying(uri, options):
    def job(env):
        numbers = env.from_uri(f"{uri}/in?bounded=true&{urlencode(options)}").uid("in")
        numbers.to_uri(f"{uri}/out?{urlencode(options)}").uid("out")

    return job


def test_a_job_reads_and_writes_with_the_certificate_of_a_client(tls_server, certificates):
    with tls_server.client as client:
        for number in range(10):
            client.xadd("in", {"msg": str(number)})

    with Harness(copying(tls_server.uri, options_of(certificates)), real_sinks=["out"]) as harness:
        harness.run()

    with tls_server.client as client:
        found = [int(fields[b"msg"]) for _, fields in client.xrange("out")]
    assert found == list(range(10))


WRONG = {"protocol": "only rediss://", "missing": "none.key", "mixed": "KEY"}


@pytest.mark.parametrize("wrong", WRONG)
def test_files_that_cannot_be_used_are_told_before_anything_starts(tls_server, certificates, wrong):
    uri, options = tls_server.uri, options_of(certificates)
    if wrong == "protocol":
        uri = uri.replace("rediss", "redis")
    else:
        key = certificates / ("none.key" if wrong == "missing" else "eve.key")
        options["key_file"] = str(key)

    with pytest.raises(StreamConnectError, match=WRONG[wrong]) as refusing:
        connect(uri, options)
    assert refusing.value.code == "BIC-2654"
    with raises(CONNECTOR_OPTION_WRONG) as caught, Harness(copying(uri, options)) as harness:
        harness.run()
    assert WRONG[wrong] in str(caught.value)


def test_without_tls_nobody_is_let_in(tls_server):
    with pytest.raises(StreamConnectError):
        send_and_read(tls_server.uri.replace("rediss", "redis"), {"connect_timeout_ms": 2_000})
