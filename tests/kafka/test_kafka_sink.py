"""The Kafka sink on a real broker: what arrives, how often, and what is refused at the start."""

import itertools
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from bicycle_runtime.base.faults import TRANSACTION_POINTS, InjectedFault, arm_fault, disarm_faults
from bicycle_runtime.connectors.kafka.errors import (
    KAFKA_DELIVERY_FAILED,
    KAFKA_HISTORY_AHEAD,
    KAFKA_OTHER_PUBLISHER,
    KAFKA_PUBLISH_REFUSED,
    KAFKA_TOPIC_MISSING,
    KAFKA_TOPIC_UNSUITABLE,
    KAFKA_TRANSACTION_TIMEOUT_WRONG,
    KAFKA_UNREACHABLE,
)
from bicycle_runtime.contract import Guarantee
from bicycle_runtime.operators.errors import FunctionFailedError
from bicycle_runtime.testing import Harness
from bicycle_sdk.kafka import DeliveryGuarantee, KafkaSinkBuilder
from tests.kafka.sink_runs import SinkRun, messages_in, values_in
from tests.kafka_broker import create_topic
from tests.raising import raises

EXACTLY_ONCE = {"guarantee": "exactly-once"}
EVENT_MS = int(time.time() * 1_000) - 3_600_000
_names = itertools.count()


@pytest.fixture
def run_of(kafka_broker, tmp_path):
    """Make runs of sinks with names of their own, and stop them at the end."""
    runs = []

    def make(topic, *, payloads=None, record_type=None, **properties):
        job = f"job-{next(_names)}"
        about = {"folder": tmp_path / job, "job": job, "brokers": kafka_broker.bootstrap}
        wanted = {"payloads": payloads or {}, "record_type": record_type, "properties": properties}
        runs.append(SinkRun(topic=topic, **about, **wanted))
        return runs[-1]

    yield make
    disarm_faults()
    for run in runs:
        run.sink.stop()


def numbers(epoch, count=50):
    return [f"{epoch}-{number:03}" for number in range(count)]


def test_at_least_once_is_visible_when_the_task_ends(run_of, topic, kafka_broker):
    out = topic(partitions=1)
    run = run_of(out, record_type=str).start()

    staged = run.stage(1, [numbers(1), numbers(2)])

    assert staged == []
    assert run.sink.guarantee is Guarantee.AT_LEAST_ONCE
    assert values_in(kafka_broker.bootstrap, out) == numbers(1) + numbers(2)


@pytest.mark.core
def test_exactly_once_is_invisible_until_it_is_published(run_of, topic, kafka_broker):
    out = topic(partitions=1)
    run = run_of(out, record_type=str, **EXACTLY_ONCE).start()

    run.seal(numbers(1))
    before = values_in(kafka_broker.bootstrap, out, "read_uncommitted")
    run.publish()

    assert run.sink.guarantee is Guarantee.EXACTLY_ONCE
    assert before == []
    assert values_in(kafka_broker.bootstrap, out) == numbers(1)


def test_keys_headers_timestamps_and_partitions_arrive(run_of, topic, kafka_broker):
    for guarantee in ("at-least-once", "exactly-once"):
        out = topic(partitions=3)
        run = run_of(
            out,
            guarantee=guarantee,
            payloads={
                "key": lambda record: record["word"],
                "value": lambda record: record["count"],
                "headers": lambda record: [("lang", b"en"), ("lang", b"de")],
                "timestamp": lambda record: 1_700_000_000_000 + record["count"],
                "partition": lambda record: record["count"] % 3,
            },
        ).start()

        run.run([{"word": f"w{count}", "count": count} for count in range(9)])

        found = messages_in(kafka_broker.bootstrap, out)
        assert [(message.partition, message.key, message.value) for message in found] == [
            (part, b"w%d" % count, b"%d" % count)
            for part in range(3)
            for count in range(part, 9, 3)
        ]
        assert {message.timestamp_ms for message in found} == {
            1_700_000_000_000 + count for count in range(9)
        }
        assert all(message.headers == [("lang", b"en"), ("lang", b"de")] for message in found)


