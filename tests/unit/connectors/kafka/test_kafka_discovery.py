"""The Kafka source handles answers that lack some partitions."""

import logging
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from bicycle_runtime.connectors.kafka import source as source_module
from bicycle_runtime.connectors.kafka.cluster import ClusterSilentError
from bicycle_runtime.connectors.kafka.discovery import Discovery
from bicycle_runtime.connectors.kafka.errors import KafkaOffsetsLostError, KafkaTopicReplacedError
from bicycle_runtime.connectors.kafka.progress import Progress
from bicycle_runtime.connectors.registry import create_source
from bicycle_runtime.contract import Budget, ConnectorSpec, DriverServices
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.kafka.options import KafkaSourceOptions
from bicycle_streams.kafka.offsets import EARLIEST, LATEST

OLD = {"topics": {"t": "old"}}
FEW = Budget(record_count=5, byte_count=1 << 20, parallelism=1)


class Answer:
    """An answer that is there at once."""

    duration_s = 0.0

    def __init__(self, found):
        self._found = found

    def is_done(self, _wait_s):
        return True

    def result(self):
        return self._found


class FewLeaders:
    """Brokers with topic ``t``; a partition that is missing in ``ends`` has no leader.

    All other partitions begin at 0.
    """

    properties = SimpleNamespace(vertex="in")

    def __init__(self, ends, *, identity="old", count=2):
        self.ends = ends
        self.identity = identity
        self.count = count
        self.by_time = {}
        self.highs = None  # As ``ends``.

    def names(self, _timeout_s):
        return ["t"]

    def partition_counts(self, _names, _timeout_s):
        return {"t": self.count}

    def ask(self, shards, timestamp_ms):
        at = {EARLIEST: dict.fromkeys(self.ends, 0), LATEST: self.ends}
        return self._of(shards, at.get(timestamp_ms, self.by_time))

    def ask_identities(self, _names):
        return Answer({"t": self.identity})

    def high_ends(self, shards):
        return self._of(shards, self.ends if self.highs is None else self.highs).result()

    def now_s(self):
        return 0.0

    def serve(self):
        """Has no events."""

    @staticmethod
    def _of(shards, offsets):
        return Answer({shard: offsets[shard] for shard in shards if shard in offsets})


def discovery(cluster, progress, **options):
    given = KafkaSourceOptions("b:1", topics=("t",), **options)
    return Discovery(cluster, progress, given, clock=ManualClock(start_ms=1_000_000))


# --- topics created again -------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [{}, {"t/0": 5}])
def test_a_topic_created_again_is_noted_only_when_each_partition_has_answered(ends):
    progress = Progress({"t/0": 1_000, "t/1": 1_000}, OLD)
    cluster = FewLeaders(ends, identity="new")
    found = discovery(cluster, progress, on_data_loss="earliest")

    with pytest.raises(ClusterSilentError):
        found.start()
    assert progress.positions == {"t/0": 1_000, "t/1": 1_000}
    assert progress.topic_ids == {"t": "old"}
    assert found.is_due()

    cluster.ends = {"t/0": 5, "t/1": 5_000}
    found.look()
    assert progress.positions == {"t/0": 0, "t/1": 0}
    assert progress.topic_ids == {"t": "new"}


def test_a_topic_created_again_is_a_loss_when_its_only_partition_answers_later():
    cluster = FewLeaders({}, identity="new", count=1)
    found = discovery(cluster, Progress({"t/0": 1_000}, OLD))
    with pytest.raises(ClusterSilentError):
        found.start()

    cluster.ends = {"t/0": 5_000}
    with pytest.raises(KafkaOffsetsLostError) as caught:
        found.look()
    assert (caught.value.facts["next"], caught.value.facts["low"]) == (1_000, 0)


def test_a_topic_created_again_with_fewer_partitions_is_not_waited_for():
    progress = Progress({"t/0": 1_000, "t/1": 1_000}, OLD)
    cluster = FewLeaders({"t/0": 5}, identity="new", count=1)
    found = discovery(cluster, progress, on_data_loss="earliest")
    found.start()
    assert progress.positions == {"t/0": 0}

    cluster.ends, cluster.count = {"t/0": 5, "t/1": 5_000}, 2
    found.look()
    assert progress.positions == {"t/0": 0, "t/1": 0}


def test_a_partition_without_a_leader_does_not_hide_a_topic_created_again_from_a_seal():
    cluster = FewLeaders({"t/0": 1_000, "t/1": 1_000})
    found = discovery(cluster, Progress({"t/0": 1_000, "t/1": 1_000}, OLD))
    found.start()

    cluster.ends, cluster.identity = {"t/0": 5_000}, "new"
    with pytest.raises(KafkaTopicReplacedError):
        found.require_same_topics({"t"})


