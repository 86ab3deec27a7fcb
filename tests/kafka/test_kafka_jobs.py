"""Jobs in one process on a real broker: what they leave behind, what is told of them."""

import base64
import json
from dataclasses import asdict, dataclass
from datetime import timedelta

import pytest
from confluent_kafka.admin import AdminClient

from bicycle_runtime.connectors.kafka.errors import KAFKA_TOPIC_MISSING
from bicycle_runtime.formats.registry import make_codec
from bicycle_runtime.frames.frame import FieldRows
from bicycle_runtime.jobs.home import JobFolder
from bicycle_runtime.jobs.running.progress import JobProgress
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.connectors.running import eventually
from bicycle_sdk import (
    AsyncFunction,
    DeliveryGuarantee,
    KafkaSinkBuilder,
    KafkaSourceBuilder,
    WatermarkStrategy,
    dead_letter,
)
from bicycle_sdk.formats import avro, csv
from bicycle_sdk.windows import Count, Sum
from tests.kafka.kafka_feeding import feed, values_now
from tests.kafka_broker import create_topic
from tests.raising import raises
from tests.unit.jobs.job_samples import status_of


@dataclass(frozen=True)
class Warmth:
    sensor: str
    celsius: float


ANY_POINT = ("read", "operator", "before_seal", "after_seal", "half_published", "after_publish")


def relay(broker, source, target):
    """Return a job that passes messages on to a topic that it makes."""

    def job(env):
        read = KafkaSourceBuilder[str](broker.bootstrap, source).bounded()
        write = KafkaSinkBuilder[str](broker.bootstrap, target).create_topic(partitions=1)
        write.delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        env.add_source(read).uid("in").sink_to(write).uid("out")

    return job


def finish(harness):
    """Read bounded input to its end: a broker may be slow to say where that is."""
    eventually(lambda: harness.run() or harness.loop.manifest.plan.is_finished)


def topics_of(admin):
    """Return the topics, but for those that brokers keep for themselves."""
    return {name for name in admin.list_topics(timeout=10).topics if not name.startswith("__")}


# --- what a job makes when it starts -------------------------------------------------------------


def test_a_job_whose_source_is_mistyped_leaves_no_topic_behind(kafka_broker, kafka_admin, topic):
    name = topic()
    there = topics_of(kafka_admin)

    with (
        raises(KAFKA_TOPIC_MISSING) as caught,
        Harness(relay(kafka_broker, f"{name}x", f"{name}-out"), real_sinks=["out"]),
    ):
        pass

    assert caught.value.facts["vertex"] == "in"
    assert topics_of(kafka_admin) == there


def test_a_job_may_read_a_topic_that_it_makes_itself(kafka_broker, kafka_admin, topic):
    name = topic()
    feed(kafka_broker, name, ["a", "b"])

    def job(env):
        relay(kafka_broker, name, f"{name}-made")(env)
        again = KafkaSourceBuilder[str](kafka_broker.bootstrap, f"{name}-made")
        env.add_source(again).uid("again").collect("seen")

    with Harness(job, real_sinks=["out"]) as harness:
        eventually(lambda: harness.run() or harness.results("seen") == ["a", "b"])


# --- what a function sees of a message -----------------------------------------------------------


def test_a_function_sees_key_headers_time_and_place_of_each_message(kafka_broker, topic):
    name = topic()
    feed(kafka_broker, name, ["a"], key="k", headers=[("h", b"1"), ("h", None)], timestamp=7_000)
    feed(kafka_broker, name, ["b"], timestamp=8_000)

    class Looking(AsyncFunction[str, object]):
        async def process(self, value, ctx):
            message = ctx.message
            return [(value, ctx.timestamp, message.key, message.headers, message.offset)]

    def job(env):
        source = KafkaSourceBuilder[str](kafka_broker.bootstrap, name).bounded()
        env.add_source(source).uid("in").process(Looking()).collect("out")

    with Harness(job) as harness:
        finish(harness)
        assert harness.results("out") == [
            ("a", 7_000, b"k", (("h", b"1"), ("h", None)), 0),
            ("b", 8_000, None, (), 1),
        ]


# --- dead letters --------------------------------------------------------------------------------


def numbers_of(broker, topic):
    def job(env):
        source = KafkaSourceBuilder[int](broker.bootstrap, topic).bounded()
        env.add_source(source).uid("in").on_error(dead_letter()).collect("out")

    return job


def letters_of(job):
    with Harness(job) as harness:
        finish(harness)
        return harness.dead_letters


