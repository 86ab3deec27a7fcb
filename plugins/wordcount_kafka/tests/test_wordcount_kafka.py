from collections import defaultdict

import pytest

from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import ParameterError
from bicycle_sdk.plugin import build, parameter_schema, plugin_info
from wordcount_kafka import WordCount, WordCountKafkaParams, as_text, wordcount_kafka

FROM_KAFKA_TO_KAFKA = {"source": "kafka", "sink": "kafka"}
FIRST = ["socket-source-v1", "kafka-sink-raw-v1"]
MIDDLE = ["kafka-source-raw-v1", "splitter-v1", "counter-v1", "kafka-sink-counts-v1"]
LAST = ["kafka-source-counts-v1", "formatter-v1", "socket-sink-v1"]
VARIABLES = {
    "KAFKA_BROKERS": "localhost:9092",
    "KAFKA_TOPIC_RAW": "raw-lines",
    "KAFKA_TOPIC_COUNTS": "word-counts",
    "KAFKA_GROUP_ID": "wordcount-kafka-group",
    "SOURCE_PORT": "9999",
    "SINK_PORT": "9998",
    "PARALLELISM": "2",
}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def graph_of(**settings):
    graph = build(wordcount_kafka, settings).graph
    graph.validate()
    return graph


def connector(graph, uid):
    return graph.vertex(uid).details["connector"]


def job(env: StreamEnvironment) -> None:
    wordcount_kafka(env, WordCountKafkaParams(**FROM_KAFKA_TO_KAFKA))


def whole_job(env: StreamEnvironment) -> None:
    wordcount_kafka(env, WordCountKafkaParams())


def counts_by_word(records):
    counts = defaultdict(list)
    for record in records:
        counts[record["word"]].append(record["count"])
    return counts


@pytest.mark.parametrize(
    ("settings", "uids"),
    [
        ({}, [*FIRST, *MIDDLE, *LAST]),
        ({"source": "kafka"}, [*MIDDLE, *LAST]),
        ({"sink": "kafka"}, [*FIRST, *MIDDLE]),
        (FROM_KAFKA_TO_KAFKA, MIDDLE),
    ],
)
def test_the_ends_can_be_left_out_and_the_names_stay(settings, uids):
    assert [vertex.uid for vertex in graph_of(**settings).vertices if vertex.uid] == uids


def test_lines_go_from_the_socket_to_the_raw_topic():
    graph = graph_of()

    assert connector(graph, "socket-source-v1")["properties"] == {"host": "127.0.0.1", "port": 9999}
    assert connector(graph, "kafka-sink-raw-v1")["properties"] == {
        "brokers": "localhost:9092",
        "topic": "raw-lines",
        "value_format": "string",
        "create_topic": {"partitions": 4},
    }


def test_words_are_counted_from_topic_to_topic_exactly_once():
    graph = graph_of(create_topics="no")

    assert connector(graph, "kafka-source-raw-v1")["properties"] == {
        "brokers": "localhost:9092",
        "topics": ["raw-lines"],
        "group_id": "wordcount-kafka-group",
        "starting_offsets": "earliest",
        "value_format": "string",
    }
    assert connector(graph, "kafka-sink-counts-v1")["properties"] == {
        "brokers": "localhost:9092",
        "topic": "word-counts",
        "guarantee": "exactly-once",
        "message_time": "written",
        "transactional_id_prefix": "wordcount-kafka-counts",
        "value_format": "json",
    }
    assert graph.vertex("kafka-sink-counts-v1").payloads == ("key",)


def test_counts_go_from_their_topic_to_the_socket():
    graph = graph_of()

    assert connector(graph, "kafka-source-counts-v1")["properties"] == {
        "brokers": "localhost:9092",
        "topics": ["word-counts"],
        "group_id": "wordcount-output-group",
        "starting_offsets": "earliest",
        "value_format": "json",
    }
    assert graph.vertex("kafka-source-counts-v1").output_type == "wordcount_kafka.WordCount"
    assert connector(graph, "socket-sink-v1")["properties"] == {"host": "127.0.0.1", "port": 9998}


