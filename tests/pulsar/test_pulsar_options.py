"""What a job may say of Pulsar, and what is refused before anything starts; no server is needed."""

import pytest

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG, STREAM_ADDRESS_WRONG
from bicycle_runtime.connectors.stream_clients.pulsar import PulsarStreamSource
from bicycle_runtime.contract import ConnectorSpec
from bicycle_sdk.uris import source_from_uri
from tests.raising import raises


def source(uri):
    found = source_from_uri(uri)
    return PulsarStreamSource(
        ConnectorSpec(
            vertex_id="in", connector_type="pulsar", properties=found.properties, record_type=str
        )
    )


@pytest.mark.core
@pytest.mark.parametrize(
    ("uri", "row"),
    [
        ("pulsar://h/a?group=", CONNECTOR_OPTION_WRONG),
        ("pulsar://h/a?group=g&namespace=public", CONNECTOR_OPTION_WRONG),
        ("pulsar://h/a?group=g&namespace=a/b/c", CONNECTOR_OPTION_WRONG),
        ("pulsar://h/a?group=g&ca_file=here.pem", CONNECTOR_OPTION_WRONG),
        ("pulsar+ssl://h/a?group=g&ca_file=/nowhere.pem", CONNECTOR_OPTION_WRONG),
        ("pulsar://ada@h/a?group=g", STREAM_ADDRESS_WRONG),
        ("pulsar://h:x/a?group=g", STREAM_ADDRESS_WRONG),
        ("pulsar://h/?group=g", STREAM_ADDRESS_WRONG),
    ],
)
def test_what_cannot_be_read_is_refused_when_the_job_is_planned(uri, row):
    with raises(row):
        source(uri)