@pytest.mark.core
def test_a_dead_letter_says_what_the_message_was_and_where_it_is(kafka_broker, topic):
    name = topic(partitions=2)
    feed(
        kafka_broker, name, ["7", b"\xff"], partition=1,
        key=b"k", headers=[("trace", b"7"), ("none", None)], timestamp=1_000,
    )  # fmt: skip

    (letter,) = letters_of(numbers_of(kafka_broker, name))

    assert (letter["source"], letter["shard"], letter["offset"]) == ("in", f"{name}/1", 1)
    assert (letter["operator"], letter["exception"], letter["attempt"]) == ("in", "DecodeError", 1)
    assert base64.b64decode(letter["value"]) == b"\xff"
    assert letter["source_message"] == {
        "key": base64.b64encode(b"k").decode(),
        "value": base64.b64encode(b"\xff").decode(),
        "headers": [["trace", base64.b64encode(b"7").decode()], ["none", None]],
        "timestamp_ms": 1_000,
    }
    assert letter["event_time_ms"] == 1_000


@pytest.mark.parametrize("key_format", ["bytes", "string", "json"])
def test_a_dead_letter_of_a_function_says_what_the_message_was(kafka_broker, topic, key_format):
    name, key = topic(), b' {"user": "k"}'
    feed(kafka_broker, name, ["7", " 0"], key=key, headers=[("trace", b"7")], timestamp=1_000)

    def job(env):
        source = KafkaSourceBuilder[int](kafka_broker.bootstrap, name).bounded()
        numbers = env.add_source(source.key_deserializer(key_format)).uid("in")
        numbers.map(lambda number: 1 / number).uid("part").on_error(dead_letter()).collect("out")

    (letter,) = letters_of(job)

    assert (letter["operator"], letter["shard"], letter["offset"]) == ("part", f"{name}/0", 1)
    assert letter["event_time_ms"] == 1_000
    assert letter["source_message"] == {
        "key": base64.b64encode(key).decode(),
        "value": base64.b64encode(b" 0").decode(),
        "headers": [["trace", base64.b64encode(b"7").decode()]],
        "timestamp_ms": 1_000,
    }


@pytest.mark.core
def test_each_bad_message_is_one_dead_letter_wherever_the_job_crashes(kafka_broker, topic):
    name = topic(partitions=2)
    feed(kafka_broker, name, [*map(str, range(5)), b"{", "6"])
    feed(kafka_broker, name, [b"}", "8", b"]"], partition=1)
    bad = [(f"{name}/0", 5), (f"{name}/1", 0), (f"{name}/1", 2)]

    for point in ANY_POINT:
        with Harness(numbers_of(kafka_broker, name)) as harness:
            harness.fail_at(point)
            finish(harness)

            assert harness.crash_count == 1, point
            assert sorted(harness.results("out")) == [0, 1, 2, 3, 4, 6, 8], point
            assert sorted((d["shard"], d["offset"]) for d in harness.dead_letters) == bad, point


# --- event time ----------------------------------------------------------------------------------


def test_partitions_have_watermarks_of_their_own_and_a_silent_one_holds_nothing_back(
    kafka_broker, topic
):
    name = topic(partitions=2)

    def job(env):
        source = KafkaSourceBuilder[str](kafka_broker.bootstrap, name)
        timed = env.add_source(source).assign_timestamps(
            WatermarkStrategy.ascending().with_idle_timeout(timedelta(seconds=20))
        )
        windows = timed.key_by(len).tumbling_window(timedelta(seconds=10))
        windows.aggregate(Count()).uid("windows").collect("out")

    with Harness(job) as harness:
        feed(kafka_broker, name, ["a"], partition=1, timestamp=12_000)
        feed(kafka_broker, name, ["a"], timestamp=5_000)
        feed(kafka_broker, name, ["a"], timestamp=25_000)
        eventually(lambda: harness.run() or harness.watermark("windows") == 11_999)
        harness.advance_time(15_000)
        feed(kafka_broker, name, ["a"], timestamp=31_000)
        eventually(lambda: harness.run() or harness.epochs[-1].event_count == 4)
        assert (harness.watermark("windows"), len(harness.results("out"))) == (11_999, 1)

        harness.advance_time(15_000)  # Partition 1 is silent for 30 s, and the other one is not.

        assert (harness.watermark("windows"), len(harness.results("out"))) == (30_999, 3)


@dataclass
class Reading:
    sensor: str
    at: int
    value: int


def totals_of(broker, name, sensor_of):
    """Return a job that sums by sensor and window of 10 ms."""

    def job(env):
        source = KafkaSourceBuilder[Reading](broker.bootstrap, name).bounded()
        readings = env.add_source(source).uid("readings").on_error("skip")
        timed = readings.assign_timestamps(lambda reading: reading.at)
        windows = timed.key_by(sensor_of).tumbling_window(10)
        windows.aggregate(Count(), Sum(lambda reading: reading.value)).collect("out")

    return job


def totals(broker, name, sensor_of):
    with Harness(totals_of(broker, name, sensor_of)) as harness:
        finish(harness)
        return harness.results("out")


