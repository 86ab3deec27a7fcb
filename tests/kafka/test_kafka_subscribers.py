"""The subscriber server on Kafka: partitions from the past on, and a client that lags."""

import itertools
import json

from bicycle_streams import connect
from tests.unit.streams.subscriber_server.subscribed import (
    SubscriberServer,
    client_of,
    figure,
    reaches,
    run,
)

_numbers = itertools.count()


async def take(client, count):
    """Return the payloads of so many messages by their partitions."""
    found = {}
    while sum(map(len, found.values())) < count:
        frame = await client.next()
        if frame["op"] == "message":
            found.setdefault(frame["header"]["shard_id"], []).append(frame["payload"])
    return found


def together(found):
    """Return all numbers; those of each partition must be in order."""
    for each in found.values():
        assert each == sorted(each)
    return sorted(n for each in found.values() for n in each)


def test_partitions_are_read_from_the_past_on_and_then_as_they_come(kafka_broker, tmp_path):
    topic, uri = f"subscribed-{next(_numbers)}", f"kafka://{kafka_broker.bootstrap}"

    async def scenario():
        async with connect(uri, {"create": "if-missing"}) as streamer:
            producer = await streamer.create_producer(topic, shard_count=3)
            await producer.send_many(str(n) for n in range(300))
            with SubscriberServer(tmp_path, f"{uri}/{topic}") as subscribers:
                async with client_of(subscribers) as client:
                    await client.ask(op="subscribe", id="a", stream=topic, from_="beginning")
                    assert together(await take(client, 300)) == list(range(300))
                    await client.until("live")
                    await producer.send_many(str(n) for n in range(300, 600))
                    assert together(await take(client, 300)) == list(range(300, 600))

    run(scenario())


def test_a_client_that_lags_over_partitions_misses_nothing(kafka_broker, tmp_path):
    topic, uri = f"subscribed-{next(_numbers)}", f"kafka://{kafka_broker.bootstrap}"
    count = 2_000

    async def scenario():
        async with connect(uri, {"create": "if-missing"}) as streamer:
            producer = await streamer.create_producer(topic, shard_count=3)
            await producer.send("-1")
            words = ("--limit", "queue_messages=20")
            with SubscriberServer(tmp_path, f"{uri}/{topic}", *words) as subscribers:
                async with client_of(subscribers, max_queue=1) as client:
                    await client.send(op="subscribe", id="a", stream=topic)
                    await reaches(subscribers, "subscriptions", 1)
                    fill = "x" * 10_000
                    for begin in range(0, count, 100):
                        await producer.send_many(
                            json.dumps({"n": n, "fill": fill}) for n in range(begin, begin + 100)
                        )
                    await reaches(subscribers, f'messages_read_total{{stream="{topic}"}}', count)
                    assert await figure(subscribers, f'lags_total{{stream="{topic}"}}') >= 1
                    found = await take(client, count)
                    numbers = {shard: [p["n"] for p in each] for shard, each in found.items()}
                    assert together(numbers) == list(range(count))

    run(scenario())
