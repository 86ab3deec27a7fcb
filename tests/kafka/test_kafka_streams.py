"""The Kafka backend of streams against the conformance suite, and what only it does."""

import asyncio
import io
import itertools
import json
import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from bicycle_streams import (
    At,
    Message,
    SeekError,
    StreamConnectError,
    StreamError,
    StreamKey,
    StreamUrl,
    connect,
)
from bicycle_streams.kafka import consuming
from bicycle_streams.testing import StreamCase, StreamLoadSuite, StreamSuite
from bicycle_streams.texts import message_text
from bicycle_streams.tools.copying import relay
from bicycle_streams.tools.opening import Tally
from bicycle_streams.tools.sending import produce

pytest_plugins = ["bicycle_streams.testing.plugin"]

_numbers = itertools.count()


class KafkaCase(StreamCase):
    """Each test has topics and groups of its own on the common broker."""

    word = "kafka"
    repeats_on_join = True
    bootstrap = ""

    def __init__(self, folder):
        super().__init__(folder)
        self.prefix = f"streams-{next(_numbers)}"

    @property
    def uri(self):
        return f"kafka://{self.bootstrap}"

    @property
    def options(self):
        return {"create": "if-missing", "session_timeout_ms": 6_000, "linger_ms": 0}

    def transaction_options(self, name):
        return {"transactional_id": f"{self.prefix}-{name}"}

    def key(self, name):
        return f"{self.prefix}-{name}"


class OnBroker:
    @pytest.fixture
    def case(self, tmp_path, kafka_broker):
        case = self.case_type(tmp_path)
        case.bootstrap = kafka_broker.bootstrap
        yield case
        case.close()


class TestKafka(OnBroker, StreamSuite):
    case_type = KafkaCase


class TestKafkaUnderLoad(OnBroker, StreamLoadSuite):
    case_type = KafkaCase


def run(broker, scenario, **options):
    async def whole():
        uri = f"kafka://{broker.bootstrap}"
        async with asyncio.timeout(120), connect(uri, options) as streamer:
            return await scenario(streamer)

    return asyncio.run(whole())


def test_a_topic_that_is_missing_is_told(kafka_broker):
    async def scenario(streamer):
        producer = await streamer.create_producer("missing-topic")
        with pytest.raises(StreamConnectError) as sending:
            await producer.send("x")
        with pytest.raises(StreamConnectError):
            await producer.flush()
        with pytest.raises(StreamConnectError) as reading:
            await streamer.create_consumer("missing-topic")
        return sending.value.code, reading.value.code

    assert run(kafka_broker, scenario) == ("BIC-2680", "BIC-2680")


def test_a_copy_to_a_partition_that_is_missing_is_told_and_others_arrive(kafka_broker):
    async def scenario(streamer):
        producer = await streamer.create_producer("copied-partly")
        await producer.send("first")
        copies = [Message(StreamKey("x"), shard, 0, 1, b"%d" % shard) for shard in (0, 9, 0)]
        with pytest.raises(StreamError, match="artition"):
            producer.copy_many(copies, with_shards=True)
            await producer.flush()
        producer.copy_many(copies[:1], with_shards=True)
        await producer.flush()
        consumer = await streamer.create_consumer("copied-partly", start="earliest", is_live=False)
        return {message.payload async for message in consumer}

    assert {b"first", b"0"} <= run(kafka_broker, scenario, create="if-missing")


