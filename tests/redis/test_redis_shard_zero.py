"""Shard 0 of a stream of Redis in two keys: ``KEY``, and ``KEY:0`` of other programs."""

import pytest

from tests.redis.test_redis_streams import run, send
from tests.topic_calls import call, refused, told


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


def test_topics_cover_both_keys_of_the_shard(server):
    url = f"{server.uri}/a"
    with server.client as client:
        for name in ("a:0", "a", "a:1"):
            client.xgroup_create(name, "g", "0", mkstream=True)
        for time, name in enumerate(["a", "a:0", "a:0", "a:1"], start=1):
            client.xadd(name, {"msg": name}, id=f"{time}-0")

    [described] = told("describe", url)
    first, second = described["shards"]
    assert (first["shard_id"], first["message_count"], second["shard_id"]) == (0, 3, 1)
    assert [first[f"{end}_sequence"] >> 16 for end in ("first", "last")] == [1, 3]
    assert first["last_timestamp_ms"] == 3
    assert described["groups"][0]["lag_by_shard"] == {"0": 3, "1": 1}
    assert refused("alter", url, "--shards", "1")[2]["shard_count"] == 2
    [trimmed] = told("alter", url, "--shards", "3", "--config", "maxlen=1")
    assert [shard["message_count"] for shard in trimmed["shards"]] == [2, 1, 0]
    assert call("delete", url).exit_code == 0
    with server.client as client:
        assert client.keys("*") == []


def test_only_exact_names_are_shards(server):
    names = ("a", "a:1", "a:01", "a:00", "a:\N{ARABIC-INDIC DIGIT TWO}", f"a:{10**19}", "b:01")
    with server.client as client:
        for name in names:
            client.xadd(name, {"msg": name}, id="7-1")

    async def scenario(streamer):
        consumer = await streamer.create_consumer("a", start="earliest", is_live=False)
        return {message.as_str() for message in await consumer.next_batch(9)}

    assert run(server, scenario) == {"a", "a:1"}
    assert told("list", f"{server.uri}/") == ["a"]
    [described] = told("describe", f"{server.uri}/a")
    assert [(each["shard_id"], each["message_count"]) for each in described["shards"]] == [
        (0, 1),
        (1, 1),
    ]
