from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.dev.broker_options import (
    BrokerOptions,
    BrokerSecurity,
    Keystore,
    server_properties,
)
from bicycle_sdk.errors import ConfigError, OptionError

KEYSTORE = Keystore(path=Path("/k.p12"), ca_path=Path("/ca.pem"), password="p")


def properties(**options):
    """Return the properties that Kafka reads, as a dict."""
    settings = BrokerOptions(**{"folder": Path("/broker"), **options})
    return read(server_properties(settings, port=9_001, controller_port=9_002))


def read(text):
    """Read a file as Java's Properties do: blanks before a value go, escapes are UTF-16."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        units = value.lstrip().encode("ascii").decode("unicode_escape")
        found[name] = units.encode("utf-16", "surrogatepass").decode("utf-16")
    return found


def test_clients_and_controller_have_listeners_of_their_own_on_the_loopback():
    found = properties()

    assert found["listeners"] == "CLIENT://127.0.0.1:9001,CONTROLLER://127.0.0.1:9002"
    assert found["log.dirs"] == "/broker/data"


def test_one_node_can_hold_every_internal_topic():
    found = properties()
    replication = {name: value for name, value in found.items() if "replication.factor" in name}

    assert len(replication) == 3
    assert set(replication.values()) == {"1"}


def test_a_setting_of_the_caller_counts_more_than_ours():
    name = "auto.create.topics.enable"

    assert properties()[name] == "false"
    assert properties(extra={name: "true"})[name] == "true"


@pytest.mark.parametrize("name", ["listeners", "node.id", "log.dirs", "process.roles"])
def test_a_setting_that_the_broker_is_found_by_is_refused(name):
    with pytest.raises(ConfigError) as error:
        BrokerOptions(folder=Path("/broker"), extra={name: "x"})

    assert name in error.value.facts["problem"]


@pytest.mark.parametrize(("name", "value"), [("port", 65_536), ("port", -1), ("heap_mb", 1)])
def test_a_value_out_of_bounds_is_refused(name, value):
    with pytest.raises(OptionError) as error:
        BrokerOptions(**{"folder": Path("/broker"), name: value})

    assert error.value.facts["name"] == name


@given(value=st.text())
def test_any_value_is_read_as_it_was_written(value):
    assert properties(extra={"x": value})["x"] == value


def test_a_secured_broker_has_tls_and_scram_on_the_listener_for_clients_only():
    found = properties(security=BrokerSecurity(keystore=KEYSTORE, users={"ada": "secret"}))

    assert found["listener.security.protocol.map"] == "CLIENT:SASL_SSL,CONTROLLER:PLAINTEXT"
    assert found["sasl.enabled.mechanisms"] == "SCRAM-SHA-512"
    assert found["ssl.keystore.location"] == "/k.p12"


def test_passwords_do_not_show_in_the_text_of_the_options():
    security = BrokerSecurity(keystore=KEYSTORE, users={"ada": "secret"})

    assert "secret" not in repr(BrokerOptions(folder=Path("/broker"), security=security))


def test_each_user_has_client_settings_and_the_first_is_the_default():
    security = BrokerSecurity(keystore=KEYSTORE, users={"ada": "a", "bob": "b"})

    assert security.client_settings()["sasl.username"] == "ada"
    assert security.client_settings("bob")["sasl.password"] == "b"


def test_security_without_a_user_is_refused():
    with pytest.raises(ConfigError):
        BrokerSecurity(keystore=KEYSTORE, users={})
