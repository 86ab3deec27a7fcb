"""The Kafka source when messages are gone, topics are made again, or the broker dies or hangs."""

import logging
import threading

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from bicycle_runtime.connectors.kafka import cluster, consuming
from bicycle_runtime.connectors.kafka.consuming import RangeConsumer
from bicycle_runtime.connectors.kafka.discovery import DOUBT_S
from bicycle_runtime.connectors.kafka.errors import KafkaOffsetsLostError, KafkaTopicReplacedError
from bicycle_runtime.connectors.kafka.settings import checked_properties
from bicycle_runtime.contract import Budget
from bicycle_runtime.jobs.supervision.restarts import may_pass
from bicycle_runtime.testing.connectors.running import eventually
from bicycle_sdk.clock import SystemClock
from tests.kafka.kafka_feeding import ONE, feed, values
from tests.kafka_broker import create_topic
from tests.waiting import PATIENCE_S

FEW = Budget(record_count=5, byte_count=1 << 20, parallelism=1)


@pytest.fixture
def lose(kafka_admin):
    """Remove all messages of partition 0 before an offset, as retention does."""

    def remove(topic, before):
        [future] = kafka_admin.delete_records([TopicPartition(topic, 0, before)]).values()
        future.result()

    return remove


def begun(run):
    """Read and seal five records, maybe behind an epoch that only seals where reading begins."""
    found = []
    while not found:
        run.poll_for_input()
        epoch = run.read(FEW)
        run.seal(epoch)
        found = epoch.values
    assert len(found) == 5
    return run


def see_messages(run):
    """Poll until the source knows of messages: at first it may only have a start to seal."""
    eventually(lambda: bool(run.source.poll().waiting_shards))


def numbers(*bounds):
    return [str(number) for number in range(*bounds)]


# --- retention -----------------------------------------------------------------------------------


def test_a_restart_whose_offsets_are_gone_fails_with_both_offsets(
    kafka_broker, topic, reading, lose
):
    name = topic()
    feed(kafka_broker, name, numbers(20))
    run = begun(reading(topics=[name]))
    lose(name, 12)

    with pytest.raises(KafkaOffsetsLostError) as caught:
        run.restart()

    facts = caught.value.facts
    assert (facts["partition"], facts["next"]) == (f"{name}/0", 5)
    assert (facts["low"], facts["high"]) == (12, 20)
    assert facts["found"] == "has offsets 12 to 20"


def test_a_task_whose_messages_vanish_before_it_reads_fails_likewise(
    kafka_broker, topic, reading, lose
):
    name = topic()
    feed(kafka_broker, name, numbers(20))
    run = reading(topics=[name])
    see_messages(run)
    lose(name, 12)

    with pytest.raises(KafkaOffsetsLostError) as caught:
        run.read(ONE)

    facts = caught.value.facts
    assert (facts["next"], facts["low"], facts["high"]) == (0, 12, 20)


@pytest.mark.parametrize(("policy", "left"), [("earliest", numbers(12, 20)), ("latest", ["new"])])
def test_a_restart_goes_on_by_the_policy_and_says_how_much_was_lost(
    kafka_broker, topic, reading, lose, caplog, policy, left
):
    name = topic()
    feed(kafka_broker, name, numbers(20))
    run = begun(reading(topics=[name], on_data_loss=policy))
    lose(name, 12)

    with caplog.at_level(logging.WARNING):
        run.restart()
    if policy == "latest":
        run.drain()  # Where it goes on is sealed before anything is read.
        feed(kafka_broker, name, ["new"])
        run.restart()

    assert values(run.drain(count=len(left))) == left
    [record] = [r for r in caplog.records if r.message == "kafka_offsets_lost"]
    assert record.bicycle_fields["next"] == 5
    assert record.bicycle_fields["low"] == 12


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_task_whose_messages_vanish_reads_what_is_left_by_either_policy(
    kafka_broker, topic, reading, lose, policy
):
    name = topic()
    feed(kafka_broker, name, numbers(20))
    run = reading(topics=[name], on_data_loss=policy)
    see_messages(run)
    lose(name, 12)

    epoch = run.read(ONE)

    assert epoch.values == numbers(12, 20)
    assert epoch.ends == {f"{name}/0": 20}


