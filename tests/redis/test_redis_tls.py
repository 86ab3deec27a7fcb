"""rediss:// on a real server that speaks TLS alone, and asks clients for certificates."""

import asyncio

import pytest

from bicycle_runtime.streams import StreamConnectError, connect
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
    with pytest.raises(StreamConnectError):
        send_and_read(tls_server.uri, options | {"connect_timeout_ms": 2_000})


def test_without_tls_nobody_is_let_in(tls_server):
    with pytest.raises(StreamConnectError):
        send_and_read(tls_server.uri.replace("rediss", "redis"), {"connect_timeout_ms": 2_000})
