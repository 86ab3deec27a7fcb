"""`bicycle stream topics` on a real Kafka broker."""

import asyncio
import itertools
import json

import pytest
from click.testing import CliRunner

from bicycle_runtime.cli import main
from bicycle_streams import connect
from tests.topic_calls import call, refused, told
from tests.waiting import until

_numbers = itertools.count()


@pytest.fixture
def uri(kafka_broker):
    return f"kafka://{kafka_broker.bootstrap}"


@pytest.fixture
def key():
    return f"topics-{next(_numbers)}"


def test_a_topic_is_made_listed_altered_and_deleted(uri, key):
    [made] = told("create", f"{uri}/{key}", "--shards", "2", "--config", "retention.ms=3600000")
    assert [shard["shard_id"] for shard in made["shards"]] == [0, 1]
    assert made["settings"] == {"retention.ms": "3600000"}
    assert (made["message_count"], made["groups"]) == (0, [])
    listed = told("list", f"{uri}/")
    assert key in listed
    assert not any(name.startswith("__") for name in listed)

    [altered] = told("alter", f"{uri}/{key}", "--shards", "3", "--config", "retention.ms=60000")
    assert len(altered["shards"]) == 3
    assert altered["settings"] == {"retention.ms": "60000"}

    assert json.loads(call("delete", f"{uri}/{key}", "--json").stdout) == {"deleted": [key]}
    assert key not in told("list", f"{uri}/")


def test_partitions_groups_and_their_lag_are_described(uri, key):
    async def scenario():
        options = {"create": "if-missing", "session_timeout_ms": 6_000}
        async with connect(uri, options) as streamer:
            producer = await streamer.create_producer(key, shard_count=2)
            for number in range(6):
                await producer.send(str(number), shard_id=0, timestamp_ms=1_000 * (number + 1))
            consumer = await streamer.create_consumer(
                key, mode="load-balanced", group=f"{key}-billing", start="earliest"
            )
            for _ in range(4):
                consumer.ack(await consumer.next())
            await consumer.commit()
            async with connect(uri) as other:
                return await other.admin().describe(key)

    found = asyncio.run(scenario())
    [shown] = told("describe", f"{uri}/{key}")

    first, second = found.shards
    assert (first.message_count, first.first_sequence, first.last_sequence) == (6, 0, 5)
    assert first.last_timestamp_ms == 6_000
    assert (second.message_count, second.last_sequence, second.last_timestamp_ms) == (0, None, None)
    [group] = found.groups
    assert (group.name, group.consumer_count) == (f"{key}-billing", 1)
    assert (dict(group.lag_by_shard), found.lag) == ({0: 2, 1: 0}, 2)
    assert shown["groups"][0]["consumer_count"] == 0  # It has ended.
    assert shown["groups"][0]["lag_by_shard"] == {"0": 2, "1": 0}


def test_the_latest_time_is_known_behind_the_mark_of_a_transaction(uri, key, kafka_broker):
    from confluent_kafka import Producer

    told("create", f"{uri}/{key}")
    producer = Producer({**kafka_broker.client_settings(), "transactional.id": key})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(key, b"x", timestamp=7_000)
    producer.commit_transaction(60)

    def last():
        [shard] = told("describe", f"{uri}/{key}")[0]["shards"]
        return shard["last_sequence"], shard["last_timestamp_ms"]

    # Kafka answers the commit before it writes the mark.
    until(lambda: last() == (1, 7_000), lambda: f"the mark as the last one, not {last()}")


def test_what_cannot_be_done_is_told(uri, key):
    place = f"{uri}/{key}"
    told("create", place, "--shards", "2")

    assert refused("create", place)[1] == "BIC-2665"
    assert refused("alter", place, "--shards", "1")[1] == "BIC-2666"
    assert refused("alter", place, "--config", "colour=red")[1] == "BIC-2667"
    assert refused("create", f"{place}-new", "--config", "retention.ms=long")[1] == "BIC-2667"
    assert refused("create", f"{place}-new", "--set", "replication_factor=9")[1] == "BIC-2667"
    code, error, facts = refused("describe", f"{place}-new")
    assert (code, error) == (4, "BIC-2664")
    assert key in facts["known_text"]
    assert (
        refused("list", "kafka://127.0.0.1:1/", "--set", "connect_timeout_ms=300")[1] == "BIC-2609"
    )


