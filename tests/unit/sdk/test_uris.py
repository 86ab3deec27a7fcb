"""Sources and sinks from one text."""

from dataclasses import dataclass
from typing import NewType

import pytest

from bicycle_sdk import KafkaSourceBuilder, StreamDefinitionError, StreamEnvironment, sinks
from bicycle_sdk.connectors import (
    csv_file_source,
    generator_source,
    jsonl_file_source,
    parquet_file_source,
    socket_source,
    text_file_source,
)
from bicycle_sdk.secrets import Secret
from bicycle_sdk.sinks.addresses import sink_from_uri
from bicycle_sdk.uris import source_from_uri


@dataclass
class Order:
    user: str


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("file:in.txt", text_file_source("in.txt")),
        ("file:///var/log/*.log?follow=true", text_file_source("/var/log/*.log", follow=True)),
        ("file:my%20folder/?format=text", text_file_source("my folder/")),
        ("file:in.jsonl.gz", jsonl_file_source("in.jsonl.gz")),
        ("file:in.csv?timestamp_field=at", csv_file_source("in.csv", timestamp_field="at")),
        ("file:in.parquet", parquet_file_source("in.parquet")),
        ("socket://127.0.0.1:4000", socket_source(host="127.0.0.1", port=4000)),
        (
            "socket://127.0.0.1:4000?journal=true",
            socket_source(host="127.0.0.1", port=4000, journal=True),
        ),
        ("generator:", generator_source()),
        ("generator:?rate_ms=0&count=5", generator_source(rate_ms=0, count=5)),
        ("kafka://a:1,b:2/lines", KafkaSourceBuilder[str]("a:1,b:2", "lines").build_connector()),
        (
            "kafka://a:1/x,y?group=g&start=latest&bounded=true&format=json",
            KafkaSourceBuilder("a:1", topics=["x", "y"])
            .deserializer("json")
            .group_id("g")
            .starting_offsets("latest")
            .bounded()
            .build_connector(),
        ),
    ],
)
def test_a_uri_gives_what_the_calls_give(uri, source):
    assert source_from_uri(uri) == source


def test_the_type_of_records_is_that_of_the_stream():
    assert source_from_uri("file:in.jsonl", Order).output_type is Order
    assert source_from_uri("kafka://a:1/orders", Order).properties["value_format"] == "json"


@pytest.mark.parametrize(
    ("record_type", "format"),
    [(NewType("UserId", str), "string"), (str | None, "string"), (bytes | None, "bytes")],
)
@pytest.mark.parametrize("uri", ["kafka://a:1/orders", "redis://h/orders"])
def test_a_type_over_a_plain_one_has_its_format(uri, record_type, format):
    source = source_from_uri(uri, record_type)

    assert source.properties.get("value_format", "string") == format
    assert source.output_type == record_type


def test_a_format_of_another_type_is_refused():
    with pytest.raises(StreamDefinitionError, match="returns str"):
        source_from_uri("kafka://a:1/orders?format=string", Order)


def test_a_schema_stands_beside_the_format(tmp_path):
    (tmp_path / "order.avsc").write_text('{"type": "long"}', encoding="utf-8")
    uri = f"kafka://a:1/orders?format=avro&schema={tmp_path}/order.avsc"
    messages = source_from_uri("kafka://a:1/orders?format=protobuf&schema=shop_pb2:Order")

    assert source_from_uri(uri).properties["value_format_options"] == {"schema": {"type": "long"}}
    assert messages.properties["value_format_options"] == {"message": "shop_pb2:Order"}


@pytest.mark.parametrize(
    ("uri", "properties"),
    [
        ("redis://h/a?retry_timeout_ms=5s&password=file:/run/pw&on_data_loss=continue",
         {"retry_timeout_ms": 5_000, "password": {"secret": {"file": "/run/pw"}},
          "on_data_loss": "continue"}),
        ("ws://h/a?segment_bytes=1MiB&ping_interval_ms=250",
         {"segment_bytes": 1 << 20, "ping_interval_ms": 250}),
    ],
)  # fmt: skip
def test_a_uri_accepts_every_option_with_units_and_secrets(uri, properties):
    found = source_from_uri(uri).properties

    assert found == {"address": uri.partition("?")[0], **properties}


def test_a_uri_of_kafka_accepts_every_option():
    uri = "kafka://a:1/t?discovery_interval_ms=1m&on_data_loss=latest&group_id=g&key_format=json"
    client = 'kafka://a:1/t?properties={"client.id":"me","sasl.password":"env:PW"}'
    sink = sink_from_uri('kafka://a:1/t?create_topic={"partitions":3}&on_rewind=publish_again')

    assert source_from_uri(uri).properties.items() >= {
        "discovery_interval_ms": 60_000, "on_data_loss": "latest", "group_id": "g",
        "key_format": "json",
    }.items()  # fmt: skip
    assert source_from_uri(client).properties["properties"] == {
        "client.id": "me", "sasl.password": {"secret": {"env": "PW"}},
    }  # fmt: skip
    assert sink.properties["create_topic"] == {"partitions": 3}
    assert sink.properties["on_rewind"] == "publish_again"


