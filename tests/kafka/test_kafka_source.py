"""The Kafka source on a real broker: where it starts, what it finds, what it makes of holes."""

import json
from dataclasses import dataclass
from itertools import pairwise

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.connectors.kafka.errors import (
    KAFKA_PROPERTY_WRONG,
    KAFKA_TOPIC_MISSING,
    KAFKA_UNREACHABLE,
    KafkaAccessError,
)
from bicycle_runtime.connectors.registry import create_source
from bicycle_runtime.contract import Budget, ConnectorSpec, Lag, Slice
from bicycle_runtime.testing.connectors.running import SourceRun, eventually, services_in
from tests.examples import examples
from tests.kafka.kafka_feeding import (
    ONE,
    feed,
    feed_secure,
    feed_transactions,
    source_run,
    values,
    values_now,
)
from tests.kafka_broker import create_topic
from tests.raising import raises
from tests.waiting import PATIENCE_S

# --- where reading starts ------------------------------------------------------------------------


def test_it_starts_at_the_earliest_message_by_default(kafka_broker, topic, reading):
    name = topic(partitions=2)
    feed(kafka_broker, name, ["a", "b"])
    feed(kafka_broker, name, ["c"], partition=1)

    assert sorted(values(reading(topics=[name]).drain(count=3))) == ["a", "b", "c"]


def test_latest_skips_what_is_there_and_a_restart_does_not_skip_more(kafka_broker, topic, reading):
    name = topic()
    feed(kafka_broker, name, ["old"])
    run = reading(topics=[name], starting_offsets="latest")
    assert values(run.drain()) == []  # An epoch without records seals where reading starts.
    feed(kafka_broker, name, ["while it was down"])

    run.restart()

    assert values(run.drain(count=1)) == ["while it was down"]


def test_it_starts_at_a_time(kafka_broker, topic, reading):
    name = topic(partitions=2)
    for second in (1, 2, 3):
        feed(kafka_broker, name, [f"at {second}"], timestamp=second * 1_000)

    run = reading(topics=[name], starting_offsets={"timestamp_ms": 1_500})

    assert values(run.drain(count=2)) == ["at 2", "at 3"]


def test_a_time_behind_the_last_message_means_the_end(kafka_broker, topic, reading):
    name = topic()
    feed(kafka_broker, name, ["old"], timestamp=1_000)
    run = reading(topics=[name], starting_offsets={"timestamp_ms": 2_000})
    run.drain()

    feed(kafka_broker, name, ["new"], timestamp=3_000)

    assert values(run.drain(count=1)) == ["new"]


def test_it_starts_at_named_offsets_and_elsewhere_at_the_earliest(kafka_broker, topic, reading):
    name = topic(partitions=2)
    feed(kafka_broker, name, ["a0", "a1", "a2"])
    feed(kafka_broker, name, ["b0"], partition=1)

    run = reading(topics=[name], starting_offsets={"offsets": {name: {"0": 2}}})

    assert sorted(values(run.drain(count=2))) == ["a2", "b0"]


def test_a_named_offset_for_a_partition_that_is_not_there_is_refused(kafka_broker, topic, reading):
    name = topic(partitions=2)

    with raises(CONNECTOR_OPTION_WRONG) as caught:
        reading(topics=[name], starting_offsets={"offsets": {name: {"7": 5}}})

    assert caught.value.facts["name"] == "starting_offsets"


def test_a_restart_goes_on_at_the_sealed_offsets(kafka_broker, topic, reading):
    name = topic(partitions=3)
    for partition in range(3):
        feed(kafka_broker, name, [f"{partition}-{i}" for i in range(20)], partition=partition)
    budget = Budget(record_count=7, byte_count=1 << 20, parallelism=2)

    epochs = reading(topics=[name]).drain(budget, restarts=True, count=60)

    assert sorted(values(epochs)) == sorted(f"{p}-{i}" for p in range(3) for i in range(20))
    assert max(len(epoch.values) for epoch in epochs) <= 7


def test_a_bounded_source_ends_where_the_topic_ended_at_its_first_start(
    kafka_broker, topic, reading
):
    name = topic(partitions=2)
    feed(kafka_broker, name, ["a", "b"])
    run = reading(topics=[name], bounded=True)
    run.source.poll()
    run.seal(run.read(Budget(record_count=1, byte_count=1 << 20, parallelism=1)))
    feed(kafka_broker, name, ["too late"])
    run.restart()

    epochs = run.drain(count=1)

    assert values(epochs) == ["b"]
    assert run.source.poll().is_finished
    assert run.restart().source.poll().is_finished


