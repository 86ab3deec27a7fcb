"""The plugin ``wordcount_kafka`` as a user runs it, from topic to topic on a real broker."""

import json
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.spark.jobsite import JobSite

pytestmark = pytest.mark.spark

LINES = [f"to be or not to be {number % 7}" for number in range(500)] + ["", "  "]


@pytest.fixture
def job(tmp_path, spark_cache, kafka_broker, topic):
    """The job between two new topics; it ends when all is counted that was there."""
    site = JobSite(tmp_path / "site", spark_cache, plugin="wordcount_kafka")
    raw, counts = topic(partitions=4), topic(partitions=4)
    site.params = {
        "source": "kafka",
        "sink": "kafka",
        "brokers": kafka_broker.bootstrap,
        "raw_topic": raw,
        "counts_topic": counts,
        "group_id": raw,
        "transactional_id_prefix": counts,
        "bounded": "true",
    }
    yield site
    site.kill_everything()


def write_lines(broker, topic, lines):
    producer = Producer(broker.client_settings())
    for line in lines:
        producer.produce(topic, line.encode())
    assert producer.flush(30) == 0


def committed_messages(broker, topic):
    """Return key and value of each committed message, partition after partition in order."""
    consumer = Consumer(
        {
            **broker.client_settings(),
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found, ended = {number: [] for number in partitions}, set()
        while ended != found.keys():
            message = consumer.poll(30)
            assert message is not None, (topic, ended)
            if message.error() is None:
                found[message.partition()].append((message.key(), json.loads(message.value())))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        return [pair for number in sorted(found) for pair in found[number]]
    finally:
        consumer.close()


def assert_exact(broker, topic, lines):
    """Every word has the counts 1 to n, each once and in order, under the word as its key."""
    messages = committed_messages(broker, topic)
    counts: dict[str, list[int]] = {}
    for key, value in messages:
        assert value == {"word": key.decode(), "count": value["count"]}
        counts.setdefault(value["word"], []).append(value["count"])
    totals = Counter(" ".join(lines).split())
    assert counts == {word: list(range(1, total + 1)) for word, total in totals.items()}


def test_a_bounded_run_counts_all_that_is_there(job, kafka_broker):
    write_lines(kafka_broker, job.params["raw_topic"], LINES)

    first = job.finish().answer

    assert_exact(kafka_broker, job.params["counts_topic"], LINES)
    assert first["record_count"] == len(LINES)
    assert first["outputs"][0]["record_count"] == len(" ".join(LINES).split())


@pytest.mark.crash
@pytest.mark.parametrize(
    "fault",
    [
        "after_seal@2=kill",
        "transaction_produced@3=kill",
        "transaction_committed@3=kill",
    ],
)
def test_counts_go_on_exactly_once_after_the_driver_was_killed(job, kafka_broker, fault):
    write_lines(kafka_broker, job.params["raw_topic"], LINES)

    killed = job.run("--max-records-per-epoch", "120", faults=fault)
    assert killed.process.returncode == -9
    job.finish("--max-records-per-epoch", "120", "--parallelism", "3")

    assert_exact(kafka_broker, job.params["counts_topic"], LINES)