def test_what_retention_removed_is_noticed_while_nothing_is_read(
    kafka_broker, topic, reading, lose
):
    name = topic()
    feed(kafka_broker, name, numbers(20))
    run = begun(reading(topics=[name]))
    lose(name, 12)

    run.services.clock.advance(10_000)

    with pytest.raises(KafkaOffsetsLostError):
        run.source.poll()


def test_a_bounded_source_that_is_at_its_end_misses_nothing(kafka_broker, topic, reading, lose):
    name = topic()
    feed(kafka_broker, name, numbers(5))
    run = reading(topics=[name], bounded=True)
    assert values(run.drain(count=5)) == numbers(5)
    feed(kafka_broker, name, numbers(5, 20))
    lose(name, 12)

    run.restart()

    assert values(run.drain()) == []
    assert run.source.poll().is_finished


# --- topics deleted and made again ----------------------------------------------------------------


def made_anew(admin, name, count, broker):
    admin.delete_topics([name])[name].result()
    eventually(lambda: name not in admin.list_topics(timeout=5).topics)
    create_topic(admin, name)
    feed(broker, name, [f"new {number}" for number in range(count)])


@pytest.mark.parametrize("count", [2, 30])
def test_a_topic_that_was_made_anew_is_told_from_the_old_one(
    kafka_broker, kafka_admin, topic, reading, count
):
    name = topic()
    feed(kafka_broker, name, numbers(20))
    run = begun(reading(topics=[name]))
    made_anew(kafka_admin, name, count, kafka_broker)

    with pytest.raises(KafkaOffsetsLostError) as caught:
        run.restart()

    assert (caught.value.facts["next"], caught.value.facts["high"]) == (5, count)


def test_a_topic_that_was_made_anew_is_read_from_its_start_when_loss_is_accepted(
    kafka_broker, kafka_admin, topic, reading
):
    name = topic()
    feed(kafka_broker, name, numbers(20))
    run = begun(reading(topics=[name], on_data_loss="earliest"))
    made_anew(kafka_admin, name, 3, kafka_broker)

    run.restart()

    assert values(run.drain(count=3)) == ["new 0", "new 1", "new 2"]
    assert run.offsets == {f"{name}/0": 3}


@pytest.mark.parametrize("count", [3, 30])
def test_a_topic_that_is_created_again_while_the_job_runs_is_read_from_its_start(
    kafka_broker, kafka_admin, topic, reading, caplog, count
):
    name = topic()
    feed(kafka_broker, name, numbers(20))
    run = begun(reading(topics=[name], on_data_loss="earliest"))
    assert values(run.drain(count=15)) == numbers(5, 20)

    with caplog.at_level(logging.WARNING):
        made_anew(kafka_admin, name, count, kafka_broker)
        run.services.clock.advance(1_000)
        found = values(run.drain(count=count))

    assert found == [f"new {number}" for number in range(count)]
    [record] = [r for r in caplog.records if r.message == "kafka_offsets_lost"]
    assert record.bicycle_fields["problem"] == "the topic was deleted and recreated"
    assert record.bicycle_fields["record_count"] is None


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_task_that_meets_a_topic_created_again_leaves_the_decision_to_the_driver(
    kafka_broker, kafka_admin, topic, reading, policy
):
    name = topic()
    feed(kafka_broker, name, numbers(20))
    run = begun(reading(topics=[name], on_data_loss=policy))
    see_messages(run)
    run.reader.close()  # It has fetched ahead.
    made_anew(kafka_admin, name, 3, kafka_broker)

    epoch = run.read(ONE)
    assert (epoch.values, epoch.ends) == ([], {f"{name}/0": 5})
    run.seal(epoch)
    feed(kafka_broker, name, [f"new {number}" for number in range(3, 30)])
    count = 30 if policy == "earliest" else 0
    try:
        found = values(run.drain(count=count))
    except KafkaTopicReplacedError:  # Found between two looks: the epoch is not sealed.
        found = values(run.restart().drain(count=count))

    assert found == ([f"new {number}" for number in range(30)] if policy == "earliest" else [])


def test_a_topic_that_is_created_again_while_the_job_runs_is_an_error_by_default(
    kafka_broker, kafka_admin, topic, reading
):
    name = topic()
    feed(kafka_broker, name, numbers(20))
    run = begun(reading(topics=[name]))
    made_anew(kafka_admin, name, 30, kafka_broker)
    run.services.clock.advance(1_000)

    with pytest.raises(KafkaOffsetsLostError) as caught:
        run.drain(count=1)
    assert (caught.value.facts["next"], caught.value.facts["high"]) == (5, 30)