def test_messages_with_one_key_share_a_partition_and_copies_keep_it(kafka_broker):
    topic, other = f"keyed-{next(_numbers)}", f"keyed-copy-{next(_numbers)}"

    async def scenario(streamer):
        producer = await streamer.create_producer(topic, shard_count=4)
        keys = [str(n % 7) for n in range(70)]
        for each in (keys[:35], keys[35:]):  # Before it knows of the topic, and afterwards.
            for key in each:
                producer.send("x", key=key)
            await producer.flush()
        chosen = await producer.send("x", key="a", shard_id=3)
        headers = [("trace", b"1"), ("trace", b"2")]
        for _ in range(4):
            producer.send_to(topic, "y", headers=headers)
        await producer.flush()
        shown = await streamer.create_consumer(topic, start="earliest", is_live=False)
        found = [message async for message in shown]
        copier = await streamer.create_producer(other, shard_count=2)
        for part in (found[:10], found[10:]):
            copier.copy_many(part, with_shards=False)
            await copier.flush()
        copied = await streamer.create_consumer(other, start="earliest", is_live=False)
        return chosen, found, [message async for message in copied]

    chosen, found, copied = run(kafka_broker, scenario, create="if-missing")

    shards = {key: {m.shard_id for m in found if m.key == key} for key in {m.key for m in found}}
    assert chosen.shard_id == 3
    assert shards.pop(b"a") == {3}
    assert shards.pop(None) == {0, 1, 2, 3}  # Those without a key go in turns.
    assert {len(each) for each in shards.values()} == {1}
    assert len(set.union(*shards.values())) > 1
    assert [m.headers for m in found if m.key is None] == [(("trace", b"1"), ("trace", b"2"))] * 4
    assert sorted((m.key or b"", m.headers) for m in copied) == sorted(
        (m.key or b"", m.headers) for m in found
    )
    copied_shards = {(m.key, m.shard_id) for m in copied if m.key is not None}
    assert len(copied_shards) == 8


def test_key_and_headers_pass_through_ndjson_and_a_relay(kafka_broker):
    first, second = (
        StreamUrl.parse(f"kafka://{kafka_broker.bootstrap}/ndjson-{next(_numbers)}")
        for _ in range(2)
    )
    headers = [{"name": "trace", "value_base64": "/w=="}, {"name": "a"}, {"name": "b", "value": ""}]
    head = {"message_key": "k", "headers": headers}
    record = json.dumps({**head, "payload": 7}).encode() + b"\n"

    async def scenario():
        async with asyncio.timeout(120):
            await produce(first, {}, Tally(), io.BytesIO(record), is_ndjson=True)
            await relay(
                first, second, Tally(), source_words={}, target_words={}, start="earliest",
                is_live=False,
            )  # fmt: skip
            async with connect(second) as streamer:
                consumer = await streamer.create_consumer(second.stream_key, start="earliest")
                return await consumer.next()

    message = asyncio.run(scenario())

    assert message.key == b"k"
    assert message.headers == (("trace", b"\xff"), ("a", None), ("b", b""))
    assert json.loads(message_text(message, "ndjson", header_only=True)).items() >= head.items()


def test_a_message_that_kafka_does_not_take_is_told_and_others_arrive(kafka_broker):
    async def scenario(streamer):
        producer = await streamer.create_producer(f"large-{next(_numbers)}")
        await producer.send("first")
        with pytest.raises(StreamError) as caught:
            producer.send(b"x" * 2_000_000)
        return caught.value.code, (await producer.send("second")).sequence

    assert run(kafka_broker, scenario, create="if-missing") == ("BIC-2681", 1)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_messages_are_compressed_as_asked(kafka_broker, compression):
    topic = f"compressed-{compression}"

    async def scenario(streamer):
        producer = await streamer.create_producer(topic)
        await producer.send_many([b"x" * 1_000] * 500)
        consumer = await streamer.create_consumer(topic, start="earliest", is_live=False)
        return {message.payload async for message in consumer}

    options = {"create": "if-missing", "compression": compression}
    assert run(kafka_broker, scenario, **options) == {b"x" * 1_000}
    stored = kafka_broker.folder.glob(f"data/{topic}-0/*.log")
    assert 0 < sum(path.stat().st_size for path in stored) < 250_000


def test_a_partition_that_no_number_of_kafka_holds_is_told_and_others_arrive(kafka_broker):
    """Before the sender knows of the topic, and afterwards."""

    async def scenario(streamer):
        producer = await streamer.create_producer(f"unfit-{next(_numbers)}")
        with pytest.raises(StreamError, match="BIC-2681"):
            await producer.send("x", shard_id=1 << 40)
        with pytest.raises(StreamError, match="BIC-2681"):
            await producer.flush()
        with pytest.raises(StreamError, match="BIC-2681"):
            producer.send("x", shard_id=1 << 40)
        return (await producer.send("y")).sequence

    assert run(kafka_broker, scenario, create="if-missing") == 0


