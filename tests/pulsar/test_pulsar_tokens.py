"""Logging in to Pulsar with a token: who has one, who has none, and what it may not do."""

import asyncio

import pytest

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.connectors.stream_clients.pulsar import PulsarStreamSource
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.testing import Harness
from bicycle_sdk.uris import source_from_uri
from bicycle_streams import StreamConnectError, connect
from bicycle_streams.pulsar.errors import ADMIN_UNREACHABLE
from tests.pulsar.pulsar_server import PulsarServer, token_of
from tests.raising import raises

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


@pytest.fixture(scope="module")
def strict_server(certificates):
    """A server that wants tokens; the role ``ada`` may produce and consume."""
    server = PulsarServer(certificates, token_key=KEY)
    server.ask("POST", "namespaces/public/default/permissions/ada", ["produce", "consume"])
    yield server
    server.remove()


def play(server, scenario, **options):
    async def whole():
        words = {"admin_url": server.admin_url, **options}
        async with asyncio.timeout(120), connect(server.uri, words) as streamer:
            return await scenario(streamer)

    return asyncio.run(whole())


async def send(streamer, key, count):
    producer = await streamer.create_producer(key)
    for number in range(count):
        producer.send(str(number))


async def read(streamer, key):
    consumer = await streamer.create_consumer(key, start="earliest", is_live=False)
    return [message.as_str() async for message in consumer]


def test_who_has_a_token_sends_and_reads_what_its_role_may(strict_server, new_key):
    key, token = new_key("a"), token_of("ada", KEY)
    play(strict_server, lambda streamer: send(streamer, key, 3), token=token)

    assert play(strict_server, lambda each: read(each, key), token=token) == ["0", "1", "2"]
    with raises(ADMIN_UNREACHABLE):  # Partitions are made by who administers.
        play(
            strict_server,
            lambda streamer: read(streamer, new_key("missing")),
            token=token,
            create="if-missing",
        )
    admin = {"token": token_of("admin", KEY), "create": "if-missing"}
    assert play(strict_server, lambda each: read(each, new_key("missing")), **admin) == []


@pytest.mark.parametrize(
    "options",
    [{}, {"token": token_of("ada", OTHER_KEY)}, {"token": token_of("eve", KEY)}],
    ids=["without one", "forged", "of a role without rights"],
)
def test_who_may_not_come_in_is_told(strict_server, new_key, options):
    with pytest.raises(StreamConnectError) as caught:
        play(strict_server, lambda streamer: read(streamer, new_key("a")), **options)

    assert options.get("token", "eyJ") not in str(caught.value)


def test_a_job_logs_in_with_the_token_of_its_reference(strict_server, new_key, monkeypatch):
    source, target, token = new_key("from"), new_key("to"), token_of("ada", KEY)
    play(strict_server, lambda streamer: send(streamer, source, 20), token=token)
    monkeypatch.setenv("PULSAR_TOKEN", token)
    login = "token_env=PULSAR_TOKEN"

    def job(env):
        uri = f"{strict_server.uri}/{source}?group=job&bounded=true&{login}"
        env.from_uri(uri).uid("in").to_uri(f"{strict_server.uri}/{target}?{login}").uid("out")

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()

    found = play(strict_server, lambda streamer: read(streamer, target), token=token)
    assert found == [str(number) for number in range(20)]


@pytest.mark.core
def test_a_token_in_the_graph_is_refused_and_not_shown():
    found = source_from_uri("pulsar://h/a?group=g")
    properties = {**found.properties, "token": "swordfish"}
    spec = ConnectorSpec(
        vertex_id="in", connector_type="pulsar", properties=properties, record_type=str
    )
    with raises(CONNECTOR_OPTION_WRONG) as caught:
        PulsarStreamSource(spec)
    assert caught.value.facts["name"] == "token"
    assert "swordfish" not in str(caught.value)
