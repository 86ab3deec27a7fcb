"""A job's at-least-once writer whose Kafka client reaches no broker continues with another one."""

import pytest
from confluent_kafka import Consumer, TopicPartition

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.connectors.kafka.encoding import MessagePlan
from bicycle_runtime.connectors.kafka.settings import checked_properties
from bicycle_runtime.connectors.kafka.writer import KafkaWriterFactory, WriterPlan
from bicycle_runtime.contract import WriterTask
from tests.deaf_client import SETTINGS, TOPIC, Broker


@pytest.fixture
def broker():
    found = Broker()
    yield found
    found.close()


def factory(broker):
    address = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "log_level": "0"}
    client = checked_properties(SETTINGS, vertex="out", reserved={}).with_defaults(address)
    return KafkaWriterFactory(
        WriterPlan(
            topic=TOPIC, is_staged=False,
            messages=MessagePlan(value_format="bytes", key_format="bytes", functions={}),
            client=client,
            producer={"delivery.report.only.error": True, "message.timeout.ms": "60000"},
        )
    )  # fmt: skip


def writer(made, tmp_path, epoch):
    storage = LocalStorage(str(tmp_path), is_synced=False)
    return made.open(WriterTask(storage=storage, prefix="x", epoch=epoch, subtask=0))


def read(broker):
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.port}", "log_level": 0, "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    return consumer.consume(3, 30)


def test_what_a_deaf_client_holds_is_sent_within_the_task(broker, tmp_path, monkeypatch):
    monkeypatch.setattr("bicycle_streams.kafka.producing._SILENCE_S", 1.0)
    made = factory(broker)
    first = writer(made, tmp_path, 1)
    first.write([{"value": b"before"}])
    first.finish()

    second = writer(made, tmp_path, 2)
    broker.make_deaf()
    second.write([{"value": b"one", "key": b"k", "headers": [("name", b"text")]}])
    second.write([{"value": b"two"}])
    broker.named_port = broker.port
    second.finish()

    found = [(message.value(), message.key(), message.headers()) for message in read(broker)]
    assert found == [
        (b"before", None, None),
        (b"one", b"k", [("name", b"text")]),
        (b"two", None, None),
    ]