def test_a_bounded_source_of_an_empty_topic_ends_at_once(topic, reading):
    run = reading(topics=[topic()], bounded=True)

    assert values(run.drain()) == []
    assert run.source.poll().is_finished


# --- what is found while it runs -----------------------------------------------------------------


def test_new_partitions_are_found_and_read_from_their_first_message(
    kafka_broker, kafka_admin, topic, reading
):
    name = topic()
    run = reading(topics=[name], starting_offsets="latest", discovery_interval_ms=1_000)
    run.drain()
    kafka_admin.create_partitions([NewPartitions(name, 2)])[name].result()
    eventually(lambda: len(kafka_admin.list_topics(name, 5).topics[name].partitions) == 2)
    feed(kafka_broker, name, ["before it was found"], partition=1)

    run.services.clock.advance(1_000)

    assert values(run.drain(count=1)) == ["before it was found"]


def test_a_pattern_that_finds_no_topic_yet_has_no_lag(topic, reading):
    run = reading(topic_pattern=f"{topic()}-[a-z]")

    assert run.source.poll().lag == Lag(record_count=0, age_ms=0)


def test_a_pattern_finds_topics_also_those_made_later(kafka_broker, kafka_admin, topic, reading):
    name = topic()
    for suffix in ("a", "b"):
        create_topic(kafka_admin, f"{name}-{suffix}")
    feed(kafka_broker, f"{name}-a", ["one"])
    feed(kafka_broker, f"{name}-b", ["two"])
    run = reading(topic_pattern=f"{name}-[a-z]", discovery_interval_ms=1_000)
    assert sorted(values(run.drain(count=2))) == ["one", "two"]

    create_topic(kafka_admin, f"{name}-c")
    feed(kafka_broker, f"{name}-c", ["three"])
    run.services.clock.advance(1_000)

    assert values(run.drain(count=1)) == ["three"]


def test_a_job_that_reads_other_topics_goes_on_in_those_it_knows(
    kafka_broker, topic, reading, tmp_path
):
    first, second = topic(), topic()
    feed(kafka_broker, first, ["a0"])
    run = reading(topics=[first])
    run.drain()
    feed(kafka_broker, first, ["a1"])
    feed(kafka_broker, second, ["b0"])

    other = source_run(kafka_broker, tmp_path, topics=[second])
    other.offsets, other.state = run.offsets, run.state
    assert values(other.start().drain(count=1)) == ["b0"]
    other.stop()
    both = source_run(kafka_broker, tmp_path, topics=[first, second])
    both.offsets, both.state = other.offsets, other.state

    assert values(both.start().drain(count=1)) == ["a1"]
    both.stop()


# --- holes ---------------------------------------------------------------------------------------


def test_only_committed_messages_are_read_and_ranges_end_in_holes(kafka_broker, topic, reading):
    name = topic()
    committed = feed_transactions(kafka_broker, name, "caacacaa")
    budget = Budget(record_count=1, byte_count=1 << 20, parallelism=1)

    run = reading(topics=[name])

    assert values(run.drain(budget, count=len(committed))) == committed
    assert run.offsets == {f"{name}/0": 24}  # Two messages and a marker for each transaction.


def test_uncommitted_messages_are_read_when_asked_for(kafka_broker, topic, reading):
    name = topic()
    feed_transactions(kafka_broker, name, "ca")

    run = reading(topics=[name], properties={"isolation.level": "read_uncommitted"})

    assert values(run.drain(count=4)) == ["c0-0", "c0-1", "a1-0", "a1-1"]


