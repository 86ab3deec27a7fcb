"""Former names of options are collected while a graph is built, with the location of their use."""

from inspect import currentframe

import pytest

from bicycle_sdk import StreamEnvironment, file_sink
from bicycle_sdk.former_names import FormerName, collect_former_names, note_former_name
from bicycle_sdk.kafka.options import KafkaSourceOptions
from bicycle_sdk.sinks import parquet_sink
from bicycle_sdk.uris import source_from_uri


def line():
    """Return the location of the caller's next line."""
    frame = currentframe().f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno + 1}"


def test_a_keyword_argument_is_collected_with_its_call():
    with collect_former_names() as found:
        at = line()
        sink = file_sink("out", max_bytes=1_000)

    assert list(found) == [FormerName("max_bytes", "roll_bytes", at)]
    assert sink.properties == {"path": "out", "roll_bytes": 1_000}


def test_a_parameter_of_a_uri_is_collected_with_its_call():
    with collect_former_names() as found:
        at = line()
        source_from_uri("jsonl:in.jsonl?time_field=at")

    assert list(found) == [FormerName("time_field", "timestamp_field", at)]


@pytest.mark.parametrize(
    "build",
    [
        lambda: file_sink("out", roll_bytes=1_000),
        lambda: source_from_uri("jsonl:in.jsonl?timestamp_field=at"),
        lambda: source_from_uri("kafka://h:9/orders?group_id=g&format=json"),
        lambda: KafkaSourceOptions(brokers="h:9", topics=("orders",), group_id="g"),
    ],
)
def test_present_names_are_not_collected(build):
    with collect_former_names() as found:
        build()

    assert found == {}


def test_a_use_is_collected_once_and_only_in_its_block():
    with collect_former_names() as found:
        for _ in range(3):
            parquet_sink("out", folders="none")
    parquet_sink("out", max_rows=10)

    assert [each.present for each in found] == ["partition_by"]


def test_the_number_of_collected_names_is_bounded():
    with collect_former_names() as found:
        for number in range(1_000):
            note_former_name(f"old_{number}", "new", "here:1")

    assert len(found) == 100


def test_the_graph_of_a_former_name_is_that_of_the_present_one():
    graphs = []
    for name in ("max_bytes", "roll_bytes"):
        env = StreamEnvironment()
        env.from_collection([1]).sink_to(file_sink("out", **{name: 1_000}))
        graphs.append(env.build_graph("job").to_json())

    assert graphs[0] == graphs[1]
