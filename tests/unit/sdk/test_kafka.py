import json
import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NewType, Optional

import pytest

from bicycle_sdk import (
    DeliveryGuarantee,
    KafkaSinkBuilder,
    KafkaSourceBuilder,
    Secret,
)
from bicycle_sdk.errors import GraphError, StreamDefinitionError
from bicycle_sdk.graph import OperatorKind
from bicycle_sdk.kafka.values import is_secret_property
from tests.unit.sdk.jobs import Parity, only

UserId = NewType("UserId", str)
SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Click:
    user: str


class Avro:
    def decode(self, data):
        return Click(data.decode())

    def encode(self, value):
        return value.user.encode()


def source(record_type=str):
    return KafkaSourceBuilder[record_type]("b:1", "t")


def sink(record_type=str):
    return KafkaSinkBuilder[record_type]("b:1", "t")


def properties(builder):
    return builder.build_connector().properties


def a_key(click: Click) -> str:
    return click.user


# --- what a source says ----------------------------------------------------------------------


def test_a_source_says_only_what_was_set():
    assert properties(source()) == {"brokers": "b:1", "topics": ["t"], "value_format": "string"}


def test_a_source_says_all_that_was_set():
    builder = (
        source()
        .group_id("readers")
        .property("client.id", "bike")
        .properties({"fetch.min.bytes": 5, "check.crcs": True})
        .starting_offsets("latest")
        .deserializer("string")
        .key_deserializer("json")
        .bounded()
        .discovery_interval(3 * SECOND)
        .connect_timeout(4 * SECOND)
        .on_data_loss("earliest")
    )

    assert properties(builder) == {
        "brokers": "b:1",
        "topics": ["t"],
        "group_id": "readers",
        "starting_offsets": "latest",
        "value_format": "string",
        "key_format": "json",
        "bounded": True,
        "discovery_interval_ms": 3_000,
        "connect_timeout_ms": 4_000,
        "on_data_loss": "earliest",
        "properties": {"client.id": "bike", "fetch.min.bytes": "5", "check.crcs": "true"},
    }


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        ({"topic": "a"}, {"topics": ["a"]}),
        ({"topics": ("a", "b")}, {"topics": ["a", "b"]}),
        ({"topic_pattern": "a.*"}, {"topic_pattern": "a.*"}),
    ],
)
def test_topics_are_one_or_several_or_a_pattern(topics, said):
    found = properties(KafkaSourceBuilder[str]("b:1", **topics))

    assert found == {"brokers": "b:1", "value_format": "string", **said}


@pytest.mark.parametrize(
    ("record_type", "format", "output_type"),
    [
        (str, "string", str),
        (bytes, "bytes", bytes),
        (Click, "json", Click),
        (dict[str, int], "json", dict[str, int]),
        (UserId, "string", UserId),
        (Annotated[bytes, "raw"], "bytes", Annotated[bytes, "raw"]),
        (str | None, "string", str | None),
        (Optional[bytes], "bytes", Optional[bytes]),  # noqa: UP045 - the other way to write it.
        (str | int, "json", str | int),
        ("Later", "json", None),
        (Any, "json", None),
    ],
)
def test_the_type_in_brackets_chooses_the_format(record_type, format, output_type):
    descriptor = source(record_type).build_connector()

    assert descriptor.properties["value_format"] == format
    assert descriptor.output_type == output_type


def test_the_type_may_be_a_keyword():
    descriptor = KafkaSourceBuilder("b:1", "t", record_type=bytes).build_connector()

    assert (descriptor.properties["value_format"], descriptor.output_type) == ("bytes", bytes)


def test_without_a_type_a_source_reads_json_of_any_kind():
    descriptor = KafkaSourceBuilder("b:1", "t").build_connector()

    assert (descriptor.properties["value_format"], descriptor.output_type) == ("json", None)


