"""Properties of the Kafka client: what passes, what is refused, and no secret is ever shown."""

import json
import pickle
import traceback

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.connectors.kafka.errors import (
    KAFKA_CLIENT_FAILED,
    KAFKA_PROPERTY_WRONG,
    KAFKA_SECRET_MISSING,
    KafkaAccessError,
)
from bicycle_runtime.connectors.kafka.formats import key_format
from bicycle_runtime.connectors.kafka.reader import KafkaReader
from bicycle_runtime.connectors.kafka.settings import checked_properties
from bicycle_runtime.connectors.registry import create_sink
from bicycle_runtime.contract import ConnectorSpec
from bicycle_sdk.kafka import KafkaProperties
from bicycle_streams.kafka.failures import is_outage
from tests.raising import raises

PASSWORD = "correct horse battery"
BY_ENV = {"secret": {"env": "TEST_KAFKA_PASSWORD"}}


def properties(**changes):
    given = KafkaProperties.from_option(changes, is_text=True)
    return checked_properties(given, vertex="v", reserved={"group.id": "use group_id"})


def stored(properties):
    spec = {"brokers": "b:1", "topic": "t", "properties": properties}
    return create_sink(ConnectorSpec(vertex_id="v", connector_type="kafka", properties=spec))


def given(name, value):
    return properties(**{name: value})


def login(password):
    return properties(**{"security.protocol": "SASL_SSL", "sasl.password": password})


def test_any_property_passes_through_as_text():
    found = properties(**{"fetch.max.bytes": 1000, "client.id": "me", "check.crcs": True})

    assert found.resolved() == {"fetch.max.bytes": "1000", "client.id": "me", "check.crcs": "true"}


def test_a_default_does_not_replace_what_was_given():
    found = given("client.id", "me").with_defaults({"client.id": "you", "check.crcs": "true"})

    assert found.resolved() == {"client.id": "me", "check.crcs": "true"}


def test_a_default_does_not_replace_what_was_given_under_another_name():
    found = given("queue.buffering.max.ms", "7").with_defaults({"linger.ms": "100"})

    assert found.resolved() == {"queue.buffering.max.ms": "7"}


def test_a_property_that_an_option_decides_is_refused_and_the_option_is_named():
    with raises(KAFKA_PROPERTY_WRONG) as caught:
        given("group.id", "x")

    assert caught.value.facts["name"] == "group.id"
    assert caught.value.facts["hint"] == "use group_id"


@pytest.mark.parametrize(
    "name", ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"]
)
def test_a_secret_in_plain_text_is_refused_without_being_repeated(name):
    with raises(CONNECTOR_OPTION_WRONG) as caught:
        stored({name: PASSWORD})

    assert caught.value.facts["problem"] == f"{name} is a secret"
    assert PASSWORD not in json.dumps(caught.value.to_json())


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"sasl.mechanism": "PLAIN", "sasl.mechanisms": "GSSAPI"}, "sasl.mechanism"),
        ({"linger.ms": 5, "queue.buffering.max.ms": 50}, "linger.ms"),
        ({"sasl.username": "ada"}, "sasl.username"),
        ({"sasl.username": "ada", "security.protocol": "ssl"}, "sasl.username"),
        ({"ssl.ca.location": "/ca", "security.protocol": "SASL_PLAINTEXT"}, "ssl.ca.location"),
    ],
)
def test_properties_of_which_one_would_be_left_out_unseen_are_refused(given, name):
    with raises(KAFKA_PROPERTY_WRONG) as caught:
        properties(**given)

    assert caught.value.facts["name"] == name


@pytest.mark.parametrize("protocol", ["SASL_SSL", "sasl_ssl"])
def test_login_and_encryption_that_the_protocol_has_are_accepted(protocol):
    found = {"security.protocol": protocol, "sasl.username": "ada", "ssl.ca.location": "/ca"}

    assert properties(**found).resolved() == found


@pytest.mark.parametrize(
    "value", [None, ["a"], {}, {"secret": {}}, {"secret": {"vault": "x"}}, {"secret": {"env": ""}}]
)
def test_a_value_that_is_neither_text_nor_reference_is_refused(value):
    with raises(CONNECTOR_OPTION_WRONG) as caught:
        stored({"client.id": value})

    assert caught.value.facts["name"] == "properties"
    assert "client.id" in caught.value.facts["problem"]


