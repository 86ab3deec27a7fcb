"""Reading slices of earlier epochs again, while the source is not started."""

import pytest

from bicycle_runtime.base.storage import LocalStorage, ObjectMissingError
from bicycle_runtime.connectors.journal import Journal, JournalSegments
from bicycle_runtime.connectors.kafka.source import KafkaSource
from bicycle_runtime.connectors.stream_clients.sockets import SocketSource
from bicycle_runtime.contract import ConnectorSpec, DriverServices, Slice
from bicycle_sdk.clock import ManualClock

PREFIX = "connectors/lines"


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path), is_synced=False)


def services_in(storage):
    return DriverServices(
        storage=storage, prefix=PREFIX, clock=ManualClock(), collected={}, console=None
    )


def reader_of(storage):
    spec = ConnectorSpec(
        vertex_id="lines", connector_type="socket", properties={"host": "127.0.0.1", "port": 1}
    )
    return SocketSource(spec).rereader(services_in(storage))


def lines_of(storage, start, end):
    part = Slice(shard="journal", start=start, end=end, details={"segments": [0, 8]})
    return [line for batch in reader_of(storage).read(part) for line in batch.values]


def journal_of(storage):
    journal = Journal(JournalSegments(storage, f"{PREFIX}/journal"), 8, 0)
    for line in (b"ada bob\n", b"cid dan\n"):
        journal.append(line)
    return journal


def test_a_socket_source_reads_its_journal_again_without_opening_its_port(storage):
    journal_of(storage)

    assert lines_of(storage, 0, 16) == ["ada bob", "cid dan"]
    assert lines_of(storage, 8, 16) == ["cid dan"]


def test_what_the_journal_has_dropped_is_missing_and_not_left_out(storage):
    journal_of(storage).drop_before(8)

    with pytest.raises(ObjectMissingError):
        lines_of(storage, 0, 16)
    assert lines_of(storage, 8, 16) == ["cid dan"]


@pytest.mark.parametrize("policy", ["fail", "earliest", "latest"])
def test_messages_that_a_topic_has_lost_are_never_left_out(storage, policy):
    properties = {"brokers": "nobody:1", "topics": ["orders"], "on_data_loss": policy}
    spec = ConnectorSpec(vertex_id="orders", connector_type="kafka", properties=properties)
    source = KafkaSource(spec)
    readers = (source.reader(), source.rereader(services_in(storage)))
    copies = [reader.__reduce__()[0] for reader in readers]

    assert [copy.keywords["on_data_loss"] for copy in copies] == [policy, "fail"]