@pytest.mark.parametrize("policy", ["earliest", "latest", "fail"])
def test_an_epoch_with_messages_of_a_topic_created_again_is_not_sealed(
    kafka_broker, kafka_admin, topic, reading, policy
):
    """The topic is exchanged within the second between two comparisons of its id."""
    name = topic()
    feed(kafka_broker, name, numbers(20))
    run = begun(reading(topics=[name], on_data_loss=policy))
    see_messages(run)
    run.reader.close()  # It has fetched ahead.
    made_anew(kafka_admin, name, 30, kafka_broker)

    epoch = run.read(ONE)
    assert epoch.values == [f"new {number}" for number in range(5, 20)]
    if policy == "fail":
        with pytest.raises(KafkaOffsetsLostError):
            run.seal(epoch)
        return
    with pytest.raises(KafkaTopicReplacedError) as caught:
        run.seal(epoch)
    assert may_pass(caught.value)
    assert run.offsets == {f"{name}/0": 5}

    run.restart()
    found = values(run.drain(count=30 if policy == "earliest" else 0))
    assert found == ([f"new {number}" for number in range(30)] if policy == "earliest" else [])


def test_a_slow_answer_about_a_topic_created_again_is_waited_for_before_the_seal(
    new_kafka_broker, reading
):
    broker = new_kafka_broker()
    admin = AdminClient(broker.client_settings())
    create_topic(admin, "t")
    feed(broker, "t", numbers(20))
    run = begun(reading(broker=broker, topics=["t"], on_data_loss="earliest"))
    see_messages(run)
    run.reader.close()  # It has fetched ahead.
    made_anew(admin, "t", 30, broker)
    epoch = run.read(ONE)
    assert epoch.values == [f"new {number}" for number in range(5, 20)]

    broker.pause()
    slow = threading.Timer(0.5, broker.resume)
    slow.start()
    with pytest.raises(KafkaTopicReplacedError):
        run.seal(epoch)

    slow.join()
    found = values(run.restart().drain(count=30))
    assert found == [f"new {number}" for number in range(30)]


def test_a_deleted_topic_is_a_loss_only_after_a_while(kafka_broker, kafka_admin, topic, reading):
    name = topic()
    feed(kafka_broker, name, numbers(20))
    run = begun(reading(topics=[name]))
    kafka_admin.delete_topics([name])[name].result()
    eventually(lambda: name not in kafka_admin.list_topics(timeout=5).topics)

    eventually(lambda: not run.source.poll().has_input)
    run.services.clock.advance(int(DOUBT_S * 1_000))

    with pytest.raises(KafkaOffsetsLostError) as caught:
        run.source.poll()
    facts = caught.value.facts
    assert (facts["next"], facts["high"], facts["found"]) == (5, -1, "does not exist")


def test_a_deleted_topic_of_a_pattern_is_left_when_loss_is_accepted(
    kafka_broker, kafka_admin, topic, reading
):
    name, other = topic(), topic()
    feed(kafka_broker, name, numbers(20))
    run = begun(reading(topic_pattern=f"{name}|{other}", on_data_loss="earliest"))
    kafka_admin.delete_topics([name])[name].result()
    eventually(lambda: name not in kafka_admin.list_topics(timeout=5).topics)
    eventually(lambda: not run.source.poll().has_input)
    run.services.clock.advance(int(DOUBT_S * 1_000))
    feed(kafka_broker, other, ["still read"])

    assert values(run.drain(count=1)) == ["still read"]


# --- outages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_broker_that_ends_is_an_outage_that_ends_by_itself(
    new_kafka_broker, reading, caplog, end
):
    broker = new_kafka_broker()
    create_topic(AdminClient(broker.client_settings()), "t", partitions=2)
    feed(broker, "t", numbers(20))
    run = begun(reading(broker=broker, topics=["t"], discovery_interval_ms=100))

    with caplog.at_level(logging.INFO):
        getattr(broker, end)()
        eventually(lambda: not run.source.poll().has_input)
        for _ in range(20):
            run.services.clock.advance(1_000)
            assert not run.source.poll().has_input
            assert run.source.plan(FEW) == []
        broker.start()
        found = values(run.drain(FEW, count=15, wait_s=PATIENCE_S))

    assert found == numbers(5, 20)
    events = [record.message for record in caplog.records]
    assert events.count("kafka_unreachable") == 1
    assert events.count("kafka_reachable") == 1