def test_a_secret_is_taken_from_the_environment(monkeypatch):
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", PASSWORD)

    assert login(BY_ENV).bound().resolved()["sasl.password"] == PASSWORD


def test_a_secret_is_taken_from_a_file_without_its_line_end(tmp_path):
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    reference = {"secret": {"file": str(tmp_path / "password")}}

    assert login(reference).bound().resolved()["sasl.password"] == PASSWORD


def test_a_missing_variable_or_file_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("TEST_KAFKA_PASSWORD", raising=False)
    missing = str(tmp_path / "none")

    for value, place in ((BY_ENV, "TEST_KAFKA_PASSWORD"), ({"secret": {"file": missing}}, missing)):
        with raises(KAFKA_SECRET_MISSING) as caught:
            login(value).bound().resolved()
        assert caught.value.facts["name"] == "sasl.password"
        assert place in caught.value.facts["problem"]


def test_bound_properties_travel_without_the_environment_and_show_no_secret(monkeypatch):
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", PASSWORD)
    bound = login(BY_ENV).bound()
    monkeypatch.delenv("TEST_KAFKA_PASSWORD")

    travelled = pickle.loads(pickle.dumps(bound))

    assert travelled.resolved()["sasl.password"] == PASSWORD
    assert PASSWORD not in repr(travelled)
    assert PASSWORD not in f"{travelled}"
    assert "TEST_KAFKA_PASSWORD" in repr(travelled)


@pytest.mark.parametrize(("name", "value"), [("no.such.thing", "1"), ("fetch.wait.max.ms", "long")])
def test_what_the_client_refuses_is_an_error_with_the_place(name, value):
    with raises(KAFKA_PROPERTY_WRONG) as caught:
        given(name, value).open(Consumer, {"group.id": "g"})

    assert caught.value.facts["vertex"] == "v"
    assert caught.value.facts["name"] == name


def test_a_property_that_the_client_calls_otherwise_is_named_as_the_client_does():
    with raises(KAFKA_PROPERTY_WRONG) as caught:
        given("linger.ms", "99999999").open(Producer, {})

    assert caught.value.facts["name"] == "queue.buffering.max.ms"


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        (KafkaError._TRANSPORT, True),
        (KafkaError._DESTROY_BROKER, True),  # What a broker's clean stop looks like.
        (KafkaError.LEADER_NOT_AVAILABLE, True),
        (KafkaError._AUTHENTICATION, False),
        (KafkaError._INVALID_ARG, False),
    ],
)
def test_a_broker_that_goes_away_is_an_outage_and_a_refusal_is_none(code, passes):
    assert is_outage(KafkaError(code)) is passes


def test_an_error_of_the_client_shows_no_secret_and_not_its_cause(monkeypatch):
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", PASSWORD)

    def make(config):
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"bad {config['sasl.password']}"))

    with raises(KAFKA_PROPERTY_WRONG) as caught:
        login(BY_ENV).open(make, {})

    shown = json.dumps(caught.value.to_json()) + str(caught.value)
    assert PASSWORD not in shown
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


def test_a_refusal_by_the_broker_is_told_from_other_errors():
    denied = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no"))
    other = KafkaError(KafkaError.INVALID_REQUEST, "what?")

    assert type(properties().error(denied, "x")) is KafkaAccessError
    told = properties().error(other, "x")
    assert told.code == KAFKA_CLIENT_FAILED.code


def test_a_reader_travels_again_and_again_with_its_secrets(monkeypatch):
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", PASSWORD)
    spec = ConnectorSpec(vertex_id="v", connector_type="kafka", properties={})
    text = key_format(spec, "string")
    reader = KafkaReader(login(BY_ENV).bound(), values=text, keys=text, on_data_loss="latest")

    for _ in range(2):
        reader = pickle.loads(pickle.dumps(reader))

    assert reader._properties.resolved()["sasl.password"] == PASSWORD
    assert reader._on_data_loss == "latest"