@pytest.mark.parametrize(
    ("uri", "problem", "hint"),
    [
        ("redis://h/a?pasword=env:PW", "unknown option 'pasword'", "did you mean 'password'?"),
        ("redis://h/a?password=hunter2", "option 'password' is not a valid", "reference to a"),
        ("redis://h/a?db=70000", "option 'db' is '70000'", "from 0 to 65,535"),
        (
            "kafka://a:1/t?discovery_interval_ms=1w",
            "option 'discovery_interval_ms' is '1w'",
            "'30s'",
        ),
        ("kafka://a:1/t?topic_pattern=t.*", "both are set", "set either topics or topic_pattern"),
        ('kafka://a:1/t?properties={"sasl.password":"hunter2"}', "option 'properties'", "map of"),
        (
            'kafka://a:1/t?start={"when":5}',
            """option 'start' is '{"when":5}'""",
            "earliest, latest",
        ),
        ("kafka://a:1/t?group=a&group_id=b", "duplicate option 'group_id'", "once"),
        ("pulsar://h/a", "option 'group' is not set", "add group=… to the query: "),
    ],
)
def test_a_wrong_option_of_a_uri_has_a_hint_and_shows_no_secret(uri, problem, hint):
    with pytest.raises(StreamDefinitionError) as refused:
        source_from_uri(uri)

    assert problem in refused.value.facts["problem"]
    assert hint in refused.value.facts["hint"]
    assert "hunter2" not in str(refused.value)


def test_an_environment_reads_from_a_uri():
    env = StreamEnvironment()
    env.from_uri("file:in.jsonl", type=Order).uid("in").print()

    [source, _] = env.execute("job").vertices
    assert source.details["connector"]["connector_type"] == "jsonl"


@pytest.mark.parametrize(
    ("uri", "part"),
    [
        ("in.txt", "scheme"),
        ("pigeon://a/b", "pigeon"),
        ("file://host/in.txt", "host"),
        ("file:", "path"),
        ("file:in.dat", "format"),
        ("file:in.dat?format=xml", "xml"),
        ("file:in.txt?folow=true", "folow"),
        ("kafka://a:1/t?format=avro", "avro"),
        ("kafka://a:1/t?format=avro&schema=missing.avsc", "missing.avsc"),
        ("kafka://a:1/t?format=json&schema=order.avsc", "schema"),
        ("file:in.txt?follow=yes", "follow"),
        ("file:in.txt?follow=true&follow=true", "duplicate option"),
        ("file:in.txt?timestamp_field=at", "timestamp_field"),
        ("kafka://a:1", "topic"),
        ("kafka:///topic", "brokers"),
        ("kafka://a:1/t?start=yesterday", "yesterday"),
        ("socket://host", "port"),
        ("socket://host:many", "many"),
        ("socket://host:1?journal=false", "journal"),
        ("socket://host:1?heads=true", "heads"),
        ("generator:?count=-1", "count"),
    ],
)
def test_what_names_no_source_is_refused_with_the_part_that_is_wrong(uri, part):
    with pytest.raises(StreamDefinitionError) as refused:
        source_from_uri(uri)

    assert part in refused.value.facts["problem"]


def test_lines_cannot_be_read_as_a_type():
    with pytest.raises(StreamDefinitionError):
        source_from_uri("file:in.txt", Order)


@pytest.mark.parametrize(
    ("uri", "record_type", "word", "properties", "given"),
    [
        ("redis://h/a,b", None, "redis", {}, str),
        ("pulsar://h/a,b?group=g", None, "pulsar", {"group": "g"}, str),
        (
            "pulsar+ssl://h/a?group=g&namespace=t/n&admin_url=https://h:8443&ca_file=c.pem",
            Order, "pulsar",
            {
                "value_format": "json", "group": "g", "namespace": "t/n",
                "admin_url": "https://h:8443", "ca_file": "c.pem",
            },
            Order,
        ),
        ("rediss://h:1/a", bytes, "redis", {"value_format": "bytes"}, bytes),
        ("redis://h/a", Order, "redis", {"value_format": "json"}, Order),
        ("file://a.ss/a?format=csv", Order, "stream_file", {"value_format": "csv"}, Order),
        (
            "redis://h/a?start=latest&bounded=true&group=g&db=2&message_field=m&username=u"
            "&timestamps=ns",
            None, "redis",
            {"start": "latest", "bounded": True, "group": "g", "db": 2, "message_field": "m",
             "username": "u", "timestamps": "ns"}, str,
        ),
        (
            "redis://h/a?password_env=SECRET", None, "redis",
            {"password": {"secret": {"env": "SECRET"}}}, str,
        ),
    ],
)  # fmt: skip
def test_streams_are_named_by_their_address(uri, record_type, word, properties, given):
    source = source_from_uri(uri, record_type)

    assert (source.connector_type, source.output_type) == (word, given)
    address = uri.partition("?")[0]
    assert source.properties == {"address": address, **properties}


