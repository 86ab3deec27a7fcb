"""Topics that end in markers, aborted or open transactions: where reading ends, and what lag is."""

import asyncio
import logging

import pytest
from confluent_kafka import Producer

from bicycle_runtime.contract import Budget
from bicycle_streams import connect
from bicycle_streams.kafka.errors import TRANSACTION_LEFT_UNREAD
from tests.kafka.kafka_feeding import ONE, feed, feed_transactions, values
from tests.raising import raises

FEW = Budget(record_count=3, byte_count=1 << 20, parallelism=1)


@pytest.fixture
def begin(kafka_broker):
    """Begin a transaction with some values, and leave it open; the test may end it."""
    producers = []

    def start(name, values):
        settings = {**kafka_broker.client_settings(), "transactional.id": f"open-{name}"}
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value, partition=0)
        assert producer.flush(30) == 0
        producers.append(producer)
        return producer

    yield start
    for producer in producers:
        producer.purge()
        producer.abort_transaction(30)


def read_on(run, budget=ONE):
    """Read until the source shows neither input nor anything to seal."""
    found = []
    while (status := run.source.poll()).has_input or status.unknown_shards:
        run.services.clock.advance(10)
        if status.has_input:
            epoch = run.read(budget)
            run.seal(epoch)
            found += epoch.values
    return found, status


@pytest.mark.parametrize("budget", [ONE, FEW])
@pytest.mark.parametrize("script", ["c", "ca", "caaa", "aca", "a"])
def test_lag_is_zero_behind_the_last_visible_message(kafka_broker, topic, reading, script, budget):
    name = topic()
    committed = feed_transactions(kafka_broker, name, script)
    run = reading(topics=[name])

    found, status = read_on(run, budget)

    assert found == committed
    assert (status.lag.record_count, status.lag.age_ms) == (0, 0)
    assert status.shard_lags[f"{name}/0"].record_count == 0


def test_lag_is_zero_before_a_transaction_that_hangs(kafka_broker, topic, reading, begin):
    name = topic()
    feed(kafka_broker, name, ["before"])
    begin(name, ["hangs", "too"])
    feed(kafka_broker, name, ["behind it"])
    run = reading(topics=[name])

    found, status = read_on(run)

    assert found == ["before"]
    assert status.lag.record_count == 0


@pytest.mark.parametrize("is_committed", [True, False])
def test_bounded_reading_waits_for_a_transaction_that_is_open(
    kafka_broker, topic, reading, begin, is_committed
):
    name = topic()
    feed(kafka_broker, name, ["before"])
    producer = begin(name, ["a", "b"])
    feed(kafka_broker, name, ["behind it"])
    run = reading(topics=[name], bounded=True)
    found, status = read_on(run)
    assert (found, status.is_finished) == (["before"], False)

    run.restart()
    assert not run.source.poll().is_finished
    if is_committed:
        producer.commit_transaction(30)
        producer.begin_transaction()
    else:
        producer.abort_transaction(30)
        producer.begin_transaction()
    feed(kafka_broker, name, ["too late"])

    expected = ["a", "b", "behind it"] if is_committed else ["behind it"]
    assert values(run.drain(count=len(expected))) == expected
    assert run.source.poll().is_finished


def test_bounded_reading_reports_what_it_leaves_of_a_transaction_that_hangs(
    kafka_broker, topic, reading, begin, caplog
):
    name = topic()
    feed(kafka_broker, name, ["before"])
    begin(name, ["a", "b"])
    feed(kafka_broker, name, ["behind it"])
    run = reading(topics=[name], bounded=True, transaction_wait_ms=60_000)
    found, status = read_on(run)
    assert (found, status.is_finished) == (["before"], False)

    with caplog.at_level(logging.INFO):
        run.services.clock.advance(59_000)
        assert not run.source.poll().is_finished
        run.services.clock.advance(1_000)
        read_on(run)
        assert run.source.poll().is_finished

    waits, left = [r for r in caplog.records if "transaction" in r.message]
    assert waits.message == "kafka_waits_for_transaction"
    assert left.message == "kafka_transaction_left_unread"
    assert left.bicycle_fields["partition"] == f"{name}/0"
    assert (left.bicycle_fields["offset"], left.bicycle_fields["unread_offset_count"]) == (1, 3)


async def read_to_the_end(broker, name, **options):
    """Return the payloads that a program reads until the stream ends."""
    uri = f"kafka://{broker.bootstrap}"
    async with asyncio.timeout(120), connect(uri, options) as streamer:
        consumer = await streamer.create_consumer(name, start="earliest", is_live=False)
        return [message.as_str() async for message in consumer]


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_program_that_reads_to_the_end_waits_for_an_open_transaction(
    kafka_broker, topic, begin, is_committed
):
    name = topic()
    feed(kafka_broker, name, ["before"])
    producer = begin(name, ["in it"])
    feed(kafka_broker, name, ["behind it"])
    end = producer.commit_transaction if is_committed else producer.abort_transaction

    async def scenario():
        reading = asyncio.create_task(read_to_the_end(kafka_broker, name))
        done, _ = await asyncio.wait([reading], timeout=3)
        assert not done  # Without the wait, the read ends within milliseconds.
        await asyncio.to_thread(end, 30)
        producer.begin_transaction()  # The fixture ends one.
        return await reading

    expected = ["before", *(["in it"] if is_committed else []), "behind it"]
    assert asyncio.run(scenario()) == expected


def test_a_transaction_that_outlasts_the_limit_is_an_error_of_the_program(
    kafka_broker, topic, begin
):
    name = topic()
    feed(kafka_broker, name, ["before"])
    begin(name, ["hangs"])

    with raises(TRANSACTION_LEFT_UNREAD, match=f"{name}/0 from offset 1"):
        asyncio.run(read_to_the_end(kafka_broker, name, transaction_wait_ms=1_500))


@pytest.mark.parametrize("script", ["c", "ca", "caaa", "aca", "a"])
def test_a_program_ends_after_markers_and_aborted_transactions(kafka_broker, topic, script):
    name = topic()
    committed = feed_transactions(kafka_broker, name, script)

    assert asyncio.run(read_to_the_end(kafka_broker, name)) == committed
