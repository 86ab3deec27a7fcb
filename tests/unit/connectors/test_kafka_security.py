"""The login and TLS of Kafka clients are options of the same names in jobs and in programs."""

from dataclasses import fields

import pytest

from bicycle_runtime.connectors.kafka.settings import checked_properties
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.graph import OperatorKind
from bicycle_sdk.kafka.options import KafkaSinkOptions, KafkaSourceOptions
from bicycle_sdk.kafka.security import KafkaSecurity
from bicycle_sdk.secrets import Secret
from bicycle_sdk.uris import source_from_uri
from bicycle_streams.addresses import StreamerUri
from bicycle_streams.kafka.cluster import Cluster
from bicycle_streams.kafka.options import KafkaOptions
from tests.unit.pipelines.pipeline_runs import graph

LOGIN = {
    "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "username": "ada",
    "ca_file": "ca.pem", "cert_file": "me.pem", "key_file": "me.key",
}  # fmt: skip
PROPERTIES = {
    "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ada",
    "ssl.ca.location": "ca.pem", "ssl.certificate.location": "me.pem",
    "ssl.key.location": "me.key",
}  # fmt: skip
PIPELINE = """\
[source]
kind = "kafka"
brokers = "h:9"
topic = "in"
group_id = "g"
security_protocol = "SASL_PLAINTEXT"
username = "ada"
password = "env:PW"

[sink]
kind = "file"
path = "out"
"""


def source(**options):
    return KafkaSourceOptions(brokers="h:9", topics=("in",), **options)


def test_jobs_and_programs_set_the_same_properties(monkeypatch):
    monkeypatch.setenv("PW", "secret")
    options = source(**LOGIN, password=Secret.env("PW"))
    job = checked_properties(options.client_properties(), vertex="in", reserved=options.reserved)
    program = Cluster(StreamerUri.parse("kafka://h:9"), KafkaOptions(**LOGIN, password="secret"))

    assert job.bound().resolved() == {**PROPERTIES, "sasl.password": "secret"}
    assert program._settings.resolved().items() >= job.bound().resolved().items()


@pytest.mark.parametrize("options_class", [KafkaSourceOptions, KafkaSinkOptions, KafkaOptions])
def test_the_options_are_declared_once(options_class):
    own = vars(options_class).get("__annotations__", {})
    names = {field.name for field in fields(KafkaSecurity)}

    assert names <= {field.name for field in fields(options_class)}
    assert names & set(own) == set()


def test_a_sink_accepts_the_login():
    options = KafkaSinkOptions("h:9", topic="out", username="ada", password=Secret.env("PW"))

    assert options.client_properties() == {
        "sasl.mechanism": "PLAIN", "sasl.username": "ada", "sasl.password": Secret.env("PW"),
    }  # fmt: skip


@pytest.mark.parametrize("options", [
    {"properties": {"security.protocol": "SSL"}},
    {"topics": ("in",)},
])  # fmt: skip
def test_other_jobs_store_the_graph_that_they_stored_before(options):
    found = KafkaSourceOptions(**{"brokers": "h:9", "topics": ("in",), **options})

    stored = found.build_connector().properties
    assert set(stored) == {"brokers", "topics", *options}
    assert found.client_properties() == options.get("properties", {})


def test_an_option_that_is_also_a_property_is_refused():
    with pytest.raises(StreamDefinitionError, match=r"the property sasl\.username is also set"):
        source(username="ada", properties={"sasl.username": "bob"}).build_connector()


def test_a_uri_accepts_the_login():
    uri = "kafka://h:9/in?group_id=g&security_protocol=SASL_SSL&username=ada&password_env=PW"

    stored = source_from_uri(uri).properties
    assert stored["security_protocol"] == "SASL_SSL"
    assert stored["password"] == Secret.env("PW").to_json()


def test_a_pipeline_accepts_the_login():
    [read] = [each for each in graph(PIPELINE).vertices if each.kind is OperatorKind.SOURCE]

    assert read.details["connector"]["properties"]["username"] == "ada"