@pytest.mark.parametrize("guarantee", DeliveryGuarantee)
def test_messages_have_the_event_time_of_their_records(guarantee, topic, kafka_broker):
    out, written = topic(partitions=1), topic(partitions=1)

    def job(env):
        stream = env.from_collection([3, 1, 2]).assign_timestamps(lambda n: EVENT_MS + n)
        for name, which in ((out, "event"), (written, "written")):
            sink = KafkaSinkBuilder[int](kafka_broker.bootstrap, name).message_time(which)
            stream.sink_to(sink.delivery_guarantee(guarantee).build_connector()).uid(which)

    with Harness(job, real_sinks=["event", "written"]) as harness:
        harness.run()

    found = messages_in(kafka_broker.bootstrap, out)
    assert [(int(m.value), m.timestamp_ms - EVENT_MS) for m in found] == [(3, 3), (1, 1), (2, 2)]
    others = messages_in(kafka_broker.bootstrap, written)
    assert [int(m.value) for m in others] == [3, 1, 2]
    assert all(message.timestamp_ms > EVENT_MS + 1_000_000 for message in others)


def test_a_record_that_the_topic_would_remove_at_once_is_refused(topic, kafka_broker):
    out, now_ms = topic(partitions=1, retention_ms="3600000"), int(time.time() * 1_000)

    def job(env):
        times = {"old": now_ms - 3_660_000, "new": now_ms}
        stream = env.from_collection(list(times)).assign_timestamps(times.__getitem__)
        stream.sink_to(KafkaSinkBuilder[str](kafka_broker.bootstrap, out)).uid("out").on_error(
            "skip"
        )

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()

    assert values_in(kafka_broker.bootstrap, out) == ["new"]


def test_keys_go_to_the_partition_that_java_clients_choose(run_of, topic, kafka_broker):
    out = topic(partitions=4)
    run = run_of(out, record_type=str, payloads={"key": str}, **EXACTLY_ONCE).start()
    words = [f"word-{number}" for number in range(40)]
    run.run(words)

    twin = topic(partitions=4)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "partitioner": "murmur2"})
    for word in words:
        producer.produce(twin, word, word)
    producer.flush(30)

    ours, theirs = (messages_in(kafka_broker.bootstrap, name) for name in (out, twin))
    assert {m.key: m.partition for m in ours} == {m.key: m.partition for m in theirs}


def test_a_none_is_a_tombstone(run_of, topic, kafka_broker):
    out = topic(cleanup_policy="compact")
    run = run_of(out, payloads={"key": lambda _: "k", "value": lambda _: None}, **EXACTLY_ONCE)

    run.start().run([1])

    assert [(m.key, m.value) for m in messages_in(kafka_broker.bootstrap, out)] == [(b"k", None)]


def test_publishing_twice_is_harmless_also_by_another_run(run_of, topic, kafka_broker):
    out = topic()
    run = run_of(out, record_type=str, **EXACTLY_ONCE).start()

    run.run(numbers(1), numbers(2))
    run.publish()
    run = run.restart()
    run.run(numbers(3))
    run.restart().restart()

    assert sorted(values_in(kafka_broker.bootstrap, out)) == numbers(1) + numbers(2) + numbers(3)


@pytest.mark.core
@pytest.mark.parametrize("point", TRANSACTION_POINTS)
def test_a_crash_within_a_transaction_loses_and_repeats_nothing(run_of, topic, kafka_broker, point):
    out = topic(partitions=2)
    run = run_of(out, record_type=str, payloads={"key": str}, **EXACTLY_ONCE).start()
    run.run(numbers(1))

    run.seal(numbers(2))
    arm_fault(point)
    with pytest.raises(InjectedFault):
        run.publish()
    run = run.restart()
    run.run(numbers(3))

    assert sorted(values_in(kafka_broker.bootstrap, out)) == numbers(1) + numbers(2) + numbers(3)


