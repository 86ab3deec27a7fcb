"""Socket source and sink: journal, back-pressure, slow and leaving clients."""

import contextlib
import errno
import logging
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.base.errors import STORAGE_FULL, StorageError
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.connectors.errors import (
    JOURNAL_DAMAGED,
    PORT_UNAVAILABLE,
    PublishInterruptedError,
)
from bicycle_runtime.connectors.journal import Journal, JournalSegments
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.testing.connectors.running import (
    PLENTY,
    SinkRun,
    SourceRun,
    eventually,
    services_in,
    values_of,
)
from tests.raising import raises

HOST = "127.0.0.1"


@pytest.fixture
def source(tmp_path):
    runs = []

    def start(**properties):
        spec = ConnectorSpec(
            vertex_id="in",
            connector_type="socket",
            properties={"host": HOST, "port": 0, **properties},
        )
        runs.append(SourceRun(spec, services_in(tmp_path)).start())
        return runs[-1]

    yield start
    for run in runs:
        run.stop()


@pytest.fixture
def sink(tmp_path):
    runs = []

    def start(**properties):
        spec = ConnectorSpec(
            vertex_id="out",
            connector_type="socket",
            properties={"host": HOST, "port": 0, **properties},
        )
        runs.append(SinkRun(spec, services_in(tmp_path)).start())
        return runs[-1]

    yield start
    for run in runs:
        run.sink.stop()


def connect(connector):
    client = socket.create_connection((HOST, connector.port))
    client.settimeout(10)
    return client


def lag(run):
    return run.source.poll().lag.byte_count


def test_lines_of_several_clients_arrive_and_each_keeps_its_order(source):
    run = source()
    clients = [connect(run.source) for _ in range(3)]
    for number in range(100):
        for name, client in enumerate(clients):
            client.sendall(f"{name} {number}\n".encode())
    for client in clients:
        client.close()

    eventually(lambda: lag(run) == sum(len(f"{n} {i}\n") for n in range(3) for i in range(100)))
    values = values_of(run.drain())
    for name in range(3):
        assert [value for value in values if value[0] == str(name)] == [
            f"{name} {number}" for number in range(100)
        ]


def test_half_a_line_is_not_available_until_its_newline_or_the_end(source):
    run = source()
    client = connect(run.source)
    client.sendall(b"one\r\ntw")
    eventually(lambda: lag(run) == 5)
    client.sendall(b"o\nthree")
    eventually(lambda: lag(run) == 9)
    client.close()
    eventually(lambda: lag(run) == 15)

    assert values_of(run.drain()) == ["one", "two", "three"]


def test_what_is_journalled_survives_a_restart_and_is_read_first(source):
    run = source()
    with connect(run.source) as client:
        client.sendall(b"before\n")
    eventually(lambda: lag(run) == 7)
    run.restart()
    with connect(run.source) as client:
        client.sendall(b"after\n")
    eventually(lambda: lag(run) == 13)

    assert values_of(run.drain()) == ["before", "after"]
    run.restart()
    assert lag(run) == 0


def test_segments_of_epochs_published_before_are_deleted_and_the_rest_is_read(source):
    run = source(segment_bytes=1024, journal_epochs_min=1)
    for number in range(10):
        with connect(run.source) as client:
            client.sendall(f"{number}".encode() * 500 + b"\n")
        eventually(lambda byte_count=(number + 1) * 501: lag(run) == byte_count)
    storage = run.services.storage
    assert len(storage.list("connectors/v/journal")) == 4
    run.source.poll()
    run.seal(run.read(replace(PLENTY, record_count=7)))

    run.source.published(run.offsets)
    assert len(storage.list("connectors/v/journal")) == 4
    run.source.published(run.offsets)

    assert len(storage.list("connectors/v/journal")) == 2
    run.restart()
    assert [value[0] for value in values_of(run.drain())] == ["7", "8", "9"]


def test_clients_are_held_back_while_too_much_waits_and_nothing_is_lost(source):
    run = source(journal_bytes_max=1 << 16, segment_bytes=1 << 16)
    line_count = 400_000
    data = b"".join(b"%06d 0123456789\n" % number for number in range(line_count))

    def send():
        with connect(run.source) as client:
            client.settimeout(60)
            client.sendall(data)

    sender = threading.Thread(target=send)
    sender.start()
    eventually(lambda: lag(run) >= 1 << 16)
    assert lag(run) < len(data) // 2
    values = []
    while len(values) < line_count:
        eventually(lambda: lag(run) > 0)
        values += values_of(run.drain())
    sender.join()

    assert values[0] == "000000 0123456789"
    assert [int(value[:6]) for value in values] == list(range(line_count))


def test_a_client_that_sends_an_endless_line_is_disconnected_and_the_others_are_not(source, caplog):
    run = source(line_bytes_max=1024)
    bad, good = connect(run.source), connect(run.source)
    with caplog.at_level(logging.ERROR):
        bad.sendall(b"ok\n" + b"x" * 5000)
        with contextlib.suppress(ConnectionResetError):
            assert bad.recv(1) == b""
    good.sendall(b"fine\n")
    eventually(lambda: lag(run) == 8)

    assert values_of(run.drain()) == ["ok", "fine"]
    assert "socket_client_refused" in caplog.messages
    bad.close()
    good.close()


