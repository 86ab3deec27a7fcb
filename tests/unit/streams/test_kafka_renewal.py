"""A producer whose Kafka client reaches no broker any more continues with another client."""

import asyncio

import pytest

from bicycle_streams import StreamError, connect
from tests.deaf_client import SETTINGS, TOPIC, Broker


@pytest.fixture
def broker():
    found = Broker()
    yield found
    found.close()


async def sent_while_deaf(broker: Broker, **options: object):
    """Make the client of a producer deaf, send through it, and return the receipt."""
    uri = f"kafka://127.0.0.1:{broker.port}"
    words = {"properties": SETTINGS, **options}
    async with asyncio.timeout(60), connect(uri, words) as streamer:
        producer = await streamer.create_producer(TOPIC)
        await producer.send("before")
        await asyncio.to_thread(broker.make_deaf, 2)  # One of them asks about topics.
        single, batch = producer.send("one"), producer.send_many(["two", "three"])
        broker.named_port = broker.port
        return await single, await batch


def test_messages_without_a_receipt_are_sent_by_the_next_client(broker, monkeypatch):
    monkeypatch.setattr("bicycle_streams.kafka.producing._SILENCE_S", 1.0)

    single, batch = asyncio.run(sent_while_deaf(broker))

    assert [single.sequence, batch.sequence] == [1, 3]


def test_without_another_client_they_are_not_delivered(broker):
    """The client is deaf for good: this shows that the test above tests the renewal."""
    with pytest.raises(StreamError, match="BIC-2681"):
        asyncio.run(sent_while_deaf(broker, delivery_timeout_ms=6_000))