def test_a_format_wins_over_the_type_and_a_schema_wins_over_both():
    schema = Avro()
    by_format = source(Click).deserializer("msgpack")
    first = source(Click).with_schema(schema).deserializer("json").build_connector()
    last = source(Click).deserializer("json").with_schema(schema).build_connector()

    assert properties(by_format)["value_format"] == "msgpack"
    assert first.properties["value_format"] == last.properties["value_format"] == "schema"
    assert first.payloads == last.payloads == {"value_schema": schema}
    assert last.output_type is Click


def test_a_format_gives_its_type_to_a_source_without_type():
    assert KafkaSourceBuilder("b", "t").deserializer("bytes").build_connector().output_type is bytes


def test_a_schema_for_keys_travels_beside_the_graph():
    schema = Avro()
    descriptor = source().with_key_schema(schema).build_connector()

    assert descriptor.properties["key_format"] == "schema"
    assert descriptor.payloads == {"key_schema": schema}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("earliest", "earliest"),
        (datetime(1970, 1, 1, 0, 0, 2, 500_000, tzinfo=UTC), {"timestamp_ms": 2_500}),
        ({"t": {1: 9, 0: 7}, "u": {}}, {"offsets": {"t": {"0": 7, "1": 9}, "u": {}}}),
    ],
)
def test_a_source_starts_at_an_end_at_a_time_or_at_offsets(where, said):
    builder = KafkaSourceBuilder[str]("b:1", topics=["t", "u"]).starting_offsets(where)

    assert properties(builder)["starting_offsets"] == said


# --- what a sink says ------------------------------------------------------------------------


def test_a_sink_says_only_what_was_set():
    assert properties(sink(Click)) == {"brokers": "b:1", "topic": "t", "value_format": "json"}


def test_a_sink_without_type_leaves_the_format_to_the_stream():
    assert properties(KafkaSinkBuilder("b:1", "t")) == {"brokers": "b:1", "topic": "t"}


def test_a_sink_says_all_that_was_set():
    builder = (
        sink(Click)
        .property("linger.ms", 5)
        .serializer("msgpack")
        .key_serializer("string")
        .delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .transactional_id_prefix("clicks")
        .transaction_timeout(60 * SECOND)
        .recovery_budget(20 * SECOND)
        .publish_timeout(30 * SECOND)
        .connect_timeout(40 * SECOND)
        .marker_topic("marks")
        .on_rewind("publish_again")
        .create_topic(partitions=4, replication_factor=3, retention=SECOND, config={"a": "b"})
    )

    assert properties(builder) == {
        "brokers": "b:1",
        "topic": "t",
        "value_format": "msgpack",
        "key_format": "string",
        "guarantee": "exactly-once",
        "transactional_id_prefix": "clicks",
        "transaction_timeout_ms": 60_000,
        "recovery_budget_ms": 20_000,
        "publish_timeout_ms": 30_000,
        "connect_timeout_ms": 40_000,
        "marker_topic": "marks",
        "on_rewind": "publish_again",
        "create_topic": {
            "partitions": 4,
            "replication_factor": 3,
            "config": {"a": "b", "retention.ms": "1000"},
        },
        "properties": {"linger.ms": "5"},
    }


def test_functions_of_a_sink_travel_beside_the_graph():
    functions = {
        "key": a_key,
        "value": str,
        "headers": lambda click: [("user", click.user.encode())],
        "timestamp": lambda click: 5,
        "partition": lambda click: 0,
    }
    builder = sink(Click)
    for role, function in functions.items():
        assert getattr(builder, role)(function) is builder

    assert builder.build_connector().payloads == functions


def test_the_function_for_values_chooses_the_format_when_it_is_annotated():
    assert properties(sink(Click).value(a_key))["value_format"] == "string"
    assert "value_format" not in properties(sink(Click).value(lambda click: click.user))
    assert properties(sink(Click).value(a_key).serializer("json"))["value_format"] == "json"


