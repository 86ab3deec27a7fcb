"""Markers behind aborted transactions, and publishing as a user of a broker that asks who it is."""

import json

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bicycle_runtime.connectors.kafka.errors import KafkaAccessError
from bicycle_runtime.connectors.kafka.marker import Marker, MarkerReader
from bicycle_runtime.connectors.kafka.settings import checked_properties
from bicycle_sdk.clock import SystemClock
from tests.kafka.sink_runs import SinkRun, messages_in
from tests.kafka_broker import USERS, create_topic


def nothing() -> None:
    pass


@pytest.fixture
def reader(kafka_broker):
    def make(topic):
        client = checked_properties({}, vertex="out", reserved={}).with_defaults(
            {"bootstrap.servers": kafka_broker.bootstrap}
        )
        return MarkerReader(client, topic, SystemClock(), nothing)

    return make


def write(broker, topic, epochs, *, commit=True):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for epoch in epochs:
        producer.begin_transaction()
        producer.produce(topic, Marker(identity="a", epoch=epoch).to_bytes(), b"0", partition=0)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)


def test_the_last_marker_is_found_behind_any_number_of_aborted_ones(topic, reader, kafka_broker):
    markers = topic(partitions=2, cleanup_policy="compact")
    write(kafka_broker, markers, range(1, 6))
    write(kafka_broker, markers, range(6, 40), commit=False)

    assert reader(markers).last([0, 1]) == {0: Marker(identity="a", epoch=5)}


def test_a_topic_with_aborted_markers_only_has_none(topic, reader, kafka_broker):
    markers = topic(cleanup_policy="compact")
    write(kafka_broker, markers, range(1, 30), commit=False)

    assert reader(markers).last([0]) == {}


def test_a_marker_of_an_open_transaction_does_not_count(topic, reader, kafka_broker):
    markers = topic(cleanup_policy="compact")
    write(kafka_broker, markers, [1])
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": "open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(markers, Marker(identity="a", epoch=2).to_bytes(), b"0", partition=0)
    producer.flush(30)

    assert reader(markers).last([0]) == {0: Marker(identity="a", epoch=1)}
    producer.abort_transaction(30)


def test_a_secure_broker_is_written_to_without_the_password_being_anywhere(
    secure_kafka_broker, tmp_path, monkeypatch, caplog, topic_numbers
):
    settings = secure_kafka_broker.client_settings("ada")
    name = f"secure-{next(topic_numbers)}"
    create_topic(AdminClient(settings), name)
    monkeypatch.setenv("ADA_PASSWORD", settings["sasl.password"])
    own = {key: value for key, value in settings.items() if key != "bootstrap.servers"}
    own["sasl.password"] = {"secret": {"env": "ADA_PASSWORD"}}
    run = SinkRun(
        folder=tmp_path, brokers=secure_kafka_broker.bootstrap, topic=name, record_type=str,
        job=name, properties={"guarantee": "exactly-once", "properties": own},
    ).start()  # fmt: skip

    run.run(["ada", "bob"])
    run.sink.stop()

    shown = repr(run.sink.writer().plan) + json.dumps(run.state) + caplog.text
    assert USERS["ada"] not in shown
    assert [m.value for m in messages_in(settings, name)] == [b"ada", b"bob"]


def test_a_wrong_password_is_refused_at_the_start(secure_kafka_broker, tmp_path, monkeypatch):
    settings = secure_kafka_broker.client_settings("ada")
    monkeypatch.setenv("ADA_PASSWORD", "not-her-password")
    own = {key: value for key, value in settings.items() if key != "bootstrap.servers"}
    own["sasl.password"] = {"secret": {"env": "ADA_PASSWORD"}}
    run = SinkRun(
        folder=tmp_path, brokers=secure_kafka_broker.bootstrap, topic="t",
        properties={"connect_timeout_ms": 60_000, "properties": own},
    )  # fmt: skip

    with pytest.raises(KafkaAccessError) as caught:
        run.start()
    run.sink.stop()

    assert "not-her-password" not in str(caught.value)


def test_one_producer_serves_many_epochs(kafka_broker, topic, tmp_path):
    markers = topic(cleanup_policy="compact")
    run = SinkRun(
        folder=tmp_path, brokers=kafka_broker.bootstrap, topic=topic(), record_type=str,
        properties={"guarantee": "exactly-once", "marker_topic": markers},
    ).start()  # fmt: skip

    for epoch in range(5):
        run.run([str(epoch)])
    run.sink.stop()

    found = messages_in(kafka_broker.bootstrap, markers)
    # A producer that is opened writes one empty record, to see what lies before it.
    assert [message.value is None for message in found] == [True, *5 * [False]]
