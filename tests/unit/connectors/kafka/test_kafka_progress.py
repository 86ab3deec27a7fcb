"""What the state keeps until a partition is read, and options of the source that are refused."""

import json

import pytest

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.connectors.kafka.errors import KAFKA_PROPERTY_WRONG
from bicycle_runtime.connectors.kafka.progress import Progress
from bicycle_runtime.connectors.registry import create_sink, create_source
from bicycle_runtime.contract import ConnectorSpec
from tests.raising import raises


def restarted(progress, offsets, ends):
    """Seal an epoch that read up to ``ends``, and start again from what is sealed."""
    state = json.loads(json.dumps(progress.snapshot(ends)))
    return Progress({**offsets, **ends}, state)


def test_where_reading_begins_is_kept_until_something_is_read():
    progress = Progress({}, {})
    progress.decide("t/0", 100)
    progress.decide("t/1", 200)

    again = restarted(progress, {}, {"t/0": 150})

    assert again.known() == {"t/0": 150, "t/1": 200}
    assert restarted(again, {"t/0": 150}, {"t/1": 201}).snapshot({}) == {"topics": {}}


def test_a_jump_backwards_outlasts_the_sealed_offset():
    progress = Progress({"t/0": 1_000}, {})
    progress.resume("t/0")
    progress.decide("t/0", 0)

    assert restarted(progress, {"t/0": 1_000}, {}).known() == {"t/0": 0}


def test_a_decision_asks_to_be_sealed_once():
    progress = Progress({}, {})
    assert progress.is_sealed

    progress.decide("t/0", 5)
    assert not progress.is_sealed

    progress.sealed({})
    assert progress.is_sealed


def test_offsets_of_partitions_that_are_not_read_stay_known():
    progress = Progress({"old/0": 7, "t/0": 1}, {})
    progress.resume("t/0")

    assert [backlog.shard for backlog in progress.backlogs(())] == ["t/0"]
    assert progress.known()["old/0"] == 7


def test_bounded_reading_ends_at_its_stops_in_every_run():
    progress = Progress({}, {})
    progress.decide("t/0", 0)
    progress.stop_at({"t/0": 10})
    progress.ends["t/0"] = 50

    again = restarted(progress, {}, {"t/0": 10})
    again.resume("t/0")

    assert [backlog.end for backlog in progress.backlogs(())] == [10]
    assert not progress.is_finished()
    assert again.is_finished()


def test_unreachable_partitions_have_nothing_to_read():
    progress = Progress({"t/0": 1, "t/1": 1}, {})
    for shard in ("t/0", "t/1"):
        progress.resume(shard)
        progress.ends[shard] = 9

    backlogs = progress.backlogs({"t/0"})

    assert [(b.start, b.end) for b in backlogs] == [(1, 1), (1, 9)]
    assert sum(b.end - b.start for b in progress.backlogs(())) == 16


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({}, "topics"),
        ({"topics": ["a"], "topic_pattern": "b"}, "topics"),
        ({"topic_pattern": "("}, "topics"),
        ({"topics": ["a"], "starting_offsets": "newest"}, "starting_offsets"),
        ({"topics": ["a"], "starting_offsets": {"timestamp_ms": -1}}, "starting_offsets"),
        ({"topics": ["a"], "starting_offsets": {"offsets": {"a": {"x": 1}}}}, "starting_offsets"),
        ({"topics": ["a"], "starting_offsets": {"offsets": {"b": {"0": 1}}}}, "starting_offsets"),
        (
            {"topic_pattern": "a.", "starting_offsets": {"offsets": {"a": {"0": 1}}}},
            "starting_offsets",
        ),
        ({"topics": ["a"], "value_format": "xml"}, "value_format"),
        ({"topics": ["a"], "on_data_loss": "ignore"}, "on_data_loss"),
        ({"topics": ["a"], "topic": "a"}, "topic"),
    ],
)
def test_options_that_say_nothing_or_too_much_are_refused(properties, name):
    with raises(CONNECTOR_OPTION_WRONG) as caught:
        create_source(source_spec(properties))

    assert caught.value.facts["name"] == name


@pytest.mark.parametrize(
    "name",
    [
        *("bootstrap.servers", "metadata.broker.list", "group.id", "group.instance.id"),
        *("auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store"),
        "enable.partition.eof",
    ],
)
def test_properties_that_the_source_decides_are_refused(name):
    with raises(KAFKA_PROPERTY_WRONG) as caught:
        create_source(source_spec({"topics": ["a"], "properties": {name: "x"}}))

    assert caught.value.facts["name"] == name


@pytest.mark.parametrize(
    ("read", "is_fed"),
    [
        ({"topics": ["a", "b"]}, True),
        ({"topics": ["b"]}, False),
        ({"topic_pattern": "a.?"}, True),
        ({"topic_pattern": "aa"}, False),
    ],
)
def test_a_source_waits_for_a_topic_that_a_sink_of_its_job_makes(read, is_fed):
    properties = {"brokers": "localhost:1", "topic": "a", "create_topic": {"partitions": 1}}
    sink = create_sink(ConnectorSpec(vertex_id="s", connector_type="kafka", properties=properties))

    assert create_source(source_spec(read)).is_fed_by([*sink.makes(), "file:b"]) is is_fed


def test_a_sink_that_makes_no_topic_says_so():
    properties = {"brokers": "b:1", "topic": "a"}
    spec = ConnectorSpec(vertex_id="s", connector_type="kafka", properties=properties)

    assert list(create_sink(spec).makes()) == []


def source_spec(properties):
    return ConnectorSpec(
        vertex_id="v", connector_type="kafka", properties={"brokers": "b:1", **properties}
    )
