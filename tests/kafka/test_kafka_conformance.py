"""The Kafka connectors against the conformance suite, on a real broker that goes away meanwhile."""

import itertools
import json

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bicycle_runtime.connectors import builtin
from bicycle_runtime.contract import Guarantee
from bicycle_runtime.testing.connectors import (
    CanBeUnwritable,
    CarriesMetadata,
    EndlessSourceCase,
    ExtensionSuite,
    FeedsBadRecords,
    HasOutages,
    Metadata,
    SinkCase,
    SinkSuite,
    SourceSuite,
)
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.kafka import DeliveryGuarantee, KafkaSinkBuilder, KafkaSourceBuilder
from tests.kafka.sink_runs import messages_in
from tests.kafka_broker import broker_in, create_topic, end

pytest_plugins = ["bicycle_streams.testing.plugin"]

PARTITIONS = 3
_numbers = itertools.count()


@pytest.fixture(scope="module")
def shaky_broker(tmp_path_factory):
    """A broker of this file, which its tests freeze; for its own controller it lives meanwhile."""
    settings = {"broker.session.timeout.ms": "60000"}
    broker = broker_in(tmp_path_factory.mktemp("shaky-kafka"), extra=settings)
    try:
        broker.start()
        yield broker
    finally:
        broker.resume()
        end(broker)


class KafkaCase(HasOutages):
    """A topic of its own for each test; an outage is a broker that does not answer."""

    clock = SystemClock()
    wait_s = 60.0
    outage_s = 3.0

    def join(self, broker):
        self.broker = broker
        self.topic = f"conformance-{next(_numbers)}"
        create_topic(AdminClient(broker.client_settings()), self.topic, partitions=PARTITIONS)
        return self

    def break_transport(self):
        self.broker.pause()

    def repair_transport(self):
        self.broker.resume()


class KafkaSourceCase(KafkaCase, EndlessSourceCase, FeedsBadRecords, CarriesMetadata):
    word = "kafka"
    is_ordered = False

    def record(self, number):
        return {"n": number}

    def metadata(self, number):
        headers = (("number", b"%d" % number),)
        return Metadata(timestamp_ms=1_000 + number, key=b"key %d" % number, headers=headers)

    def descriptor(self):
        builder = KafkaSourceBuilder(self.broker.bootstrap, self.topic)
        return builder.deserializer("json").key_deserializer("bytes").build_connector()

    def feed(self, numbers):
        producer = self.producer()
        for number in numbers:
            beside = self.metadata(number)
            producer.produce(
                self.topic,
                json.dumps(self.record(number)),
                partition=number % PARTITIONS,
                key=beside.key,
                headers=list(beside.headers),
                timestamp=beside.timestamp_ms,
            )
        assert producer.flush(self.wait_s) == 0

    def feed_bad(self):
        producer = self.producer()
        producer.produce(self.topic, b"{no json", partition=1)
        assert producer.flush(self.wait_s) == 0
        return b"{no json"

    def producer(self):
        return Producer({**self.broker.client_settings(), "linger.ms": 0})


class TestKafkaSource(SourceSuite):
    case_type = KafkaSourceCase

    @pytest.fixture
    def case(self, tmp_path, shaky_broker):
        return KafkaSourceCase(tmp_path).join(shaky_broker)


class KafkaSinkCase(KafkaCase, SinkCase, CanBeUnwritable):
    word = "kafka"

    def record(self, number):
        return f"record {number}"

    def descriptor(self):
        return self.sink_to(self.topic)

    def unwritable(self):
        return self.sink_to(f"{self.topic}-of-nobody")

    def sink_to(self, topic):
        builder = KafkaSinkBuilder(self.broker.bootstrap, topic, record_type=str)
        builder.key(len).delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        return builder.transactional_id_prefix(self.topic).build_connector()

    def visible(self):
        lanes = [[] for _ in range(PARTITIONS)]
        for message in messages_in(self.broker.bootstrap, self.topic):
            lanes[message.partition].append(message.value.decode())
        return lanes


class TestKafkaSink(SinkSuite):
    case_type = KafkaSinkCase

    @pytest.fixture
    def case(self, tmp_path, shaky_broker):
        return KafkaSinkCase(tmp_path).join(shaky_broker)


class AtLeastOnceCase(KafkaSinkCase):
    guarantee = Guarantee.AT_LEAST_ONCE

    def sink_to(self, topic):
        builder = KafkaSinkBuilder(self.broker.bootstrap, topic, record_type=str)
        return builder.key(len).build_connector()


class TestKafkaSinkAtLeastOnce(SinkSuite):
    case_type = AtLeastOnceCase

    @pytest.fixture
    def case(self, tmp_path, shaky_broker):
        return AtLeastOnceCase(tmp_path).join(shaky_broker)


class TestExtension(ExtensionSuite):
    extension = builtin
    suites = (TestKafkaSource, TestKafkaSink, TestKafkaSinkAtLeastOnce)
    sources = ("kafka",)
    sinks = ("kafka",)