@pytest.mark.core
def test_windows_over_fields_of_json_make_no_record(kafka_broker, topic, monkeypatch):
    name = topic(partitions=1)
    readings = [Reading("ab"[n % 2], n, n) for n in range(20)]
    feed(kafka_broker, name, [json.dumps(asdict(reading)) for reading in readings])
    by_record = totals(kafka_broker, name, lambda reading: str(reading.sensor))
    monkeypatch.setattr(FieldRows, "create", None)

    assert totals(kafka_broker, name, lambda reading: reading.sensor) == by_record
    assert list(map(tuple, by_record)) == [
        ("a", 0, 10, (5, 20)), ("b", 0, 10, (5, 25)),
        ("a", 10, 20, (5, 70)), ("b", 10, 20, (5, 75)),
    ]  # fmt: skip


BASE = 1_700_000_000_000


@pytest.mark.parametrize("assigns", [False, True])
def test_windows_by_the_time_of_messages_make_no_record(kafka_broker, topic, monkeypatch, assigns):
    name = topic(partitions=1)
    for n in range(20):
        reading = json.dumps(asdict(Reading("ab"[n % 2], 0, n)))
        feed(kafka_broker, name, [reading], timestamp=BASE + n)

    def job(env):
        source = KafkaSourceBuilder[Reading](kafka_broker.bootstrap, name).bounded()
        readings = env.add_source(source).uid("readings")
        if assigns:
            late = WatermarkStrategy.bounded_out_of_orderness(2)
            readings = readings.assign_timestamps(late).uid("times")
        windows = readings.key_by(lambda reading: reading.sensor).tumbling_window(10)
        windows.aggregate(Count(), Sum(lambda reading: reading.value)).collect("out")

    monkeypatch.setattr(FieldRows, "create", None)
    with Harness(job) as harness:
        finish(harness)
        found = [(key, start - BASE, value) for key, start, _, value in harness.results("out")]

    assert found == [("a", 0, (5, 20)), ("b", 0, (5, 25)), ("a", 10, (5, 70)), ("b", 10, (5, 75))]


def test_a_bad_message_costs_windows_over_fields_no_other(kafka_broker, topic):
    name = topic(partitions=1)
    feed(kafka_broker, name, ['{"sensor":"a","at":1,"value":2}', '{"sensor":"a"}', "no JSON"])
    feed(kafka_broker, name, ['{"sensor":"a","at":3,"value":5}'])

    (result,) = totals(kafka_broker, name, lambda reading: reading.sensor)

    assert tuple(result) == ("a", 0, 10, (2, 7))


# --- what is told of a job -----------------------------------------------------------------------


def test_the_lag_is_unknown_while_the_broker_is_away(new_kafka_broker, tmp_path):
    broker = new_kafka_broker()
    create_topic(AdminClient(broker.client_settings()), "t")
    feed(broker, "t", ["a", "b"])

    def job(env):
        env.add_source(KafkaSourceBuilder[str](broker.bootstrap, "t")).uid("in").collect("out")

    with Harness(job) as harness:
        progress = JobProgress(
            status_of(), folder=JobFolder(tmp_path), clock=harness.clock, listener=lambda _: None
        )
        status = progress.status

        def is_told(lag_records, sources):
            progress.take_idle(harness.loop.step().unread)
            return (status.lag_records, set(status.silent_sources)) == (lag_records, sources)

        harness.run()
        eventually(lambda: is_told(0, set()))
        broker.stop()
        eventually(lambda: is_told(None, {"in"}))
        assert {lag.records for lag in status.lags["in"].values()} == {0}
        broker.start()
        feed(broker, "t", ["c"])
        eventually(lambda: harness.run() or harness.results("out") == ["a", "b", "c"])
        eventually(lambda: is_told(0, set()))


def test_a_job_reads_avro_and_writes_rows_and_a_bad_message_is_named(kafka_broker, topic):
    name = topic()
    schema = {
        "type": "record",
        "name": "Warmth",
        "fields": [{"name": "sensor", "type": "string"}, {"name": "celsius", "type": "double"}],
    }
    codec = make_codec("avro", Warmth, {"schema": schema})
    good = [codec.encode(Warmth(f"s{n}", n / 2)) for n in range(4)]
    feed(kafka_broker, name, [*good[:2], b"\xff", *good[2:]])

    def job(env):
        read = KafkaSourceBuilder[Warmth](kafka_broker.bootstrap, name).bounded()
        write = KafkaSinkBuilder[Warmth](kafka_broker.bootstrap, f"{name}-rows")
        write.create_topic(partitions=1).serializer(csv(delimiter=";"))
        readings = env.add_source(read.deserializer(avro(schema))).uid("in")
        readings.on_error(dead_letter()).sink_to(write).uid("out")

    with Harness(job, real_sinks=["out"]) as harness:
        finish(harness)
        [letter] = harness.dead_letters

    rows = values_now(kafka_broker, f"{name}-rows")
    assert rows == [b"s0;0.0", b"s1;0.5", b"s2;1.0", b"s3;1.5"]
    assert (letter["offset"], base64.b64decode(letter["value"])) == (2, b"\xff")
    assert "avro" in letter["message"]