@pytest.mark.parametrize("kind", ["source", "sink"])
def test_a_port_in_use_is_an_error_that_names_it(kind, source, sink):
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        start = source if kind == "source" else sink

        with raises(PORT_UNAVAILABLE) as caught:
            start(port=port)

    assert caught.value.facts["port"] == port


def test_an_error_of_the_receiving_thread_is_raised_by_the_next_poll(source, monkeypatch):
    run = source()

    def fail(_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with connect(run.source) as client:
        client.sendall(b"x\n")

    def has_failed():
        try:
            run.source.poll()
        except StorageError as error:
            assert error.code == STORAGE_FULL.code
            assert ".lines" in error.facts["path"]
            return True
        return False

    eventually(has_failed)


@pytest.mark.parametrize("is_local", [True, False])
@given(
    batches=st.lists(
        st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b""))), max_size=8
    ),
    segment_bytes=st.integers(1, 60),
    torn=st.binary(max_size=5).map(lambda b: b.replace(b"\n", b"")),
)
def test_a_journal_gives_back_what_was_appended_over_restarts(
    tmp_path_factory, is_local, batches, segment_bytes, torn
):
    folder = tmp_path_factory.mktemp("journal")
    storage = (
        LocalStorage(str(folder), is_synced=False)
        if is_local
        else open_storage(f"memory://{folder.name}")
    )
    segments = JournalSegments(storage, "j")
    expected = b""
    for lines in batches:
        journal = Journal(segments, segment_bytes, 0)
        assert journal.end == len(expected)
        for line in lines:
            journal.append(line + b"\n")
            expected += line + b"\n"
        journal.close()
        if is_local and torn and segments.starts():
            with (folder / segments.path(segments.starts()[-1])).open("ab") as stream:
                stream.write(torn)

    journal = Journal(segments, segment_bytes, 0)
    for start in range(0, len(expected), 7):
        starts = journal.covering(start, len(expected))
        assert b"".join(segments.blocks(starts, start, len(expected))) == expected[start:]
    journal.drop_before(len(expected) // 2)
    starts = journal.covering(len(expected) // 2, len(expected))
    found = b"".join(segments.blocks(starts, len(expected) // 2, len(expected)))
    assert found == expected[len(expected) // 2 :]


def test_a_journal_whose_unread_beginning_is_gone_is_refused(tmp_path):
    segments = JournalSegments(LocalStorage(str(tmp_path)), "j")
    journal = Journal(segments, 1, 0)
    journal.append(b"one\n")
    journal.append(b"two\n")
    journal.close()
    segments.storage.delete(segments.path(0))

    with raises(JOURNAL_DAMAGED):
        Journal(segments, 1, 0)


def test_published_lines_reach_every_connected_client(sink):
    run = sink()
    clients = [connect(run.sink) for _ in range(2)]
    eventually(lambda: run.sink.client_count == 2)

    run.run_epoch([["plain", {"a": 1}], [(1, "x")]])

    run.sink.stop()
    for client in clients:
        with client, client.makefile() as lines:
            assert lines.read() == 'plain\n{"a":1}\n[1,"x"]\n'
    assert run.sink.dropped_count() == 0


def test_records_published_to_nobody_are_counted(sink):
    run = sink()
    run.run_epoch([["a", "b"], ["c"]])
    client = connect(run.sink)
    eventually(lambda: run.sink.client_count == 1)
    client.close()
    eventually(lambda: run.sink.client_count == 0)
    run.run_epoch([["d"]])

    assert run.sink.dropped_count() == 4


def test_publishing_waits_for_a_slow_client_and_loses_nothing(sink):
    run = sink(client_buffer_bytes=1 << 12)
    lines = [f"{number:08d}" for number in range(600_000)]
    client = connect(run.sink)
    eventually(lambda: run.sink.client_count == 1)
    publishing = threading.Thread(target=run.run_epoch, args=([lines],))
    publishing.start()
    publishing.join(0.2)
    assert publishing.is_alive()  # 5.4 MB do not fit into buffers that nobody empties.

    with client.makefile() as stream:
        found = [stream.readline().rstrip("\n") for _ in lines]
    publishing.join()

    assert found == lines
    assert run.sink.dropped_count() == 0
    client.close()


def test_a_job_that_must_end_waits_for_no_client(sink):
    run = sink()
    lines = [f"{number:08d}" for number in range(600_000)]
    client = connect(run.sink)
    eventually(lambda: run.sink.client_count == 1)
    run.seal([lines])
    with ThreadPoolExecutor() as pool:
        publishing = pool.submit(run.publish)
        eventually(publishing.running)
        run.sink.interrupt()
        error = publishing.exception(timeout=10)
    client.close()

    assert isinstance(error, PublishInterruptedError)
    assert error.facts["epoch"] == run.epoch


def test_a_client_that_never_reads_is_disconnected_and_its_lines_are_counted(sink, caplog):
    run = sink(send_timeout_ms=100)
    lines = [f"{number:08d}" for number in range(2_000_000)]
    client = connect(run.sink)
    eventually(lambda: run.sink.client_count == 1)
    with caplog.at_level(logging.WARNING):
        run.run_epoch([lines])

    assert run.sink.client_count == 0
    assert 0 < run.sink.dropped_count() < len(lines)
    assert "socket_client_gone" in caplog.messages
    client.close()
