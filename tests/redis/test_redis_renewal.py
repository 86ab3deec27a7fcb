"""Readers and writers of Redis continue when a connection is open and carries nothing."""

import asyncio

import pytest

from bicycle_runtime.testing import Harness
from bicycle_streams import connect
from tests.deaf_proxy import DeafProxy
from tests.waiting import until

WORDS = {"connect_timeout_ms": 500, "block_ms": 20}


@pytest.fixture
def proxy(server):
    found = DeafProxy(server.port)
    yield found
    found.close()


def messages(server, key):
    with server.client as client:
        return [fields[b"msg"].decode() for _, fields in client.xrange(key)]


def test_messages_without_a_receipt_are_sent_by_the_next_connection(server, proxy):
    async def scenario():
        async with connect(f"redis://127.0.0.1:{proxy.port}", WORDS) as streamer:
            producer = await streamer.create_producer("a")
            await producer.send("before")
            proxy.make_deaf()
            single, batch = producer.send("one"), producer.send_many(["two", "three"])
            await single
            await batch

    asyncio.run(scenario())

    assert proxy.deaf_count
    assert messages(server, "a") == ["before", "one", "two", "three"]


@pytest.mark.parametrize("group", [{}, {"mode": "resumable"}, {"mode": "load-balanced"}], ids=str)
def test_a_consumer_continues_over_the_next_connection(server, proxy, group):
    how = {**group, "group": "g"} if group else {}

    async def scenario():
        async with connect(f"redis://127.0.0.1:{proxy.port}", WORDS) as streamer:
            consumer = await streamer.create_consumer("a", start="earliest", **how)
            with server.client as client:
                client.xadd("a", {"msg": "before"})
                first = await consumer.next()
                proxy.make_deaf()
                client.xadd("a", {"msg": "after"})
            return first.payload, (await consumer.next()).payload

    assert asyncio.run(scenario()) == (b"before", b"after")
    assert proxy.deaf_count


def test_a_job_reads_and_writes_over_the_next_connection(server, proxy, monkeypatch):
    room = "bicycle_runtime.connectors.stream_clients.redis"
    monkeypatch.setattr(f"{room}._CONNECT_MS", 500)
    monkeypatch.setattr(f"{room}._ANSWER_MS", 100)

    def job(env):
        numbers = env.from_uri(f"redis://127.0.0.1:{proxy.port}/in").uid("in")
        numbers.to_uri(f"redis://127.0.0.1:{proxy.port}/out").uid("out")

    def copied(expected):
        harness.run_epoch()
        return messages(server, "out") == expected

    with server.client as client, Harness(job, real_sinks=["out"]) as harness:
        client.xadd("in", {"msg": "before"})
        until(lambda: copied(["before"]), "the first message")
        proxy.make_deaf()
        client.xadd("in", {"msg": "after"})
        until(lambda: copied(["before", "after"]), "the message after the silence")

    assert proxy.deaf_count >= 2, "source and sink had a connection each"