def test_parallelism_and_times_are_those_of_the_job():
    graph = graph_of()
    widths = {vertex.uid: vertex.parallelism for vertex in graph.vertices if vertex.uid}

    assert widths == {
        "socket-source-v1": 1,
        "kafka-sink-raw-v1": 1,
        "kafka-source-raw-v1": 4,
        "splitter-v1": 4,
        "counter-v1": 2,
        "kafka-sink-counts-v1": 2,
        "kafka-source-counts-v1": 2,
        "formatter-v1": 1,
        "socket-sink-v1": 1,
    }
    assert graph.vertex("splitter-v1").slot_sharing_group == "processing"
    assert (graph.config.max_parallelism, graph.config.checkpoint_interval_ms) == (16, 30_000)


def test_the_environment_gives_defaults_and_parameters_win(monkeypatch):
    for number, name in enumerate(VARIABLES, start=1):
        monkeypatch.setenv(name, str(number))

    found = {info.name: info.default for info in parameter_schema(wordcount_kafka)}
    graph = graph_of(brokers="given:1", parallelism="3")

    assert [found[name] for name in ("brokers", "raw_topic", "counts_topic", "group_id")] == [
        "1",
        "2",
        "3",
        "4",
    ]
    assert (found["source_port"], found["sink_port"], found["parallelism"]) == (5, 6, 7)
    assert connector(graph, "kafka-source-raw-v1")["properties"]["brokers"] == "given:1"
    assert connector(graph, "kafka-source-raw-v1")["properties"]["topics"] == ["2"]
    assert graph.vertex("counter-v1").parallelism == 3


def test_an_empty_variable_is_none(monkeypatch):
    monkeypatch.setenv("SOURCE_PORT", "")

    assert WordCountKafkaParams().source_port == 9999


def test_a_variable_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv("PARALLELISM", "two")

    with pytest.raises(ParameterError) as caught:
        graph_of()

    assert caught.value.facts["name"] == "PARALLELISM"


def test_a_bounded_job_ends_with_the_topic():
    graph = graph_of(**FROM_KAFKA_TO_KAFKA, bounded="yes")

    assert connector(graph, "kafka-source-raw-v1")["properties"]["bounded"] is True


@pytest.mark.parametrize("end", ["source", "sink"])
def test_a_job_with_a_socket_has_no_end(end):
    with pytest.raises(ParameterError) as caught:
        graph_of(**{**FROM_KAFKA_TO_KAFKA, end: "socket"}, bounded="yes")

    assert caught.value.facts["name"] == "bounded"


def test_every_word_is_counted_from_one_on_without_gaps_over_crashes_and_rescaling():
    #  epoch 1: to be or | crash | epoch 2: NOT to be | 3 subtasks | epoch 3: to
    with Harness(job, scripted=["kafka-source-raw-v1"]) as harness:
        harness.push(["to be or"])
        harness.run_epoch()
        harness.crash()
        harness.push(["NOT\tto be", ""])
        harness.run_epoch()
        harness.rescale(3)
        harness.push(["to"])
        harness.run_epoch()

        assert counts_by_word(harness.published) == {
            "to": [1, 2, 3],
            "be": [1, 2],
            "or": [1],
            "not": [1],
        }


def test_a_socket_client_sees_word_and_count_as_text():
    assert as_text(WordCount(word="ada", count=2)) == "ada:2"


def test_each_of_the_three_pipelines_does_its_part():
    sources = ["socket-source-v1", "kafka-source-raw-v1", "kafka-source-counts-v1"]
    with Harness(whole_job, scripted=sources) as harness:
        harness.push(["To be", "or not"], source="socket-source-v1")
        harness.push(["To be"], source="kafka-source-raw-v1")
        harness.push([WordCount(word="to", count=7)], source="kafka-source-counts-v1")
        harness.run_epoch()

        assert harness.results("kafka-sink-raw-v1") == ["To be", "or not"]
        assert counts_by_word(harness.results("kafka-sink-counts-v1")) == {"to": [1], "be": [1]}
        assert harness.results("socket-sink-v1") == ["to:7"]


def test_every_parameter_is_documented():
    assert all(info.doc for info in parameter_schema(wordcount_kafka))
    assert plugin_info(wordcount_kafka).name == "wordcount_kafka"