def test_an_aborted_copy_is_there_and_only_uncommitted_readers_see_it(run_of, topic, kafka_broker):
    out = topic()
    run = run_of(out, record_type=str, **EXACTLY_ONCE).start()

    run.seal(numbers(1))
    arm_fault("transaction_marked")
    with pytest.raises(InjectedFault):
        run.publish()
    run.restart()

    assert values_in(kafka_broker.bootstrap, out) == numbers(1)
    assert len(values_in(kafka_broker.bootstrap, out, "read_uncommitted")) == 2 * len(numbers(1))


def test_more_and_fewer_writers_publish_after_a_rescale(run_of, topic, kafka_broker):
    out = topic()
    run = run_of(out, record_type=str, **EXACTLY_ONCE).start()

    run.run(numbers(0))
    run.seal(*(numbers(writer) for writer in range(1, 8)))
    run = run.restart()
    run.run(numbers(8), numbers(9))
    run = run.restart()

    expected = [value for writer in range(10) for value in numbers(writer)]
    assert sorted(values_in(kafka_broker.bootstrap, out)) == expected


def test_order_holds_within_a_writer_from_epoch_to_epoch(run_of, topic, kafka_broker):
    out = topic(partitions=2)
    run = run_of(out, record_type=str, payloads={"key": lambda _: "same"}, **EXACTLY_ONCE).start()

    for epoch in range(5):
        run.run([f"{epoch}-{number:05}" for number in range(3_000)])

    found = values_in(kafka_broker.bootstrap, out)
    assert found == [f"{epoch}-{number:05}" for epoch in range(5) for number in range(3_000)]


def test_a_run_that_began_anew_under_the_same_name_publishes_its_first_epochs(
    run_of, topic, kafka_broker, tmp_path
):
    out = topic()
    run = run_of(out, record_type=str, **EXACTLY_ONCE).start()
    for epoch in range(3):
        run.run(numbers(epoch))

    run = run.restart(folder=tmp_path / "again", epoch=0, state={})
    run.run(numbers(3))

    assert values_in(kafka_broker.bootstrap, out) == [v for e in range(4) for v in numbers(e)]


def test_a_run_that_starts_behind_its_output_is_refused_unless_it_was_asked_for(
    run_of, topic, kafka_broker
):
    out = topic()
    run = run_of(out, record_type=str, **EXACTLY_ONCE).start()
    run.run(numbers(1))
    older = dict(epoch=run.epoch, state=run.state)
    run.run(numbers(2))
    run.run(numbers(3))

    with raises(KAFKA_HISTORY_AHEAD) as caught:
        run.restart(**older)
    assert (caught.value.facts["epoch"], caught.value.facts["found_epoch"]) == (1, 3)

    again = run.restart(**older, properties={**run.properties, "on_rewind": "publish_again"})
    again.run(numbers(4))
    again = again.restart(properties=run.properties)
    again.run(numbers(5))

    assert values_in(kafka_broker.bootstrap, out) == [v for e in range(1, 6) for v in numbers(e)]


@pytest.mark.core
def test_a_zombie_is_fenced_and_changes_nothing(run_of, topic, kafka_broker, caplog):
    out = topic()
    run = run_of(out, record_type=str, **EXACTLY_ONCE).start()
    run.run(numbers(1))
    zombie = run.zombie()
    run.run(numbers(2))
    run.run(numbers(3))
    zombie.seal(["from the zombie"])
    with raises(KAFKA_OTHER_PUBLISHER) as caught:
        zombie.publish()
    run.run(numbers(4))
    zombie.sink.stop()

    assert caught.value.facts["found_epoch"] == 3
    assert "kafka_publish_retried" not in caplog.messages  # The zombie fenced nobody.
    assert values_in(kafka_broker.bootstrap, out) == [v for e in range(1, 5) for v in numbers(e)]


