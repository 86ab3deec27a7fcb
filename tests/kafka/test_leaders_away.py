"""Clients that would not come back by themselves, when a broker or the leader of a partition does.

The controller of this broker takes it for dead after a second, and hears of it every two seconds:
in between nobody leads its partitions, though it answers.
"""

import logging
import threading

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from bicycle_runtime.connectors.kafka.cluster import Brokers, ClusterSilentError
from bicycle_runtime.connectors.kafka.consuming import RangeConsumer
from bicycle_runtime.connectors.kafka.marker import Marker, MarkerReader
from bicycle_runtime.connectors.kafka.settings import checked_properties
from bicycle_runtime.dev.errors import TOPIC_REFUSED
from bicycle_sdk.clock import ManualClock, SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_streams.kafka.offsets import LATEST
from tests.kafka_broker import broker_in, create_topic, end
from tests.waiting import until

FLAPPING = {"broker.heartbeat.interval.ms": "2000", "broker.session.timeout.ms": "1000"}
TOPIC = "t"
LOGGER = "bicycle_runtime.connectors.kafka.settings"
MARKER = Marker(identity="a", epoch=5)
HEALED_S = 6.0  # Three rounds of the broker; a client that does not ask again waits for minutes.


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker whose topic has one partition with one marker in it."""
    broker = broker_in(tmp_path_factory.mktemp("flapping-kafka"), extra=FLAPPING)
    try:
        broker.start()
        admin = AdminClient({**broker.client_settings(), "log_level": 0})
        until(lambda: is_made(admin), "the topic")
        write(broker)
        yield broker
    finally:
        end(broker)


@pytest.fixture
def settings(broker):
    """Of clients that come when the partition has just lost its leader."""
    admin = AdminClient({**broker.client_settings(), "log_level": 0})
    until(lambda: leader(admin) == 1, "a leader")
    until(lambda: leader(admin) == -1, "no leader")
    return broker.client_settings()


def write(broker):
    # A message that is sent again because its answer was late would be there twice otherwise.
    once = {"enable.idempotence": True, "log_level": 0}
    producer = Producer({**broker.client_settings(), **once})
    producer.produce(TOPIC, MARKER.to_bytes(), b"0", partition=0)
    assert producer.flush(30) == 0


def is_made(admin):
    """Make the topic, unless the broker is taken for dead just now."""
    try:
        create_topic(admin, TOPIC, cleanup_policy="compact")
    except BicycleError as error:
        assert error.code == TOPIC_REFUSED.code
        return leader(admin) is not None
    return True


def leader(admin):
    try:
        return admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions[0].leader
    except (KafkaException, KeyError):
        return None


def test_a_marker_is_read_as_soon_as_its_partition_has_a_leader_again(settings):
    client = checked_properties({}, vertex="out", reserved={}).with_defaults(settings)
    reader = MarkerReader(client, TOPIC, SystemClock(), lambda: None)

    assert reader.last([0]) == {0: MARKER}


def test_ends_are_known_as_soon_as_the_partition_has_a_leader_again(settings):
    properties = checked_properties({**settings, "group.id": "g"}, vertex="in", reserved={})
    cluster = Brokers(properties, on_reported=lambda _error: None)

    try:
        until(lambda: end_in(cluster) == 1, "the end", patience_s=HEALED_S)
    finally:
        cluster.close()


def end_in(cluster):
    try:
        return cluster.ask([f"{TOPIC}/0"], LATEST).result().get(f"{TOPIC}/0")
    except ClusterSilentError:
        return None


def test_a_partition_without_a_leader_is_not_taken_for_one_that_is_gone(settings):
    properties = checked_properties({**settings, "group.id": "g"}, vertex="in", reserved={})
    consumer = RangeConsumer(properties, SystemClock())

    try:
        assert consumer.watermarks(TOPIC, 0) == (0, 1)
        assert consumer.watermarks(TOPIC, 1) is None
        assert consumer.watermarks("no-such-topic", 0) is None
    finally:
        consumer.close()


def test_a_reader_that_hears_nothing_goes_on_with_another_client(broker, caplog):
    talking = {"debug": "generic", "log_level": "7"}
    given = {**broker.client_settings(), "group.id": "g", **talking}
    properties = checked_properties(given, vertex="in", reserved={})
    clock = ManualClock()
    consumer = RangeConsumer(properties, clock)
    found = []

    def read():
        for messages, _ in consumer.read(TOPIC, 0, start=0, end=2, byte_count=1_000):
            found.extend(message.offset() for message in messages)

    reading = threading.Thread(target=read, daemon=True)
    with caplog.at_level(logging.WARNING, LOGGER):
        reading.start()
        until(lambda: (clock.advance(100), len(clients_in(caplog)) > 1)[1], "another client")
    write(broker)
    reading.join(HEALED_S)
    consumer.close()

    assert found == [0, 1]


def clients_in(caplog):
    events = [record for record in caplog.records if record.message == "kafka_client"]
    return {record.bicycle_fields["client"] for record in events}