def test_a_schema_of_a_sink_wins_over_its_format():
    schema = Avro()
    descriptor = sink(Click).with_schema(schema).with_key_schema(schema).serializer("json")
    found = descriptor.key_serializer("json").build_connector()

    assert (found.properties["value_format"], found.properties["key_format"]) == ("schema",) * 2
    assert found.payloads == {"value_schema": schema, "key_schema": schema}


def test_a_topic_is_created_as_the_brokers_decide_unless_it_says_more():
    assert properties(sink().create_topic())["create_topic"] == {}
    assert properties(sink().create_topic(partitions=2))["create_topic"] == {"partitions": 2}


def test_a_key_may_be_chosen_by_a_key_selector():
    selector = Parity()

    assert sink(int).key(selector).build_connector().payloads == {"key": selector}


# --- security --------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [source, sink])
def test_a_password_stands_in_the_graph_by_reference(new):
    builder = new().sasl("SCRAM-SHA-512", "ada", Secret.env("WORD")).tls(ca_location="/ca.pem")

    assert properties(builder)["properties"] == {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ada",
        "sasl.password": {"secret": {"env": "WORD"}},
        "ssl.ca.location": "/ca.pem",
        "security.protocol": "SASL_SSL",
    }


def test_a_client_certificate_has_a_key_with_a_password():
    tls = source().tls(
        certificate_location="/c.pem", key_location="/k.pem", key_password=Secret.file("/word")
    )

    assert properties(tls)["properties"] == {
        "ssl.certificate.location": "/c.pem",
        "ssl.key.location": "/k.pem",
        "ssl.key.password": {"secret": {"file": "/word"}},
        "security.protocol": "SSL",
    }


def test_a_login_without_encryption_and_a_protocol_of_ones_own():
    builder = source().sasl("PLAIN", "ada", Secret.env("WORD"))
    assert properties(builder)["properties"]["security.protocol"] == "SASL_PLAINTEXT"

    builder.property("security.protocol", "SASL_SSL")
    assert properties(builder)["properties"]["security.protocol"] == "SASL_SSL"


@pytest.mark.parametrize(
    "builder",
    [
        source().tls(),
        sink().sasl("PLAIN", "ada", Secret.env("WORD")),
        source().sasl("PLAIN", "ada", Secret.env("WORD")).tls(),
    ],
    ids=["tls", "sasl", "both"],
)
def test_a_protocol_that_would_leave_out_login_or_encryption_is_refused(builder):
    builder.property("security.protocol", "plaintext")

    with pytest.raises(StreamDefinitionError) as caught:
        builder.build_connector()

    assert "plaintext" in caught.value.facts["problem"]


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.key.pem",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "SASL.PASSWORD",
    ],
)
@pytest.mark.parametrize("new", [source, sink])
def test_a_plain_text_secret_is_refused_and_not_repeated(new, name):
    with pytest.raises(StreamDefinitionError) as caught:
        new().property(name, "hunter2")

    assert is_secret_property(name)
    assert name in caught.value.facts["problem"]
    assert "hunter2" not in str(caught.value) + repr(caught.value.facts)


def test_secrets_survive_pickle_and_need_a_place():
    assert pickle.loads(pickle.dumps(Secret.env("WORD"))) == Secret.env("WORD")
    for call in (Secret.env, Secret.file):
        with pytest.raises(StreamDefinitionError):
            call("")


# --- in a job --------------------------------------------------------------------------------


def test_builders_are_taken_by_streams_as_descriptors_are(env):
    env.add_source(source().group_id("g")).uid("in").sink_to(sink().key(str.lower)).uid("out")
    graph = env.execute("job")

    assert graph.vertex("in").details["connector"] == {
        "connector_type": "kafka",
        "properties": {
            "brokers": "b:1",
            "topics": ["t"],
            "group_id": "g",
            "value_format": "string",
        },
    }
    assert graph.vertex("in").output_type == "str"
    assert graph.vertex("out").details["connector"]["connector_type"] == "kafka"
    assert env.payloads == {"in/output_type": str, "out/key": str.lower}
    assert json.loads(env.execute_and_serialize("job"))["name"] == "job"


