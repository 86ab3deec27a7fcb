"""Formats as plain data: what the calls give, and what they refuse where it stands."""

from pathlib import Path

import pytest

from bicycle_sdk import KafkaSinkBuilder, KafkaSourceBuilder
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.formats import Format, as_format, avro, csv, protobuf

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


class Unlike:
    """No class of messages."""


def test_a_schema_may_be_text_data_or_a_file_and_is_kept_as_data(tmp_path):
    file = tmp_path / "order.avsc"
    file.write_text('{"type": "long"}', encoding="utf-8")

    assert avro(SCHEMA) == Format("avro", {"schema": SCHEMA})
    assert avro(' {"type": "long"}') == avro(file) == avro(str(file))


def test_a_schema_file_that_changes_later_changes_no_graph(tmp_path):
    file = tmp_path / "order.avsc"
    file.write_text('{"type": "long"}', encoding="utf-8")
    source = KafkaSourceBuilder[int]("b:1", "t").deserializer(avro(file))
    file.write_text('{"type": "string"}', encoding="utf-8")

    properties = source.build_connector().properties

    assert properties["value_format_options"] == {"schema": {"type": "long"}}


@pytest.mark.parametrize(
    "call",
    [
        lambda: avro("missing.avsc"),
        lambda: avro("{not json"),
        lambda: avro(Path(__file__).parent),
        lambda: csv(delimiter=""),
        lambda: csv(delimiter="||"),
        lambda: csv(delimiter="\n"),
        lambda: csv(fields="ab"),
        lambda: csv(fields=["a", "a"]),
        lambda: protobuf("shop_pb2"),
        lambda: protobuf(Unlike),
        lambda: protobuf(3),
        lambda: as_format("avro", call="serializer"),
        lambda: as_format("protobuf", call="serializer"),
        lambda: as_format("schema", call="serializer"),
        lambda: as_format(None, call="serializer"),
    ],
)
def test_what_says_too_little_is_refused_where_it_stands(call):
    with pytest.raises(StreamDefinitionError):
        call()


def test_the_last_format_counts_with_its_options_alone():
    sink = KafkaSinkBuilder[str]("b:1", "t").serializer(avro(SCHEMA)).serializer("json")
    other = KafkaSinkBuilder[str]("b:1", "t").serializer("json").serializer(csv(fields=["a"]))

    assert sink.build_connector().properties == {
        "brokers": "b:1",
        "topic": "t",
        "value_format": "json",
    }
    assert other.build_connector().properties["value_format_options"]["fields"] == ["a"]


def test_a_source_without_type_has_the_type_that_its_format_gives():
    def made(format):
        return KafkaSourceBuilder("b:1", "t").deserializer(format).build_connector().output_type

    assert (made("string"), made("bytes"), made(csv(fields=["a"]))) == (str, bytes, None)