def test_a_task_waits_for_a_broker_that_is_killed_and_started_again(new_kafka_broker, reading):
    broker = new_kafka_broker()
    create_topic(AdminClient(broker.client_settings()), "t")
    feed(broker, "t", numbers(20))
    run = reading(broker=broker, topics=["t"])
    see_messages(run)
    slices = run.source.plan(ONE)
    broker.kill()
    found = []

    task = threading.Thread(
        target=lambda: found.extend(v for b in run.reader.read(slices[0]) for v in b.values)
    )
    task.start()
    broker.start()
    task.join(60)

    assert found == numbers(20)


def test_a_hanging_broker_is_an_outage_and_polls_stay_short(new_kafka_broker, reading):
    broker = new_kafka_broker()
    create_topic(AdminClient(broker.client_settings()), "t")
    feed(broker, "t", numbers(20))
    run = begun(reading(broker=broker, topics=["t"]))

    broker.pause()
    try:
        eventually(lambda: not polled(run).has_input)
    finally:
        broker.resume()

    assert values(run.drain(FEW, count=15, wait_s=PATIENCE_S)) == numbers(5, 20)


def test_partitions_without_a_fresh_answer_are_not_idle(new_kafka_broker, reading):
    broker = new_kafka_broker()
    create_topic(AdminClient(broker.client_settings()), "t", partitions=2)
    feed(broker, "t", numbers(5))
    run = begun(reading(broker=broker, topics=["t"]))
    both = {"t/0", "t/1"}
    eventually(lambda: not run.source.poll().unknown_shards)

    def is_unanswered():
        run.source.sealed({})  # An epoch of another source.
        status = run.source.poll()
        return status.is_reachable and status.unknown_shards == both

    broker.pause()
    try:
        eventually(is_unanswered)  # It may go on for some milliseconds.
        run.source.sealed({})
    finally:
        broker.resume()
    feed(broker, "t", ["waits"], partition=1)

    # The answer to the question of before that epoch comes first: nothing waits, it says.
    status = run.source.poll()
    while status.unknown_shards:
        assert status.unknown_shards == both
        status = run.source.poll()
    assert status.waiting_shards == {"t/1"}


class DeafClient:
    """A client that has forgotten all brokers; that a real one does depends on milliseconds."""

    def __init__(self, client):
        self._client = client

    def offsets_for_times(self, _places, timeout):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def __getattr__(self, name):
        return getattr(self._client, name)


def test_a_client_that_has_forgotten_all_brokers_is_replaced(
    kafka_broker, kafka_admin, topic, reading, monkeypatch, caplog
):
    monkeypatch.setattr(cluster, "_RENEW_S", 0.5)
    name = topic()
    feed(kafka_broker, name, numbers(20))
    run = begun(reading(topics=[name], group_id=name))
    run.source._cluster._client = DeafClient(run.source._cluster._client)

    with caplog.at_level(logging.INFO):
        eventually(lambda: not polled(run).is_reachable)
        assert values(run.drain(count=15, wait_s=PATIENCE_S)) == numbers(5, 20)
        run.source.stop()

    events = [record.message for record in caplog.records]
    kinds = ("kafka_unreachable", "kafka_client_renewed", "kafka_reachable")
    assert [event for event in events if event in kinds] == list(kinds)
    [asked] = kafka_admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]).values()
    assert [place.offset for place in asked.result().topic_partitions] == [20]


def test_so_is_that_of_a_task_that_asks_for_offsets(kafka_broker, topic, monkeypatch):
    monkeypatch.setattr(consuming, "_SILENCE_S", 0.5)
    name = topic()
    feed(kafka_broker, name, numbers(3))
    given = {**kafka_broker.client_settings(), "group.id": name}
    consumer = RangeConsumer(checked_properties(given, vertex="in", reserved={}), SystemClock())

    try:
        assert consumer.watermarks(name, 0) == (0, 3)
        consumer._client = DeafClient(consumer._client)
        assert consumer.watermarks(name, 0) == (0, 3)
    finally:
        consumer.close()


def polled(run):
    run.services.clock.advance(200)
    return run.source.poll()