def test_a_slash_after_a_socket_selects_its_stream():
    uri = "socket://h:1/a?journal=true&listen=true&heads=true&line_bytes_max=9"
    source = source_from_uri(uri, Order)

    assert (source.connector_type, source.output_type) == ("socket", Order)
    assert source.properties == {
        "host": "h", "port": 1, "stream": "a", "value_format": "json", "journal": True,
        "listen": True, "heads": True, "line_bytes_max": 9,
    }  # fmt: skip


def test_a_sink_is_named_by_the_address_of_its_stream():
    redis = sink_from_uri("redis://h/a?format=json&max_length=9")
    file = sink_from_uri("file:///tmp/out.ss/a")
    assert sink_from_uri("file:out.ss/a").properties == {"address": "file://out.ss/a"}

    assert (redis.connector_type, redis.properties) == (
        "redis",
        {"address": "redis://h/a", "value_format": "json", "max_length": 9},
    )
    assert (file.connector_type, file.properties) == (
        "stream_file",
        {"address": "file:///tmp/out.ss/a"},
    )


@pytest.mark.parametrize(
    ("uri", "word", "properties"),
    [
        ("ws://h:1/x/a?listen=true", "websocket", {"address": "ws://h:1/x/a", "listen": True}),
        (
            "socket://h:1/a?heads=true&format=json", "socket",
            {"host": "h", "port": 1, "stream": "a", "heads": True, "value_format": "json"},
        ),
        ("socket://127.0.0.1:1", "socket", {"host": "127.0.0.1", "port": 1}),
        ("stdio:///a", "stdio", {"address": "stdio:///a"}),
        (
            "kafka://a:1,b:2/t?guarantee=exactly-once&format=json", "kafka",
            {"brokers": "a:1,b:2", "topic": "t", "value_format": "json",
             "guarantee": "exactly-once"},
        ),
        (
            "kafka://a:1/t", "kafka", {"brokers": "a:1", "topic": "t", "value_format": "string"},
        ),
    ],
)  # fmt: skip
def test_every_backend_is_a_sink(uri, word, properties):
    sink = sink_from_uri(uri)
    assert (sink.connector_type, sink.properties) == (word, properties)


@pytest.mark.parametrize(
    ("uri", "sink"),
    [
        (
            "delta:lake/orders?mode=upsert&keys=id,day&roll_ms=5s",
            sinks.delta_sink("lake/orders", mode="upsert", keys=("id", "day"), roll_ms=5_000),
        ),
        (
            'delta:s3://bucket/orders?columns={"id":"int"}',
            sinks.delta_sink("s3://bucket/orders", columns={"id": int}),
        ),
        ("duckdb:/data/shop.db?table=orders", sinks.duckdb_sink("/data/shop.db", "orders")),
        (
            "iceberg:shop.orders?catalog=sqlite:////data/lake.db&warehouse=/data/lake",
            sinks.iceberg_sink("sqlite:////data/lake.db", "shop.orders", warehouse="/data/lake"),
        ),
        (
            "postgresql://ada@host:5432/shop?table=orders&keys=id&mode=upsert&password_env=PW",
            sinks.postgres_sink(
                "postgresql://ada@host:5432/shop", "orders", keys=("id",),
                password=Secret.env("PW"),
            ),
        ),
        ("parquet:out?partition_by=date", sinks.parquet_sink("out", partition_by="date")),
        ("csv:/data/out?roll_bytes=1MiB", sinks.file_sink("/data/out", format="csv",
                                                          roll_bytes=1 << 20)),
        ("https://host/hook?method=PUT", sinks.http_sink("https://host/hook", method="PUT")),
        ("console:?format=table", sinks.console_table_sink()),
        ("collect:seen", sinks.collect_sink("seen")),
    ],
)  # fmt: skip
def test_the_uri_of_a_table_gives_what_the_call_gives(uri, sink):
    assert sink_from_uri(uri) == sink


@pytest.mark.parametrize("uri", ["postgresql://ada@h/shop", "postgres://ada@h/shop"])
def test_a_table_is_a_source_with_a_type_of_records(uri):
    source = source_from_uri(f"{uri}?table=orders&column=id", Order)

    assert (source.connector_type, source.output_type) == ("postgres", Order)
    assert source.properties == {"follow": False, "url": uri, "table": "orders", "column": "id"}


@pytest.mark.parametrize(
    "uri",
    [
        "delta://lake/orders", "delta:", "duckdb:shop.db", "console:out", "delta:lake?moed=append",
        "file:out.jsonl", "pigeon://roof/a", "redis://h/a?group=g", "redis://h/a?db=two",
        "redis://h/a?db=1&db=2", "redis://h/a?format=json&schema=x",
        "ws://h/a?listen=yes", "stdio:///a?listen=true", "socket://h", "socket://h:many",
        "socket://h:1?group=g", "kafka://a:1/", "kafka://a:1/x,y", "kafka://a:1/t?guarantee=no",
    ],
)  # fmt: skip
def test_what_names_no_sink_is_told(uri):
    with pytest.raises(StreamDefinitionError) as caught:
        sink_from_uri(uri)
    assert caught.value.facts["call"] == "to_uri"
