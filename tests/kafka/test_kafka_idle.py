"""An idle source lets the broker alone: it is woken by the first message, and consumers rest."""

import threading
import time
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from bicycle_runtime.connectors.kafka import consuming
from bicycle_runtime.contract import Budget
from bicycle_runtime.testing.connectors.running import eventually
from bicycle_sdk.clock import SystemClock
from tests.kafka.kafka_feeding import ONE, feed, source_run
from tests.kafka_broker import create_topic
from tests.waiting import PATIENCE_S

REST_MS = 500


@pytest.fixture
def sleeping(tmp_path):
    """Start sources that are woken by an event, and poll them until they rest."""
    runs = []

    def start(broker, topic, **properties):
        woken = threading.Event()
        run = source_run(broker, tmp_path, topics=[topic], **properties)
        run.services = replace(run.services, clock=SystemClock(), wake=woken.set)
        runs.append(run.start())
        fall_asleep(run)
        return run, woken

    yield start
    for run in runs:
        run.stop()


def fall_asleep(run):
    """Read what is there, until the source wants to be polled rarely."""

    def is_asleep():
        status = run.source.poll()
        if status.has_input:
            run.seal(run.read(ONE))
        return status.next_poll_ms == REST_MS

    eventually(is_asleep, PATIENCE_S)


def test_an_idle_source_asks_rarely_and_is_woken_by_a_message(kafka_broker, topic, sleeping):
    name = topic(partitions=2)
    feed(kafka_broker, name, ["read"])
    run, woken = sleeping(kafka_broker, name)

    for number in range(3):
        assert not woken.is_set()
        begun_s, asked = time.monotonic(), set()
        while time.monotonic() - begun_s < 1:
            assert not run.source.poll().has_input
            asked.add(run.source._asked_s)
        most = 2 + (time.monotonic() - begun_s) * 1_000 / REST_MS
        assert len(asked) <= most  # Instead of a hundred a second.
        feed(kafka_broker, name, [f"wakes {number}"], partition=number % 2)
        assert woken.wait(PATIENCE_S)

        eventually(lambda: run.source.poll().has_input, PATIENCE_S)
        epoch = run.read(ONE)
        run.seal(epoch)
        assert epoch.values == [f"wakes {number}"]
        fall_asleep(run)
        woken.clear()


def test_a_transaction_wakes_a_source_when_it_is_committed(kafka_broker, topic, sleeping):
    name = topic()
    run, woken = sleeping(kafka_broker, name)
    producer = Producer({**kafka_broker.client_settings(), "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, "seen late", partition=0)
    assert producer.flush(30) == 0
    assert not woken.wait(1)

    producer.commit_transaction(30)
    assert woken.wait(PATIENCE_S)
    eventually(lambda: run.source.poll().has_input, PATIENCE_S)


def test_what_the_listener_cannot_hear_is_found_by_asking(
    kafka_broker, kafka_admin, topic, sleeping
):
    name = topic()
    run, _ = sleeping(kafka_broker, name, discovery_interval_ms=100)
    [future] = kafka_admin.create_partitions([NewPartitions(name, 2)]).values()
    future.result()

    eventually(lambda: run.source.poll().has_input, PATIENCE_S)
    run.seal(run.read(ONE))
    fall_asleep(run)
    feed(kafka_broker, name, ["in the new one"], partition=1)
    eventually(lambda: f"{name}/1" in run.source.poll().waiting_shards, PATIENCE_S)


def test_a_source_that_sleeps_notices_an_outage_and_its_end(new_kafka_broker, sleeping):
    broker = new_kafka_broker()
    create_topic(AdminClient(broker.client_settings()), "t")
    run, woken = sleeping(broker, "t")
    broker.kill()
    eventually(lambda: not run.source.poll().is_reachable, PATIENCE_S)
    broker.start()
    eventually(lambda: run.source.poll().is_reachable, PATIENCE_S)
    fall_asleep(run)
    feed(broker, "t", ["after the outage"])

    assert woken.wait(PATIENCE_S)


def test_a_reader_that_is_not_used_fetches_nothing_and_goes_on_when_it_is(
    kafka_broker, topic, tmp_path, monkeypatch
):
    monkeypatch.setattr(consuming, "_REST_S", 0.1)
    name = topic()
    few = Budget(record_count=3, byte_count=1 << 20, parallelism=1)
    feed(kafka_broker, name, [str(number) for number in range(10)])
    run = source_run(kafka_broker, tmp_path, topics=[name]).start()
    try:
        found = []
        while len(found) < 10:
            if run.source.poll().has_input:
                epoch = run.read(few)
                run.seal(epoch)
                found += epoch.values
                if epoch.values:
                    client = run.reader._consumer._client
                    eventually(lambda: not client.assignment())  # noqa: B023 - called at once.
    finally:
        run.stop()

    assert found == [str(number) for number in range(10)]
