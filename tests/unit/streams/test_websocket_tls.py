"""wss:// between a server and clients, with certificates made for the test."""

import asyncio

import pytest

from bicycle_streams import StreamConnectError, connect
from tests.certificates import make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def own(folder, name):
    return {"cert_file": str(folder / f"{name}.pem"), "key_file": str(folder / f"{name}.key")}


def trusting(folder, name="service"):
    return {"ca_file": str(folder / f"{name}.pem")}


def exchange(server_options, client_options, protocol="wss"):
    """Return what a client receives over TLS."""

    async def whole():
        listening = {"listen": True, **server_options}
        async with asyncio.timeout(60), connect("wss://127.0.0.1:0", listening) as server:
            uri = f"{protocol}://127.0.0.1:{server.port}"
            async with connect(uri, {"connect_timeout_ms": 2_000, **client_options}) as client:
                consumer = await client.create_consumer("a")
                # The server sends to who is there.
                there = await server.create_consumer("here")
                await (await client.create_producer("here")).send("x")
                await there.next()
                await (await server.create_producer("a")).send("hello")
                return (await consumer.next()).as_str()

    return asyncio.run(whole())


def test_messages_pass_through_tls(certificates):
    assert exchange(own(certificates, "service"), trusting(certificates)) == "hello"


def test_a_client_without_a_certificate_is_refused_where_one_is_asked_for(certificates):
    server = own(certificates, "service") | trusting(certificates, "ca")

    assert exchange(server, trusting(certificates) | own(certificates, "ada")) == "hello"
    for client in ({}, own(certificates, "stranger")):
        with pytest.raises(StreamConnectError):
            exchange(server, trusting(certificates) | client)


def test_a_server_that_nobody_vouches_for_is_refused(certificates):
    with pytest.raises(StreamConnectError):
        exchange(own(certificates, "service"), trusting(certificates, "stranger"))


@pytest.mark.parametrize(
    ("server", "client", "advice"),
    [
        ("service", "stranger", "set ca_file"),
        ("expired", "ca", "has expired"),
        ("elsewhere", "elsewhere", "another host"),
    ],
)
def test_a_certificate_of_a_server_that_is_refused_names_the_fix(
    certificates, server, client, advice
):
    with pytest.raises(StreamConnectError, match=advice) as refusing:
        exchange(own(certificates, server), trusting(certificates, client))
    assert refusing.value.code == "BIC-2659"


def test_a_server_that_closes_in_the_handshake_may_ask_for_a_certificate(certificates):
    server = own(certificates, "service") | trusting(certificates, "ca")
    with pytest.raises(StreamConnectError, match="set cert_file and key_file"):
        exchange(server, trusting(certificates))


def test_a_server_of_wss_never_speaks_without_tls(certificates):
    with pytest.raises(StreamConnectError) as refusing:
        exchange({}, {})
    assert refusing.value.code == "BIC-2654"
    with pytest.raises(StreamConnectError):
        exchange(own(certificates, "service"), {}, protocol="ws")


@pytest.mark.parametrize("name", ["missing", "mixed"])
def test_certificates_that_cannot_be_used_are_told(certificates, name):
    words = own(certificates, "missing")
    if name == "mixed":
        words = own(certificates, "ada") | {"key_file": str(certificates / "eve.key")}

    with pytest.raises(StreamConnectError) as refusing:
        exchange(words, {})

    assert refusing.value.code == "BIC-2654"


def test_certificates_are_refused_where_nobody_speaks_tls(certificates):
    with pytest.raises(StreamConnectError, match="only wss://") as refusing:
        connect("ws://127.0.0.1:1", trusting(certificates))

    assert refusing.value.code == "BIC-2654"