def test_a_sealed_epoch_is_published_where_it_was_meant_to_go(run_of, topic, kafka_broker):
    out, other = topic(), topic()
    run = run_of(out, record_type=str, **EXACTLY_ONCE).start()
    run.run(numbers(1))
    run.seal(numbers(2))

    changed = {"guarantee": "at-least-once", "transactional_id_prefix": "other"}
    run = run.restart(topic=other, properties=changed)
    run.stage(3, [numbers(3)])

    assert values_in(kafka_broker.bootstrap, out) == numbers(1) + numbers(2)
    assert values_in(kafka_broker.bootstrap, other) == numbers(3)


def test_a_topic_is_made_with_what_was_asked_for(run_of, kafka_broker, kafka_admin):
    name = f"wanted-{next(_names)}"
    plan = {"partitions": 3, "replication_factor": 1, "config": {"retention.ms": 60_000}}

    run_of(name, create_topic=plan, record_type=str).start().stage(1, [numbers(1)])

    partitions = kafka_admin.list_topics(name).topics[name].partitions
    assert [len(part.replicas) for part in partitions.values()] == [1, 1, 1]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    settings = kafka_admin.describe_configs([resource])[resource].result(30)
    assert settings["retention.ms"].value == "60000"
    assert len(values_in(kafka_broker.bootstrap, name)) == len(numbers(1))


def test_a_missing_topic_is_named_with_one_that_is_close(run_of, kafka_admin):
    create_topic(kafka_admin, "word-totals")

    with raises(KAFKA_TOPIC_MISSING) as caught:
        run_of("word-total").start()

    assert caught.value.facts["topic"] == "word-total"
    assert "word-totals" in caught.value.facts["suggestion"]


def test_no_broker_is_an_error_in_time_when_a_job_starts_for_the_first_time(tmp_path):
    run = SinkRun(
        folder=tmp_path, brokers="127.0.0.1:1", topic="t", properties={"connect_timeout_ms": 1_000}
    )
    with raises(KAFKA_UNREACHABLE) as caught:
        run.start()
    run.sink.stop()

    assert caught.value.facts["brokers"] == "127.0.0.1:1"


@pytest.mark.parametrize(
    ("timeout_ms", "interval_ms", "needed_ms"),
    [(10_000, 0, 30_000), (60_000, 45_000, 75_000), (3_600_000, 0, 30_000)],
)
def test_impossible_timeouts_are_refused_with_the_numbers(
    run_of, kafka_admin, timeout_ms, interval_ms, needed_ms
):
    timeout = {"transaction_timeout_ms": timeout_ms}
    run = run_of("never-made", create_topic={"partitions": 1}, **timeout, **EXACTLY_ONCE)
    run.epoch_interval_ms = interval_ms

    with raises(KAFKA_TRANSACTION_TIMEOUT_WRONG) as caught:
        run.start()

    facts = caught.value.facts
    assert (facts["timeout_ms"], facts["needed_ms"]) == (timeout_ms, needed_ms)
    assert facts["broker_ms_max"] == 900_000
    assert "never-made" not in kafka_admin.list_topics(timeout=10).topics


def test_a_marker_topic_that_forgets_is_refused(run_of, topic, kafka_admin):
    forgetful = topic(cleanup_policy="delete")

    with raises(KAFKA_TOPIC_UNSUITABLE) as caught:
        run_of(topic(), marker_topic=forgetful, **EXACTLY_ONCE).start()

    assert caught.value.facts["topic"] == forgetful


def test_a_compacted_topic_needs_keys_and_a_topic_needs_its_copies(run_of, topic):
    compacted, greedy = topic(cleanup_policy="compact"), topic(min_insync_replicas="2")

    for name in (compacted, greedy):
        with raises(KAFKA_TOPIC_UNSUITABLE) as caught:
            run_of(name).start()
        assert caught.value.facts["topic"] == name


