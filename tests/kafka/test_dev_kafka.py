"""The broker of `bicycle dev kafka`, for real: its life, its data, its security."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bicycle_runtime.dev.errors import (
    BROKER_CONFLICT,
    BROKER_MISSING,
    PORT_TAKEN,
    TOPIC_REFUSED,
)
from bicycle_runtime.dev.kafka_topics import list_topics
from bicycle_runtime.dev.waiting import wait_until
from tests.kafka_broker import broker_in, create_topic
from tests.raising import raises
from tests.waiting import PATIENCE_S, until


def produce(broker, topic, values, **settings):
    producer = Producer({**broker.client_settings(), **settings})
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(30) == 0


def values_in(broker, topic, count, **settings):
    """Return the first messages of a topic, read from its beginning."""
    consumer = Consumer(
        {**broker.client_settings(), "group.id": "reader", "auto.offset.reset": "earliest"}
        | settings
    )
    consumer.subscribe([topic])
    try:
        return [message.value().decode() for message in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()


@pytest.mark.core
def test_messages_go_in_and_come_out(kafka_broker, topic):
    name = topic()

    produce(kafka_broker, name, ["ada", "bob"])

    assert values_in(kafka_broker, name, 2) == ["ada", "bob"]


def test_topics_are_made_on_purpose_only(kafka_admin, topic):
    first, second = topic(partitions=3), topic(cleanup_policy="compact")

    kafka_admin.list_topics("never-made", timeout=10)
    found = {info.name: info.partitions for info in list_topics(kafka_admin)}

    assert (found[first], found[second]) == (3, 1)
    assert "never-made" not in found
    assert not any(name.startswith("__") for name in found)


def test_a_topic_that_exists_or_has_no_fit_name_is_refused(kafka_admin, topic):
    for name in (topic(), "two words"):
        with raises(TOPIC_REFUSED) as error:
            create_topic(kafka_admin, name)
        assert error.value.facts["topic"] == name


def test_a_transaction_is_committed(kafka_broker, topic):
    name = topic()
    producer = Producer({**kafka_broker.client_settings(), "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"ada")
    producer.commit_transaction(30)

    settings = {"isolation.level": "read_committed"}
    assert values_in(kafka_broker, name, 1, **settings) == ["ada"]


def test_a_killed_broker_starts_again_at_its_place_with_its_data(new_kafka_broker):
    broker = new_kafka_broker()
    bootstrap, pid = broker.bootstrap, broker.pid
    create_topic(AdminClient(broker.client_settings()), "words")
    produce(broker, "words", ["ada"])

    broker.kill()
    assert not broker.is_running()
    assert not broker.is_answering()
    assert broker.start()

    assert broker.bootstrap == bootstrap
    assert broker.pid != pid
    assert values_in(broker, "words", 1) == ["ada"]


def test_messages_with_times_in_the_past_are_kept(new_kafka_broker):
    broker = new_kafka_broker(extra={"log.retention.check.interval.ms": "100"})
    admin = AdminClient(broker.client_settings())
    create_topic(admin, "kept")
    create_topic(admin, "removed", retention_ms="604800000")
    producer = Producer(broker.client_settings())
    for name in ("kept", "removed"):
        producer.produce(name, b"ada", timestamp=1_000)
    assert producer.flush(30) == 0
    reader = Consumer({**broker.client_settings(), "group.id": "reader"})
    begins = {name: TopicPartition(name, 0) for name in ("kept", "removed")}
    until(lambda: reader.get_watermark_offsets(begins["removed"]) == (1, 1), "a removal")

    assert reader.get_watermark_offsets(begins["kept"]) == (0, 1)
    reader.close()


def test_a_paused_broker_does_not_answer_until_it_is_resumed(new_kafka_broker):
    broker = new_kafka_broker()

    broker.pause()
    assert broker.is_running()
    # Its threads halt one by one, as each gets to run.
    until(lambda: not broker.is_answering(timeout_s=0.5), "silence")
    broker.resume()
    until(lambda: broker.is_answering(timeout_s=10), "an answer")


def test_a_paused_broker_can_be_stopped(new_kafka_broker):
    broker = new_kafka_broker()
    broker.pause()

    assert broker.stop()
    with raises(BROKER_MISSING):
        broker.stop()


def test_starting_twice_gives_the_broker_that_runs(kafka_broker):
    other = broker_in(kafka_broker.folder)

    assert not other.start()
    assert other.bootstrap == kafka_broker.bootstrap
    assert other.pid == kafka_broker.pid


def test_a_broker_that_runs_on_another_port_is_not_taken_for_the_one_asked_for(kafka_broker):
    found = int(kafka_broker.bootstrap.rpartition(":")[2])

    with raises(BROKER_CONFLICT) as error:
        broker_in(kafka_broker.folder, port=found + 1).start()

    assert error.value.facts["found"] == found
    assert error.value.facts["asked"] == found + 1


def test_a_port_that_is_taken_is_refused_before_anything_starts(kafka_broker, tmp_path):
    port = int(kafka_broker.bootstrap.rpartition(":")[2])
    second = broker_in(tmp_path / "second", port=port)

    with raises(PORT_TAKEN) as error:
        second.start()

    assert error.value.facts["port"] == port
    assert not second.is_running()


def test_users_get_in_by_scram_over_tls(secure_kafka_broker):
    settings = secure_kafka_broker.client_settings("ada")
    create_topic(AdminClient(settings), "secrets")

    produce(secure_kafka_broker, "secrets", ["ada"], **settings)

    assert settings["security.protocol"] == "SASL_SSL"
    assert values_in(secure_kafka_broker, "secrets", 1, **settings) == ["ada"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"sasl.password": "guessed"}, KafkaError._AUTHENTICATION),
        ({"sasl.username": "eve"}, KafkaError._AUTHENTICATION),
        ({"security.protocol": "PLAINTEXT"}, KafkaError._ALL_BROKERS_DOWN),
        ({"security.protocol": "SASL_PLAINTEXT"}, KafkaError._ALL_BROKERS_DOWN),
        ({"ssl.ca.location": "probe"}, KafkaError._SSL),
    ],
    ids=str,
)
def test_nobody_else_gets_in(secure_kafka_broker, wrong, reason):
    told = []
    settings = secure_kafka_broker.client_settings("ada") | wrong
    client = Producer(settings | {"log_level": 0, "error_cb": told.append})

    def is_refused():
        client.poll(0.1)
        return reason in {error.code() for error in told}

    assert wait_until(is_refused, timeout_s=PATIENCE_S), told
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.2)
