"""Partitions without a leader for a moment, seen by a client that comes at just that moment.

The controller of this broker takes it for dead after a second, and hears of it every two seconds:
in between nobody leads its partitions, though it answers.
"""

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from bicycle_runtime.base.clock import SystemClock
from bicycle_runtime.connectors.kafka.cluster import Cluster, ClusterSilentError
from bicycle_runtime.connectors.kafka.marker import Marker, MarkerReader
from bicycle_runtime.connectors.kafka.settings import checked_properties
from bicycle_runtime.dev.errors import TopicError
from tests.kafka_broker import broker_in, create_topic, end
from tests.waiting import until

FLAPPING = {"broker.heartbeat.interval.ms": "2000", "broker.session.timeout.ms": "1000"}
TOPIC = "t"
HEALED_S = 6.0  # Three rounds of the broker; a client that does not ask again waits for minutes.


@pytest.fixture(scope="module")
def admin(tmp_path_factory):
    """A client of a broker whose topic has one partition with one marker in it."""
    broker = broker_in(tmp_path_factory.mktemp("flapping-kafka"), extra=FLAPPING)
    try:
        broker.start()
        admin = AdminClient({**broker.client_settings(), "log_level": 0})
        until(lambda: is_made(admin), "the topic")
        producer = Producer({**broker.client_settings(), "log_level": 0})
        producer.produce(TOPIC, Marker(identity="a", epoch=5).to_bytes(), b"0", partition=0)
        assert producer.flush(30) == 0
        yield admin
    finally:
        end(broker)


@pytest.fixture
def settings(admin):
    """Of clients that come when the partition has just lost its leader."""
    [broker] = admin.list_topics(timeout=5).brokers.values()
    until(lambda: leader(admin) == broker.id, "a leader")
    until(lambda: leader(admin) == -1, "no leader")
    return {"bootstrap.servers": f"{broker.host}:{broker.port}"}


def is_made(admin):
    """Make the topic, unless the broker is taken for dead just now."""
    try:
        create_topic(admin, TOPIC, cleanup_policy="compact")
    except TopicError:
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

    assert reader.last([0]) == {0: Marker(identity="a", epoch=5)}


def test_ends_are_known_as_soon_as_the_partition_has_a_leader_again(settings):
    properties = checked_properties({}, vertex="in", reserved={})
    fixed = {**settings, "group.id": "g"}
    cluster = Cluster(properties, fixed, on_reported=lambda _error: None)

    try:
        until(lambda: end_in(cluster) == 1, "the end", patience_s=HEALED_S)
    finally:
        cluster.close()


def end_in(cluster):
    try:
        return cluster.ends([f"{TOPIC}/0"]).get(f"{TOPIC}/0")
    except ClusterSilentError:
        return None