@pytest.mark.parametrize(
    ("add", "said", "output_type"),
    [
        (lambda e: e.kafka_source("b:1", "t"), {"value_format": "string"}, "str"),
        (
            lambda e: e.kafka_source("b:1", "t", "g"),
            {"value_format": "string", "group_id": "g"},
            "str",
        ),
        (lambda e: e.kafka_source("b:1", "t", type=bytes), {"value_format": "bytes"}, "bytes"),
    ],
)
def test_the_short_form_of_a_source(env, add, said, output_type):
    add(env).print()
    vertex = only(env.execute("job"), OperatorKind.SOURCE)

    assert vertex.details["connector"]["properties"] == {"brokers": "b:1", "topics": ["t"], **said}
    assert vertex.output_type == output_type


def test_the_short_forms_of_a_sink(env, words):
    words.sink_to(env.kafka_sink("b:1", "t").key(str.upper)).uid("plain")
    words.sink_to(env.kafka_sink("b:1", "t", type=str)).uid("typed")
    words.kafka_sink("b:1", "t").uid("shortest")
    graph = env.execute("job")

    for uid in ("plain", "shortest"):
        connector = graph.vertex(uid).details["connector"]
        assert connector["properties"] == {"brokers": "b:1", "topic": "t"}
    assert graph.vertex("typed").details["connector"]["properties"]["value_format"] == "string"


def test_a_sink_of_another_type_than_the_stream_is_refused(env, words):
    words.sink_to(sink(Click))

    with pytest.raises(GraphError):
        env.execute("job")


@pytest.mark.parametrize(
    "call",
    [
        lambda: KafkaSourceBuilder[str]("", "t"),
        lambda: KafkaSourceBuilder[str]("b"),
        lambda: KafkaSourceBuilder[str]("b", "t", topic_pattern="t.*"),
        lambda: KafkaSourceBuilder[str]("b", topics="t"),
        lambda: source().group_id(""),
        lambda: source().starting_offsets("middle"),
        lambda: source().starting_offsets(5),
        lambda: source().starting_offsets(datetime(2026, 1, 1)),  # noqa: DTZ001 - that is wrong.
        lambda: source().starting_offsets({}),
        lambda: source().starting_offsets({"t": 5}),
        lambda: source().starting_offsets({"t": {0: -1}}),
        lambda: source().starting_offsets({"t": {"0": 1}}),
        lambda: source().deserializer(""),
        lambda: source().deserializer(str),
        lambda: source().key_deserializer("schema"),
        lambda: source().with_schema(object()),
        lambda: source().discovery_interval(timedelta(0)),
        lambda: source().on_data_loss("cry"),
        lambda: source().sasl("GSSAPI", "ada", Secret.env("WORD")),
        lambda: source().sasl("PLAIN", "ada", "hunter2"),
        lambda: source(Click).deserializer("string").build_connector(),
        lambda: KafkaSinkBuilder[str]("b", ""),
        lambda: sink().serializer("avro"),
        lambda: sink().with_schema(Click("ada")),
        lambda: sink().key("user"),
        lambda: sink().key(an_async_key),
        lambda: sink().key(Parity),
        lambda: sink().delivery_guarantee("exactly-once"),
        lambda: sink().transactional_id_prefix(""),
        lambda: sink().transaction_timeout(timedelta(microseconds=1)),
        lambda: sink().marker_topic(""),
        lambda: sink().on_rewind("cry"),
        lambda: sink().recovery_budget(timedelta(0)),
        lambda: sink().create_topic(partitions=0),
        lambda: sink().create_topic(retention=timedelta(0)),
    ],
)
def test_a_wrong_setting_fails_where_it_stands(call):
    with pytest.raises(StreamDefinitionError):
        call()


async def an_async_key(value):
    return value