def test_half_a_letter_in_a_header_is_refused(kafka_broker):
    """Kafka's client would end the process."""

    async def scenario(streamer):
        producer = await streamer.create_producer(f"unfit-{next(_numbers)}")
        with pytest.raises(UnicodeEncodeError):
            producer.send("x", headers={"\ud800": "x"})
        return (await producer.send("y", headers={"\u00fc": "x", "": ""})).sequence

    assert run(kafka_broker, scenario, create="if-missing") == 0


def test_a_position_that_no_message_has_is_understood(kafka_broker):
    """Kafka takes some negative times for words, as -1 for the end."""

    async def scenario(streamer):
        producer = await streamer.create_producer(f"edges-{next(_numbers)}")
        for number in range(3):
            await producer.send(str(number))
        consumer = await streamer.create_consumer(
            producer.anchored, start="earliest", is_live=False
        )
        for move in (consumer.rewind(At(-5)), consumer.seek(-1), consumer.seek(-2)):
            await move
            assert (await consumer.next()).payload == b"0"
        for move, target in (
            (consumer.rewind(At(1 << 90)), "sequence 18446744073709551615 in"),
            (consumer.seek(1 << 90), "time 9223372036854775807 in"),
        ):
            with pytest.raises(SeekError, match=target):
                await move
        return (await consumer.next()).payload

    assert run(kafka_broker, scenario, create="if-missing") == b"1"


@pytest.mark.parametrize("words", ["colour=red", {"colour": "red"}])
def test_settings_that_the_client_does_not_know_are_told(kafka_broker, words):
    async def scenario(streamer):
        raise AssertionError("it must not open")

    with pytest.raises(StreamConnectError) as caught:
        run(kafka_broker, scenario, properties=words)
    assert caught.value.code == "BIC-2683"


@pytest.mark.parametrize(
    ("protocol", "given"),
    [("PLAINTEXT", "password"), ("SSL", "username"), ("SASL_PLAINTEXT", "ca_file")],
)
def test_what_the_protocol_would_not_use_is_refused(protocol, given):
    async def scenario():
        options = {"security_protocol": protocol, given: "x"}
        async with connect("kafka://127.0.0.1:1", options):
            raise AssertionError("it must not open")

    with pytest.raises(StreamConnectError) as caught:
        asyncio.run(scenario())
    assert caught.value.code == "BIC-2683"
    assert protocol in caught.value.summary


def test_nobody_where_kafka_should_be_is_told():
    async def scenario():
        async with connect("kafka://127.0.0.1:1", {"connect_timeout_ms": 300}):
            raise AssertionError("it must not open")

    with pytest.raises(StreamConnectError):
        asyncio.run(scenario())


def test_a_member_begins_with_a_topic_of_which_its_running_group_has_no_position(kafka_broker):
    """Only members may commit then; a new topic is read from the member's own start on."""
    topics = [f"joined-{next(_numbers)}" for _ in range(2)]
    words = {"mode": "load-balanced", "group": topics[0]}

    async def scenario(streamer):
        for topic in topics:
            await (await streamer.create_producer(topic)).send("old")
        first = await streamer.create_consumer(topics[0], start="earliest", **words)
        assert (await first.next()).payload == b"old"
        reading = asyncio.create_task(first.next())  # It takes part in the next assignment.
        second = await streamer.create_consumer(topics[1], start="latest", **words)
        await (await streamer.create_producer(topics[1])).send("new")
        message = await second.next()
        reading.cancel()
        return message.payload

    assert run(kafka_broker, scenario, create="if-missing", session_timeout_ms=6_000) == b"new"


def secure_options(broker, **more):
    settings = broker.client_settings("ada")
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": settings["sasl.mechanism"],
        "username": settings["sasl.username"],
        "password": settings["sasl.password"],
        "ca_file": settings["ssl.ca.location"],
        "create": "if-missing",
        **more,
    }


def test_messages_pass_through_tls_with_a_user_and_a_password(secure_kafka_broker):
    topic = f"secure-streams-{next(_numbers)}"

    async def scenario(streamer):
        producer = await streamer.create_producer(topic, durability="exactly-once")
        for n in range(10):
            producer.send(str(n))
        await producer.flush()
        consumer = await streamer.create_consumer(
            topic, mode="resumable", group="g", start="earliest", is_live=False
        )
        return [message.as_str() async for message in consumer]

    found = run(secure_kafka_broker, scenario, **secure_options(secure_kafka_broker))

    assert found == [str(n) for n in range(10)]


