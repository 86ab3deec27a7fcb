"""A request for offsets that a broker refuses, as while a leader changes, hides no message."""

import asyncio

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from bicycle_runtime.connectors.kafka.consuming import RangeConsumer
from bicycle_runtime.connectors.kafka.marker import Marker, MarkerReader
from bicycle_runtime.connectors.kafka.settings import checked_properties
from bicycle_sdk.clock import SystemClock
from bicycle_streams import connect
from bicycle_streams.kafka.offsets import check_each, end_offsets, watermarks
from tests.kafka.refusing_cluster import RefusingCluster
from tests.waiting import PATIENCE_S

TOPIC = "t"
MARKER = Marker(identity="a", epoch=5)
PASSING = [
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
]
TRIES = 20  # One request in six came through in spite of the fault of the client.


@pytest.fixture(scope="module")
def cluster():
    """A cluster with one marker in its topic."""
    cluster = RefusingCluster(TOPIC)
    try:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        producer.produce(TOPIC, MARKER.to_bytes(), b"0", partition=0)
        assert producer.flush(30) == 0
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def settings(cluster):
    yield {"bootstrap.servers": cluster.bootstrap}
    cluster.accept_offsets()


@pytest.mark.parametrize("code", PASSING)
@pytest.mark.parametrize("is_first", [True, False])
def test_the_end_is_never_taken_for_the_first_offset(cluster, settings, code, is_first):
    client = Consumer({**settings, "group.id": "g"})
    found = set()

    for _ in range(TRIES):
        cluster.refuse_offsets(*((code, 0) if is_first else (0, code)))
        try:
            found.add(watermarks(client, TopicPartition(TOPIC, 0), 5))
        except KafkaException as error:
            found.add(error.args[0].code())
        cluster.accept_offsets()
    client.close()

    is_absent = code == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert found == {KafkaError.LEADER_NOT_AVAILABLE if is_absent else code}


@pytest.mark.parametrize("code", PASSING)
def test_a_marker_is_found(cluster, settings, code):
    client = checked_properties({}, vertex="out", reserved={}).with_defaults(settings)
    reader = MarkerReader(client, TOPIC, SystemClock(), lambda: None)
    cluster.refuse_offsets(code, 0, code)

    assert reader.last([0]) == {0: MARKER}


@pytest.mark.parametrize("code", PASSING)
def test_a_source_begins_at_the_first_message(cluster, settings, code):
    properties = checked_properties({**settings, "group.id": "g"}, vertex="in", reserved={})
    consumer = RangeConsumer(properties, SystemClock())
    cluster.refuse_offsets(code, 0, code)

    try:
        assert consumer.watermarks(TOPIC, 0) == (0, 1)
    finally:
        consumer.close()


def test_ends_are_right_or_an_error(cluster, settings):
    client = Consumer({**settings, "group.id": "g"})
    assert end_offsets(client, [(TOPIC, 0)], 5) == {(TOPIC, 0): 1}
    cluster.refuse_offsets(KafkaError.LEADER_NOT_AVAILABLE)

    with pytest.raises(KafkaException) as raised:
        end_offsets(client, [(TOPIC, 0)], 5)

    client.close()
    assert raised.value.args[0].code() == KafkaError.LEADER_NOT_AVAILABLE


class OnceRefused:
    """A Kafka client whose next answer reports an error for each partition."""

    def __init__(self, client):
        self._client = client
        self.refused_count = 0

    def _refuse_once(self, name, *arguments, **options):
        found = getattr(self._client, name)(*arguments, **options)
        if self.refused_count:
            return found
        self.refused_count += 1
        return [_Refused(each) for each in found]

    def offsets_for_times(self, *arguments, **options):
        return self._refuse_once("offsets_for_times", *arguments, **options)

    def committed(self, *arguments, **options):
        return self._refuse_once("committed", *arguments, **options)

    def __getattr__(self, name):
        return getattr(self._client, name)


class _Refused:
    """A partition for which the broker reports that it has no leader."""

    offset = -1
    error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)

    def __init__(self, partition):
        self.topic, self.partition = partition.topic, partition.partition


def test_a_partition_with_an_error_has_no_offset():
    with pytest.raises(KafkaException):
        check_each([TopicPartition(TOPIC, 0, 1), _Refused(TopicPartition(TOPIC, 1))])


@pytest.mark.parametrize(("move", "sequence"), [("seek", 0), ("go_back", 1)])
def test_a_refused_partition_is_asked_for_again(kafka_broker, topic, move, sequence):
    name = topic()

    async def scenario():
        uri = f"kafka://{kafka_broker.bootstrap}"
        async with asyncio.timeout(PATIENCE_S), connect(uri) as streamer:
            producer = await streamer.create_producer(name)
            for number in range(3):
                await producer.send(str(number))
            consumer = await streamer.create_consumer(
                name, mode="resumable", group=name, start="earliest"
            )
            first = await consumer.next()
            consumer.ack(first)
            await consumer.commit()
            consumer._client = OnceRefused(consumer._client)
            await (consumer.go_back() if move == "go_back" else consumer.seek(first.timestamp_ms))
            return consumer._client.refused_count, (await consumer.next()).sequence

    assert asyncio.run(scenario()) == (1, sequence)