def test_an_open_transaction_holds_back_what_follows_it(kafka_broker, topic, reading):
    name = topic()
    feed(kafka_broker, name, ["before"])
    producer = Producer({**kafka_broker.client_settings(), "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, "inside", partition=0)
    producer.flush(30)
    feed(kafka_broker, name, ["after"])
    run = reading(topics=[name])

    assert values(run.drain(count=1)) == ["before"]
    producer.commit_transaction(30)
    assert values(run.drain(count=2)) == ["inside", "after"]


def test_a_compacted_topic_is_read_over_its_holes(kafka_broker, topic, reading):
    name = topic(
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.0",
        segment_ms="100",
        max_compaction_lag_ms="100",
    )
    written = []

    def is_compacted():
        written.append(len(written))  # Appending also closes the former segment.
        feed(kafka_broker, name, [str(written[-1])], key="k")
        found = values_now(kafka_broker, name)
        return len(found) < len(written) // 2

    eventually(is_compacted, wait_s=PATIENCE_S)
    run = reading(topics=[name])

    found = values(run.drain(Budget(record_count=3, byte_count=1 << 20, parallelism=1), count=1))

    assert found[-1] == str(written[-1])
    assert len(found) < len(written)
    assert run.offsets == {f"{name}/0": len(written)}


@pytest.fixture(scope="module")
def holey(kafka_broker, kafka_module_folder):
    """A topic with holes, its end, what is committed in it, and a reader of it."""
    name = "holey"
    create_topic(AdminClient(kafka_broker.client_settings()), name)
    committed = feed_transactions(kafka_broker, name, "caacccaaacaccacacca")
    run = source_run(kafka_broker, kafka_module_folder, topics=[name]).start()
    run.source.poll()
    yield name, run.source.plan(ONE)[0].end, committed, run.reader
    run.stop()


@pytest.fixture(scope="module")
def kafka_module_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("holey")


@given(data=st.data())
@settings(max_examples=examples(25))
def test_any_ranges_in_any_order_give_what_is_in_them(holey, data):
    name, end, committed, reader = holey
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, end - 1), max_size=6))), end]
    found = {}
    for start, stop in data.draw(st.permutations(list(pairwise(cuts)))):
        part = Slice(shard=f"{name}/0", start=start, end=stop, details={"bytes": 1 << 30})
        batches = list(reader.read(part))
        assert batches[-1].next_offset == stop
        assert all(start <= offset < stop for batch in batches for offset in batch.offsets)
        found[start] = [value for batch in batches for value in batch.values]

    assert [value for start in sorted(found) for value in found[start]] == committed


def test_partitions_read_in_turn_by_one_reader_do_not_mix(kafka_broker, topic, reading):
    name = topic(partitions=4)
    for partition in range(4):
        feed(kafka_broker, name, [f"{partition}-{i}" for i in range(300)], partition=partition)
    run = reading(topics=[name])

    epochs = run.drain(Budget(record_count=100, byte_count=1 << 20, parallelism=1), count=1_200)

    for partition in range(4):
        mine = [v for v in values(epochs) if v.startswith(f"{partition}-")]
        assert mine == [f"{partition}-{i}" for i in range(300)]


def test_a_slice_is_cut_when_its_bytes_are_used_up(kafka_broker, topic, reading):
    name = topic()
    feed(kafka_broker, name, ["x" * 1_000] * 20)
    run = reading(topics=[name])

    epochs = run.drain(Budget(record_count=1_000, byte_count=2_500, parallelism=1), count=20)

    assert [len(epoch.values) for epoch in epochs] == [3, 3, 3, 3, 3, 3, 2]


# --- what stands in a message --------------------------------------------------------------------


@dataclass
class Order:
    id: int
    user: str


def test_key_headers_and_time_stand_beside_each_value(kafka_broker, topic, reading):
    name = topic()
    feed(kafka_broker, name, ["a"], key="k", headers=[("h", b"1"), ("h", None)], timestamp=5_000)
    feed(kafka_broker, name, ["b"], timestamp=6_000)

    epochs = reading(topics=[name]).drain(count=2)

    batches = [batch for epoch in epochs for batch in epoch.all_batches]
    assert [t for batch in batches for t in batch.timestamps] == [5_000, 6_000]
    assert [k for batch in batches for k in batch.keys] == [b"k", None]
    assert [h for batch in batches for h in batch.headers] == [(("h", b"1"), ("h", None)), ()]


def test_json_is_decoded_as_the_declared_type_and_bad_messages_are_named(
    kafka_broker, topic, reading
):
    name = topic()
    good = [json.dumps({"id": i, "user": "ada"}) for i in range(3)]
    feed(kafka_broker, name, good[:2])
    feed(kafka_broker, name, [b'{"id": "x"'], key="k", headers=[("h", b"1")], timestamp=7_000)
    feed(kafka_broker, name, [good[2], None])

    [epoch] = reading(Order, topics=[name]).drain(count=5)

    assert epoch.values == [Order(0, "ada"), Order(1, "ada"), Order(2, "ada")]
    bad, tombstone = epoch.failures
    assert (bad.offset, bad.raw, bad.key) == (2, b'{"id": "x"', b"k")
    assert (bad.headers, bad.timestamp_ms) == ((("h", b"1"),), 7_000)
    assert (tombstone.offset, tombstone.raw) == (4, b"")


def test_a_message_without_value_is_a_record_where_the_type_allows_none(
    kafka_broker, topic, reading
):
    name = topic()
    feed(kafka_broker, name, ["a", None, "b"], key="k")

    assert values(reading(str | None, topics=[name]).drain(count=3)) == ["a", None, "b"]