@pytest.mark.parametrize(
    "wrong", [{"password": "wrong"}, {"security_protocol": "PLAINTEXT"}, {"ca_file": None}]
)
def test_who_cannot_log_in_is_told(secure_kafka_broker, wrong):
    async def scenario(streamer):
        await (await streamer.create_producer("secure-refused")).send("x")

    options = secure_options(secure_kafka_broker, connect_timeout_ms=5_000, **wrong)
    with pytest.raises(StreamError):
        run(secure_kafka_broker, scenario, **options)


def test_a_broker_that_is_killed_costs_neither_messages_nor_positions(new_kafka_broker):
    """It dies with messages under way; what is sent meanwhile waits, and counts once."""
    broker = new_kafka_broker()

    async def restart():
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)

    async def numbers(consumer, count):
        messages = [await consumer.next() for _ in range(count)]
        consumer.ack(messages[-1])
        await consumer.commit()
        return [int(message.payload) for message in messages]

    async def scenario(streamer):
        producer = await streamer.create_producer("restarts", durability="exactly-once")
        await producer.send("0")
        resumable = {"mode": "resumable", "group": "g", "start": "earliest"}
        consumer = await streamer.create_consumer("restarts", **resumable)
        found = await numbers(consumer, 1)
        restarting = asyncio.create_task(restart())
        for number in range(1, 500):
            producer.send(str(number))
            await asyncio.sleep(0)
        await restarting
        await producer.flush()
        found += await numbers(consumer, 499)
        await producer.send("500")
        again = await streamer.create_consumer("restarts", is_live=False, **resumable)
        return found + [int(message.payload) async for message in again]

    assert run(broker, scenario, create="if-missing") == list(range(501))


class DeafClient:
    """A client that has forgotten all brokers; that a real one does depends on milliseconds."""

    def __init__(self, client):
        self._client = client

    def consume(self, _count, timeout):
        threading.Event().wait(timeout)
        return []

    def list_topics(self, _topic, timeout):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def __getattr__(self, name):
        return getattr(self._client, name)


async def read_over_a_deaf_client(streamer, topic, **mode):
    """Return what a consumer reads whose client turns deaf after each two messages."""
    producer = await streamer.create_producer(topic)
    consumer = await streamer.create_consumer(topic, start="earliest", **mode)
    found = []
    for payloads in (("a", "b"), ("c", "d"), ("e", "f")):
        for payload in payloads:
            await producer.send(payload)
        await producer.flush()
        for _ in payloads:
            message = await consumer.next()
            found.append(message.payload)
            if "group" in mode:
                consumer.ack(message)
        if "group" in mode:
            await consumer.commit()
        consumer._client = DeafClient(consumer._client)
    return found


@pytest.mark.parametrize("mode", ["real-time", "resumable", "load-balanced"])
def test_a_client_that_has_forgotten_all_brokers_is_replaced(kafka_broker, monkeypatch, mode):
    monkeypatch.setattr(consuming, "_SILENCE_S", 0.5)
    topic = f"deaf-{next(_numbers)}"
    group = {} if mode == "real-time" else {"group": topic}

    async def scenario(streamer):
        return await read_over_a_deaf_client(streamer, topic, mode=mode, **group)

    found = run(kafka_broker, scenario, create="if-missing", session_timeout_ms=6_000)

    assert found == [b"a", b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.parametrize("mode", ["real-time", "load-balanced"])
def test_a_consumer_ends_although_its_broker_is_silent(new_kafka_broker, mode):
    """A client of Kafka waits a minute and more for the answers to its last requests."""
    broker, topic = new_kafka_broker(), f"silent-{next(_numbers)}"
    group = {} if mode == "real-time" else {"group": topic}

    async def scenario(streamer):
        await (await streamer.create_producer(topic)).send("a")
        consumer = await streamer.create_consumer(topic, start="earliest", mode=mode, **group)
        message = await consumer.next()
        if group:
            consumer.ack(message)
        broker.pause()
        try:
            async with asyncio.timeout(30):
                await consumer.end()
        finally:
            broker.resume()
        return message.payload

    assert run(broker, scenario, create="if-missing", connect_timeout_ms=2_000) == b"a"