def test_a_broker_that_goes_away_between_two_questions_is_told(new_kafka_broker, key):
    broker = new_kafka_broker()
    uri = f"kafka://{broker.bootstrap}"

    async def scenario():
        async with connect(uri, {"connect_timeout_ms": 2_000}) as streamer:
            admin = streamer.admin()
            await admin.create(key, shard_count=1, settings={})
            await admin.describe(key)
            broker.kill()
            codes = []
            for ask in (admin.list_streams(), admin.describe(key)):
                with pytest.raises(Exception) as caught:
                    await ask
                codes.append(caught.value.code)
            return codes

    assert asyncio.run(scenario()) == ["BIC-2682", "BIC-2682"]


def test_questions_that_are_under_way_when_a_broker_dies_end_with_an_error(new_kafka_broker, key):
    """Wherever it dies: four ask again and again, and none of them waits for ever."""
    broker = new_kafka_broker()

    async def ask(admin):
        while True:
            await admin.describe(key)

    async def scenario():
        uri, options = f"kafka://{broker.bootstrap}", {"connect_timeout_ms": 2_000}
        async with asyncio.timeout(90), connect(uri, options) as streamer:
            admin = streamer.admin()
            await admin.create(key, shard_count=4, settings={})
            asking = [asyncio.create_task(ask(admin)) for _ in range(4)]
            await admin.describe(key)
            broker.kill()
            return await asyncio.gather(*asking, return_exceptions=True)

    errors = asyncio.run(scenario())
    assert {error.code for error in errors} <= {"BIC-2609", "BIC-2667", "BIC-2682"}, errors


def test_a_topic_is_dumped_into_a_file_and_back(uri, key, tmp_path):
    def dump(*words):
        done = CliRunner().invoke(main, ["stream", "dump", *words, "--json"], prog_name="bicycle")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)["sent"]

    async def fill():
        async with connect(uri, {"create": "if-missing"}) as streamer:
            producer = await streamer.create_producer(key, shard_count=2)
            for number in range(1_000):
                payload = b"\x00\xff\n%d" % number
                producer.send(payload, shard_id=number % 2, timestamp_ms=1_000 + number)
            await producer.flush()

    async def kept(name):
        async with connect(uri) as streamer:
            consumer = await streamer.create_consumer(name, start="earliest", is_live=False)
            found = [(m.shard_id, m.sequence, m.timestamp_ms, m.payload) async for m in consumer]
            return sorted(found)

    asyncio.run(fill())
    told("create", f"{uri}/{key}-copy", "--shards", "2")

    assert dump(f"{uri}/{key}", f"file://{tmp_path}/topic.ss/") == 1_000
    assert dump(f"file://{tmp_path}/topic.ss/{key}", f"{uri}/{key}-copy") == 1_000
    words = ("--output-set", "partitions=2")  # Of a topic that is made.
    assert dump(f"file://{tmp_path}/topic.ss/{key}", f"{uri}/{key}-new", *words) == 1_000
    assert asyncio.run(kept(f"{key}-new")) == asyncio.run(kept(key))
    assert asyncio.run(kept(f"{key}-copy")) == asyncio.run(kept(key))


def test_the_figures_of_a_topic_are_told_once(uri, key):
    async def fill():
        async with connect(uri, {"create": "if-missing"}) as streamer:
            producer = await streamer.create_producer(key, shard_count=2)
            for number in range(100):
                producer.send(b"x" * 10, shard_id=number % 2)
            await producer.send("long ago", shard_id=0, timestamp_ms=1_000)

    asyncio.run(fill())
    words = ["stream", "top", f"{uri}/{key}", "--once", "--json"]
    done = CliRunner().invoke(main, words, prog_name="bicycle")

    assert done.exit_code == 0, done.output
    [figures] = json.loads(done.stdout)["streams"]
    assert figures["error"] is None
    assert (figures["messages"]["hour"], figures["bytes"]["hour"]) == (100, 1_000)
    assert [shard["last_sequence"] for shard in figures["shards"]] == [50, 49]
    assert (figures["latest"]["payload"], figures["producers"]) == ("x" * 10, None)