def test_nothing_is_read_of_a_topic_created_again_before_each_partition_has_answered(
    monkeypatch, caplog
):
    cluster, clock = FewLeaders({"t/0": 5_000}, identity="new"), ManualClock()
    monkeypatch.setattr(source_module, "Brokers", lambda *_args, **_options: cluster)
    properties = {"brokers": "b:1", "topics": ["t"], "on_data_loss": "earliest"}
    source = create_source(
        ConnectorSpec(vertex_id="in", connector_type="kafka", properties=properties)
    )
    services = DriverServices(storage=None, prefix="", clock=clock, collected={}, console=print)

    with caplog.at_level(logging.INFO):
        source.start(services, {"t/0": 1_000, "t/1": 1_000}, OLD)
        for _ in range(20):
            assert not source.poll().is_reachable
            assert source.plan(FEW) == []
            clock.advance(200)
        cluster.ends = {"t/0": 5_000, "t/1": 5_000}
        assert source.poll().is_reachable

    assert {part.start for part in source.plan(FEW)} == {0}
    events = [record.message for record in caplog.records]
    assert events.count("kafka_unreachable") == events.count("kafka_reachable") == 1


# --- answers that are missing --------------------------------------------------------------------


def test_a_time_to_start_at_is_asked_again_for_a_partition_without_an_answer():
    progress = Progress({}, {})
    cluster = FewLeaders({"t/0": 500, "t/1": 500})
    cluster.by_time = {"t/0": 100}
    found = discovery(cluster, progress, starting_offsets=datetime(2026, 1, 1, tzinfo=UTC))

    with pytest.raises(ClusterSilentError):
        found.look()
    assert progress.is_blank

    cluster.by_time["t/1"] = -1  # All messages are older.
    found.start()
    assert progress.positions == {"t/0": 100, "t/1": 500}


@pytest.mark.parametrize("highs", [None, {"t/0": 20}])
def test_a_bounded_run_has_its_stops_only_when_each_partition_has_answered(highs):
    progress = Progress({"t/0": 10, "t/1": 10}, OLD)
    cluster = FewLeaders({"t/0": 20} if highs is None else {"t/0": 20, "t/1": 20})
    cluster.highs = highs
    found = discovery(cluster, progress, bounded=True)
    found.start()
    assert progress.stops is None
    assert not progress.is_finished_at("t/1")

    cluster.ends, cluster.highs = {"t/0": 20, "t/1": 20}, {"t/0": 20, "t/1": 30}
    found.look()
    assert progress.stops == {"t/0": 20, "t/1": 30}


# --- doubts --------------------------------------------------------------------------------------


def doubted(clock, policy):
    """A source at 10 in two partitions, the second of which has been silent for long."""
    progress = Progress({"t/0": 10, "t/1": 10}, OLD)
    cluster = FewLeaders({"t/0": 10, "t/1": 10})
    options = KafkaSourceOptions("b:1", topics=("t",), on_data_loss=policy)
    found = Discovery(cluster, progress, options, clock=clock)
    found.start()
    for _ in range(2):
        found.doubt({"t/0": 10})
        clock.advance(11_000)
    cluster.ends = {"t/0": 10, "t/1": 8}
    return progress, found, cluster


def noticed(found, cluster):
    found.doubt(cluster.ends)
    found.look()


@pytest.mark.parametrize("policy", ["earliest", "fail"])
def test_the_first_answer_after_a_long_silence_is_not_certain(policy):
    clock = ManualClock(start_ms=1_000_000)
    progress, found, cluster = doubted(clock, policy)

    noticed(found, cluster)
    clock.advance(9_999)
    noticed(found, cluster)
    assert progress.positions == {"t/0": 10, "t/1": 10}

    cluster.ends = {"t/0": 10, "t/1": 12}
    noticed(found, cluster)
    clock.advance(11_000)
    cluster.ends = {"t/0": 10, "t/1": 8}
    noticed(found, cluster)
    assert progress.positions == {"t/0": 10, "t/1": 10}


def test_an_end_before_the_position_is_certain_after_ten_seconds_of_such_answers():
    clock = ManualClock(start_ms=1_000_000)
    progress, found, cluster = doubted(clock, "earliest")

    noticed(found, cluster)
    clock.advance(10_000)
    noticed(found, cluster)
    assert progress.positions == {"t/0": 10, "t/1": 0}


def test_a_silence_after_an_end_before_the_position_begins_anew():
    clock = ManualClock(start_ms=1_000_000)
    progress, found, cluster = doubted(clock, "earliest")
    noticed(found, cluster)
    clock.advance(11_000)

    found.doubt({"t/0": 10})
    noticed(found, cluster)

    assert progress.positions == {"t/0": 10, "t/1": 10}