# --- lag, groups, refusals -----------------------------------------------------------------------


def test_lag_counts_what_is_unread_and_for_how_long_it_has_been_there(kafka_broker, topic, reading):
    name = topic(partitions=2)
    feed(kafka_broker, name, ["a"] * 5)
    run = reading(topics=[name])

    status = run.source.poll()
    assert status.lag.record_count == 5
    assert {shard: lag.record_count for shard, lag in status.shard_lags.items()} == {
        f"{name}/0": 5,
        f"{name}/1": 0,
    }
    run.services.clock.advance(400)
    assert run.source.poll().lag.age_ms == 400
    run.drain(count=5)
    assert run.source.poll().lag == Lag(record_count=0, age_ms=0)


def test_published_offsets_are_seen_in_the_group(kafka_broker, kafka_admin, topic, reading):
    name = topic(partitions=2)
    feed(kafka_broker, name, ["a"] * 5, partition=1)
    run = reading(topics=[name], group_id=name)

    run.drain(count=5)
    run.source.stop()

    [listed] = kafka_admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(name)]
    ).values()
    found = {(p.topic, p.partition): p.offset for p in listed.result().topic_partitions}
    assert found[name, 1] == 5


def test_a_missing_topic_is_refused_with_the_likeliest_name(topic, reading):
    name = topic()

    with raises(KAFKA_TOPIC_MISSING) as caught:
        reading(topics=[f"{name}x"])

    assert caught.value.facts["topic"] == f"{name}x"
    assert name in caught.value.facts["suggestion"]


def test_a_job_that_never_ran_fails_when_no_broker_answers(tmp_path):
    spec = ConnectorSpec(
        vertex_id="v",
        connector_type="kafka",
        properties={"brokers": "127.0.0.1:1", "topics": ["t"], "connect_timeout_ms": 1_000},
    )

    with raises(KAFKA_UNREACHABLE) as caught:
        create_source(spec).start(services_in(tmp_path), {}, {})

    assert caught.value.facts["brokers"] == "127.0.0.1:1"
    assert "refused" in caught.value.facts["reason"]


def test_a_job_that_ran_waits_for_a_broker_that_does_not_answer(tmp_path):
    spec = ConnectorSpec(
        vertex_id="v",
        connector_type="kafka",
        properties={"brokers": "127.0.0.1:1", "topics": ["t"]},
    )
    run = SourceRun(spec, services_in(tmp_path), offsets={"t/0": 7}).start()

    status = run.source.poll()

    assert (status.has_input, status.is_finished) == (False, False)
    assert (status.is_reachable, status.lag, status.shard_lags) == (False, Lag(), {})
    run.stop()


def test_a_property_that_the_client_does_not_know_is_refused_at_start(topic, reading):
    with raises(KAFKA_PROPERTY_WRONG) as caught:
        reading(topics=[topic()], properties={"fetch.wait.max": "1"})

    assert caught.value.facts["name"] == "fetch.wait.max"


# --- security ------------------------------------------------------------------------------------


def secure_properties(broker, variable):
    given = broker.client_settings("ada")
    hidden = {"sasl.password": {"secret": {"env": variable}}}
    return {k: v for k, v in {**given, **hidden}.items() if k != "bootstrap.servers"}


def test_it_logs_in_over_tls_with_a_password_from_the_environment(
    secure_kafka_broker, tmp_path, monkeypatch
):
    settings_ = secure_kafka_broker.client_settings("ada")
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", settings_["sasl.password"])
    create_topic(AdminClient(settings_), "guarded")
    feed_secure(settings_, "guarded", ["a", "b"])
    properties = secure_properties(secure_kafka_broker, "TEST_KAFKA_PASSWORD")

    run = source_run(secure_kafka_broker, tmp_path, topics=["guarded"], properties=properties)

    assert values(run.start().drain(count=2)) == ["a", "b"]
    assert settings_["sasl.password"] not in json.dumps([run.state, run.offsets])
    run.stop()


def test_a_wrong_password_is_an_error_that_does_not_show_it(
    secure_kafka_broker, tmp_path, monkeypatch
):
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", "quite wrong")
    properties = secure_properties(secure_kafka_broker, "TEST_KAFKA_PASSWORD")
    run = source_run(secure_kafka_broker, tmp_path, topics=["guarded"], properties=properties)

    with pytest.raises(KafkaAccessError) as caught:
        run.start()

    assert "quite wrong" not in json.dumps(caught.value.to_json())
