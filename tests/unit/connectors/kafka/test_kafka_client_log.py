"""What librdkafka says: events of our log, never lines on stderr."""

import logging

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from bicycle_runtime.connectors.kafka.settings import ClientLog, checked_properties
from tests.waiting import until

NOBODY = "127.0.0.1:1"
LOGGER = "bicycle_runtime.connectors.kafka.settings"


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    return record.bicycle_fields


@pytest.mark.parametrize("make", [Consumer, Producer, AdminClient])
def test_what_a_client_says_is_an_event_and_not_a_line_on_stderr(make, caplog, capfd):
    given = {"log_level": 7, "debug": "broker"}
    properties = checked_properties(given, vertex="in", reserved={})
    group = {"group.id": "g"} if make is Consumer else {}
    quiet = {"error_cb": lambda _error: None}
    with caplog.at_level(logging.WARNING, LOGGER):
        client = properties.open(make, {"bootstrap.servers": NOBODY, **group, **quiet})
        until(lambda: (client.poll(0.01), caplog.records)[1], "a line")

    assert {record.message for record in caplog.records} == {"kafka_client"}
    assert {fields_of(record)["operator"] for record in caplog.records} == {"in"}
    assert capfd.readouterr().err == ""


def test_a_line_is_a_warning_that_shows_no_secret(caplog):
    told = ClientLog("out", lambda text: text.replace("hunter2", "***"))
    with caplog.at_level(logging.WARNING, LOGGER):
        told.log(logging.CRITICAL, "", "FATAL", "producer-1", "[thrd:app]: hunter2 is fenced\n")
        told.log(logging.DEBUG, "", "BROKER", "producer-1", "up")

    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert fields_of(caplog.records[0]) == {
        "operator": "out",
        "kind": "FATAL",
        "client": "producer-1",
        "reason": "[thrd:app]: *** is fenced",
    }