def test_a_limit_that_is_lowered_behind_the_seal_is_told_and_mended(
    run_of, topic, kafka_broker, kafka_admin
):
    out = topic()
    run = run_of(out, record_type=str, **EXACTLY_ONCE).start()
    run.run(numbers(1))
    run.seal(["x" * 5_000])

    limit(kafka_admin, out, "1000")
    with raises(KAFKA_PUBLISH_REFUSED) as caught:
        run.publish()
    limit(kafka_admin, out, "1048588")
    run = run.restart()

    assert (caught.value.facts["epoch"], caught.value.facts["topic"]) == (2, out)
    assert values_in(kafka_broker.bootstrap, out) == [*numbers(1), "x" * 5_000]


def test_a_refused_delivery_fails_the_task_that_wrote_it(run_of, topic, kafka_admin):
    out = topic()
    run = run_of(out, record_type=str).start()
    limit(kafka_admin, out, "1000")

    with raises(KAFKA_DELIVERY_FAILED) as caught:
        run.stage(4, [["x" * 5_000]])

    assert (caught.value.facts["epoch"], caught.value.facts["failed_count"]) == (4, 1)


def limit(admin, topic, byte_count):
    entry = ConfigEntry(
        "max.message.bytes", byte_count, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_large_epoch_arrives_whole_and_in_order(run_of, topic, kafka_broker):
    out = topic()
    run = run_of(out, record_type=str, payloads={"key": lambda text: text[:1]}, **EXACTLY_ONCE)
    run.start()
    values = [f"{number:08}" + "v" * 200 for number in range(150_000)]

    run.run(values)

    assert values_in(kafka_broker.bootstrap, out) == values


def test_epochs_that_fill_the_queue_of_the_client_are_published(run_of, topic, kafka_broker):
    out = topic()
    small = {"properties": {"queue.buffering.max.messages": "10"}}
    run = run_of(out, record_type=str, **EXACTLY_ONCE, **small).start()

    for epoch in range(20):
        run.run(numbers(epoch, 10))

    expected = [value for epoch in range(20) for value in numbers(epoch, 10)]
    assert values_in(kafka_broker.bootstrap, out) == expected


def keyed_job(brokers, topic, *policy):
    """Three records, the second of which has no key."""

    def build(env):
        sink = (
            KafkaSinkBuilder(brokers, topic)
            .key(lambda record: record["key"])
            .delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .build_connector()
        )
        records = env.from_collection([{"key": "a"}, {"word": "b"}, {"key": "c"}])
        written = records.sink_to(sink).uid("out")
        if policy:
            written.on_error(*policy)

    return build


def test_a_key_function_that_fails_is_shown_with_its_line_and_its_record(topic, kafka_broker):
    out = topic()
    job = keyed_job(kafka_broker.bootstrap, out)

    with (
        Harness(job, real_sinks=["out"]) as harness,
        pytest.raises(FunctionFailedError) as caught,
    ):
        harness.run()

    facts = caught.value.facts
    assert (facts["operator"], facts["exception"], facts["offset"]) == ("out", "KeyError", 1)
    assert "test_kafka_sink.py" in facts["location"]
    assert values_in(kafka_broker.bootstrap, out) == []


def test_a_record_without_key_can_be_skipped_or_kept_as_a_dead_letter(topic, kafka_broker):
    for policy in ("skip", "dead_letter"):
        out = topic()
        job = keyed_job(kafka_broker.bootstrap, out, policy)

        with Harness(job, real_sinks=["out"]) as harness:
            harness.run()
            letters = harness.dead_letters

        assert values_in(kafka_broker.bootstrap, out) == ['{"key":"a"}', '{"key":"c"}']
        assert len(letters) == (policy == "dead_letter")


def test_a_message_that_is_too_large_can_be_left_out_before_the_seal(topic, kafka_broker):
    out = topic(max_message_bytes="20000")

    def job(env):
        sink = KafkaSinkBuilder(kafka_broker.bootstrap, out).serializer("string")
        built = sink.delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build_connector()
        env.from_collection(["a", "x" * 30_000, "b"]).sink_to(built).uid("out").on_error("skip")

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()

    assert values_in(kafka_broker.bootstrap, out) == ["a", "b"]
