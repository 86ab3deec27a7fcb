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
from bicycle_sdk.options import declared_options, describe

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
    ("builder", "options", "untold"),
    [
        (full_source(), KafkaSourceOptions, {"topic_pattern"}),
        (full_sink(), KafkaSinkOptions, {"publish_threads_max"}),
    ],
)
def test_a_job_can_set_every_option_that_it_should_decide(builder, options, untold):
    known = {info.name for info in describe(options)}

    assert set(builder.build_connector().properties) == known - untold


@pytest.mark.parametrize("builder", [full_source(), full_sink()])
def test_every_call_that_an_option_names_is_there_and_sets_it(builder):
    declared = declared_options(builder._options)
    calls = {option.call: name for name, option in declared.items() if option.call}
    unset = {"brokers", "topic", "topics", "topic_pattern", "publish_threads_max"}
    beside = {name for name in declared if name.endswith("_format_options")}

    assert set(calls.values()) == set(declared) - unset - beside
    assert [call for call in calls if not callable(getattr(builder, call, None))] == []


@pytest.mark.parametrize(
    ("builder", "call"),
    [
        (KafkaSourceBuilder[str]("b:1", "t"), "discovery_interval"),
        (KafkaSourceBuilder[str]("b:1", "t"), "connect_timeout"),
        (KafkaSinkBuilder[str]("b:1", "t"), "transaction_timeout"),
    ],
)
def test_a_duration_out_of_the_declared_bounds_is_refused_where_it_is_set(builder, call):
    option = next(o for o in declared_options(builder._options).values() if o.call == call)
    for duration_ms in (option.low, option.high):
        getattr(builder, call)(timedelta(milliseconds=duration_ms))
    for duration_ms in (option.low - 1, option.high + 1):
        with pytest.raises(StreamDefinitionError) as caught:
            getattr(builder, call)(timedelta(milliseconds=duration_ms))
        assert f"{option.low:,} to {option.high:,} ms" in caught.value.facts["hint"]
