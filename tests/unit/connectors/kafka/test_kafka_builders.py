"""What the builders of the SDK say, the connector understands: each call is an option of it."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, NewType

import pytest

from bicycle_runtime.connectors.kafka.sink import KafkaSink
from bicycle_runtime.connectors.kafka.source import KafkaSource
from bicycle_runtime.contract import ConnectorSpec, Guarantee
from bicycle_sdk import DeliveryGuarantee, KafkaSinkBuilder, KafkaSourceBuilder, Secret
from bicycle_sdk.connectors import SourceDescriptor
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.formats import avro, csv
from bicycle_sdk.kafka.options import KafkaSinkOptions, KafkaSourceOptions
from bicycle_sdk.kafka.security import KafkaSecurity
from bicycle_sdk.options import declared_options, describe, from_mapping

UserId = NewType("UserId", str)
MINUTE = timedelta(minutes=1)


class Schema:
    def decode(self, data):
        return data.decode()

    def encode(self, value):
        return value.encode()


def first(text):
    return text[:1]


def full_source():
    return (
        KafkaSourceBuilder[dict[str, str]]("b:1", topics=["t", "u"])
        .group_id("g")
        .starting_offsets({"t": {0: 5}})
        .deserializer(csv(fields=["line"]))
        .key_deserializer(csv(fields=["key"]))
        .bounded()
        .transaction_wait(MINUTE)
        .discovery_interval(MINUTE)
        .on_data_loss("latest")
        .connect_timeout(MINUTE)
        .sasl("SCRAM-SHA-512", "ada", Secret.env("WORD"))
        .tls(ca_location="/ca.pem")
    )


def full_sink():
    return (
        KafkaSinkBuilder[str]("b:1", "t")
        .key(first)
        .value(first)
        .headers(first)
        .timestamp(first)
        .partition(first)
        .serializer(avro('"string"'))
        .key_serializer(csv(fields=["key"]))
        .delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .transactional_id_prefix("p")
        .marker_topic("m")
        .transaction_timeout(MINUTE)
        .recovery_budget(MINUTE)
        .publish_timeout(MINUTE)
        .publish_threads(2)
        .connect_timeout(MINUTE)
        .on_rewind("publish_again")
        .message_time("written")
        .create_topic(partitions=4, replication_factor=1, retention=MINUTE, config={"a": "b"})
        .sasl("PLAIN", "ada", Secret.file("/word"))
    )


def opened(builder, connector):
    descriptor = builder.build_connector()
    is_source = isinstance(descriptor, SourceDescriptor)
    spec = ConnectorSpec(
        vertex_id="v",
        connector_type=descriptor.connector_type,
        properties=descriptor.properties,
        payloads=descriptor.payloads,
        record_type=descriptor.output_type if is_source else descriptor.input_type,
    )
    return connector(spec)


@pytest.mark.parametrize(
    "builder",
    [
        KafkaSourceBuilder[str]("b:1", "t"),
        KafkaSourceBuilder("b:1", topic_pattern="t.*"),
        KafkaSourceBuilder[bytes]("b:1", "t").starting_offsets("latest"),
        KafkaSourceBuilder[int]("b:1", "t").starting_offsets(datetime(2026, 1, 1, tzinfo=UTC)),
        KafkaSourceBuilder[str]("b:1", "t").with_schema(Schema()).with_key_schema(Schema()),
        KafkaSourceBuilder[UserId]("b:1", "t"),
        KafkaSourceBuilder[Annotated[bytes, "raw"]]("b:1", "t"),
        KafkaSourceBuilder[str | None]("b:1", "t"),
        full_source(),
    ],
)
def test_a_source_is_understood(builder):
    assert isinstance(opened(builder, KafkaSource), KafkaSource)


@pytest.mark.parametrize(
    "builder",
    [
        KafkaSinkBuilder[str]("b:1", "t"),
        KafkaSinkBuilder("b:1", "t").create_topic(),
        KafkaSinkBuilder[str]("b:1", "t").with_schema(Schema()).with_key_schema(Schema()),
        full_sink(),
    ],
)
def test_a_sink_is_understood(builder):
    assert isinstance(opened(builder, KafkaSink), KafkaSink)


def test_the_guarantee_arrives():
    builder = KafkaSinkBuilder[str]("b:1", "t")
    found = [
        opened(builder.delivery_guarantee(guarantee), KafkaSink).guarantee
        for guarantee in DeliveryGuarantee
    ]

    assert found == [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE]


@pytest.mark.parametrize(
    ("builder", "missing"), [(full_source(), {"topic_pattern"}), (full_sink(), set())]
)
def test_a_builder_sets_every_option(builder, missing):
    known = {info.name for info in describe(builder.options_class)}
    # ``sasl`` and ``tls`` set properties of the client instead.
    security = {info.name for info in describe(KafkaSecurity)} | {"password"}

    assert set(builder.build_connector().properties) == known - missing - security


@pytest.mark.parametrize("builder", [full_source(), full_sink()])
def test_the_options_class_makes_the_same_properties_as_the_builder(builder):
    built = builder.build_connector().properties
    options = from_mapping(builder.options_class, built)

    assert options.build_connector().properties == built


def test_options_of_python_need_no_builder():
    source = KafkaSourceOptions(
        "b:1", topics=["t"], start={"t": {0: 5}}, format=csv(fields=["line"]),
        properties={"sasl.password": Secret.env("WORD"), "check.crcs": True},
    )  # fmt: skip
    sink = KafkaSinkOptions("b:1", "t", create_topic={"partitions": 4}, publish_threads_max=2)

    assert source.build_connector().properties == {
        "brokers": "b:1",
        "topics": ["t"],
        "starting_offsets": {"offsets": {"t": {"0": 5}}},
        "value_format": "csv",
        "value_format_options": {"fields": ["line"], "delimiter": ","},
        "properties": {"sasl.password": {"secret": {"env": "WORD"}}, "check.crcs": "true"},
    }
    assert sink.build_connector().properties == {
        "brokers": "b:1", "topic": "t", "create_topic": {"partitions": 4}, "publish_threads_max": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "neither it nor topic_pattern is set"),
        ({"topics": ["t"], "topic_pattern": "t.*"}, "both are set"),
        ({"topic_pattern": "("}, "is not a regular expression"),
        ({"topics": ["t"], "starting_offsets": {"u": {0: 1}}}, "names topic 'u'"),
        (
            {"topics": ["t"], "properties": {"sasl.password": "hunter2"}},
            "sasl.password is a secret",
        ),
        ({"topics": ["t"], "properties": {"a": None}}, "a has the type NoneType"),
        ({"topics": ["t"], "starting_offsets": "newest"}, "starting_offsets is 'newest'"),
    ],
)
def test_options_that_say_nothing_or_too_much_are_refused(options, problem):
    with pytest.raises(StreamDefinitionError) as caught:
        KafkaSourceOptions("b:1", **options).build_connector()

    assert problem in caught.value.facts["problem"]
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("builder", "call", "name"),
    [
        (KafkaSourceBuilder[str]("b:1", "t"), "discovery_interval", "discovery_interval_ms"),
        (KafkaSourceBuilder[str]("b:1", "t"), "connect_timeout", "connect_timeout_ms"),
        (KafkaSinkBuilder[str]("b:1", "t"), "transaction_timeout", "transaction_timeout_ms"),
    ],
)
def test_a_duration_out_of_the_declared_bounds_is_refused_where_it_is_set(builder, call, name):
    option = declared_options(builder.options_class)[name]
    for duration_ms in (option.low, option.high):
        getattr(builder, call)(timedelta(milliseconds=duration_ms))
    for duration_ms in (option.low - 1, option.high + 1):
        with pytest.raises(StreamDefinitionError) as caught:
            getattr(builder, call)(timedelta(milliseconds=duration_ms))
        assert caught.value.facts["call"].endswith(f"Builder.{call}")
        assert f"from {option.low:,} to {option.high:,}" in caught.value.facts["problem"]
