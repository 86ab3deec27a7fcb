"""Shard 0 of a stream of Redis in two keys: ``KEY``, and ``KEY:0`` of other programs."""

import pytest

from tests.redis.test_redis_streams import run, send


@pytest.mark.parametrize("mode", ["resumable", "load-balanced"])
def test_messages_of_the_key_with_a_number_are_acknowledged_there(server, mode):
    with server.client as client:
        for name in ("a", "a:0"):
            client.xadd(name, {"msg": name}, id="7-1")

    async def scenario(streamer):
        words = {"mode": mode, "group": "g", "start": "earliest"}
        consumer = await streamer.create_consumer("a", **words)
        messages = {message.as_str(): message for message in await consumer.next_batch(2)}
        assert messages.keys() == {"a", "a:0"}
        consumer.ack(messages["a:0"])
        await consumer.commit()
        await consumer.end()
        again = await streamer.create_consumer("a", **words)
        await send(streamer, ["new"])
        return [(await again.next()).as_str() for _ in range(2)]

    assert run(server, scenario) == ["a", "new"]
