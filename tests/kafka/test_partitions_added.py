"""Partitions that are added to a topic while a job on Spark reads it."""

import signal

import pytest
from confluent_kafka.admin import NewPartitions

from tests.kafka.kafka_feeding import feed
from tests.kafka.relay_plugin import RELAY
from tests.kafka.sink_runs import messages_in
from tests.plugin_zoo.zoo import install
from tests.waiting import until

pytestmark = pytest.mark.spark

BATCH = 200


def test_partitions_added_to_a_running_job_are_read_from_their_start_and_in_order(
    new_site, kafka_broker, kafka_admin, topic
):
    site = new_site("relay")
    install(site.plugins, RELAY)
    source, target = topic(partitions=2), topic(partitions=3)
    site.params = {"brokers": kafka_broker.bootstrap, "source": source, "target": target}

    def write(partitions, batch):
        for number in partitions:
            texts = [f"{number}:{batch * BATCH + index}" for index in range(BATCH)]
            feed(kafka_broker, source, texts, partition=number)

    def found():
        return messages_in(kafka_broker.client_settings(), target)

    write(range(2), 0)
    life = site.start()
    until(lambda: len(found()) == 2 * BATCH, "what was there")
    [grown] = kafka_admin.create_partitions([NewPartitions(source, 5)]).values()
    grown.result()
    for batch in range(1, 4):
        write(range(2), batch)
        write(range(2, 5), batch - 1)
    until(lambda: len(found()) >= (2 * 4 + 3 * 3) * BATCH, "what was written later")
    life.process.send_signal(signal.SIGTERM)
    assert life.wait() == 0, life.stderr

    by_key: dict[str, list[int]] = {}
    for message in found():
        key, _, number = message.value.decode().partition(":")
        by_key.setdefault(key, []).append(int(number))
    old, new = list(range(4 * BATCH)), list(range(3 * BATCH))
    assert by_key == {"0": old, "1": old, "2": new, "3": new, "4": new}
    offsets = site.manifest().offsets["in"]
    assert offsets == {f"{source}/{n}": len(old if n < 2 else new) for n in range(5)}
