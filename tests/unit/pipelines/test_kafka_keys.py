"""Wrong options of Kafka in a pipeline are found before the start, with their line."""

from types import SimpleNamespace

import pytest

from bicycle_runtime.pipelines.record_functions import WithMessage
from tests.unit.pipelines.test_problems import KAFKA, KAFKA_SINK, problems


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        (
            KAFKA,
            "start = { when = 1 }",
            "6:9: source.start: expected earliest, latest, {timestamp_",
        ),
        (KAFKA, "start = 'newest'", "6:9: unsupported source.start: newest; known: earliest, lat"),
        (KAFKA, "start = { offsets = { u = { 0 = 5 } } }", "6:9: source.start: it names topic 'u'"),
        (KAFKA, "topic_pattern = 't.*'", "4:9: source.topic: both are set; set either topics or"),
        (KAFKA, '"client.id" = ["a"]', "6:15: source.properties.client.id is ['a']; expected"),
        (
            KAFKA_SINK,
            "create_topic = { partitions = 0 }",
            "sink.create_topic: expected {partitions",
        ),
        (KAFKA_SINK, "publish_threads_max = 65", "sink.publish_threads_max is 65; expected 1..64"),
    ],
)
def test_a_wrong_option_of_kafka_is_told_at_its_key(text, keys, message):
    group = 'group_id = "g"'
    text = text.replace(group, f"{group}\n{keys}") if group in text else f"{text}{keys}\n"
    [found] = problems(text)

    assert message in found


@pytest.mark.parametrize(
    ("record", "has_index"),
    [
        ({"bytes": "no object"}, False),
        ({"bytes_b64": "/w=="}, False),
        ({"bytes": 512}, True),
        ({"bytes": "512", "path": "/"}, True),
        ({}, True),
    ],
)
def test_an_object_with_a_field_bytes_gets_the_index_of_its_message(record, has_index):
    index = {"_topic": "logs", "_partition": 2, "_offset": 7}
    context = SimpleNamespace(message=SimpleNamespace(shard="logs/2", offset=7))

    found = WithMessage().process(record, context)

    assert found == [{**record, **(index if has_index else {})}]
