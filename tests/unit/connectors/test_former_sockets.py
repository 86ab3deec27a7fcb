"""Sockets of jobs from before the two connectors of sockets became one."""

import json
import socket

import pytest

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.connectors.registry import create_source, default_registry
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.contract import ConnectorSpec, Guarantee
from bicycle_runtime.endpoints.catalog import find_connector
from bicycle_runtime.endpoints.sinks import SINKS
from bicycle_runtime.endpoints.sources import SOURCES
from bicycle_runtime.engine.resuming.operator_ids import with_operator_ids
from bicycle_runtime.layouts.manifest import OperatorIds
from bicycle_runtime.testing.connectors.running import (
    SinkRun,
    SourceRun,
    eventually,
    services_in,
    values_of,
)
from bicycle_sdk.sinks.sockets import SocketSinkOptions
from bicycle_sdk.sources.sockets import SocketSourceOptions
from tests.raising import raises
from tests.unit.jobs.job_samples import bundle_of


def spec(word, **properties):
    return ConnectorSpec(vertex_id="v", connector_type=word, properties=properties)


@pytest.mark.parametrize("word", ["socket", "socket_stream"])
@pytest.mark.parametrize("options", [SocketSourceOptions, SocketSinkOptions])
def test_a_stored_address_is_host_port_and_stream(word, options):
    found = read_options(options, spec(word, address="socket://[::1]:7/a,b", heads=True))

    assert (found.host, found.port, found.stream, found.heads) == ("::1", 7, "a,b", True)
    assert (found.address, found.is_server) == ("socket://[::1]:7/a,b", False)


@pytest.mark.parametrize(
    "properties",
    [{"address": "socket://host/a"}, {"address": "socket://h:1/a", "port": 2},
     {"address": "ws://h:1/a"}],
)  # fmt: skip
def test_an_address_that_cannot_be_used_is_an_error_of_the_option(properties):
    with raises(CONNECTOR_OPTION_WRONG) as caught:
        read_options(SocketSourceOptions, spec("socket", **properties))
    assert caught.value.facts["name"] == "host"


def test_the_former_word_names_the_same_connector_in_jobs_and_pipelines():
    registry = default_registry()

    assert registry.source_class("socket_stream") is registry.source_class("socket")
    assert registry.sink_class("socket_stream") is registry.sink_class("socket")
    assert find_connector("source", "socket_stream").name == "socket"
    assert "socket_stream" in SOURCES
    assert "socket_stream" in SINKS
    assert "socket_stream" not in {*SOURCES, *SINKS}  # Reference pages list the current word.
    assert set(SINKS["socket_stream"].kinds) == set(SINKS["socket"].kinds)


def test_operators_keep_their_ids_though_the_word_of_their_connector_changed():
    bundle = bundle_of(
        lambda env: [
            env.from_uri(f"socket://h:{port}/a").to_uri(f"socket://h:{port}/b") for port in (1, 2)
        ]
    )
    ids = [vertex.id for vertex in bundle.graph.vertices]
    operators = [
        (f"vertex_{number}", f"{kind} socket_stream socket_stream {kind.lower()}")
        for number, kind in enumerate(("Source", "Sink", "Source", "Sink"), start=11)
    ]

    found = with_operator_ids(bundle, OperatorIds(operators=tuple(operators)))

    assert ids != [vertex.id for vertex in found.graph.vertices]
    assert [vertex.id for vertex in found.graph.vertices] == [uid for uid, _ in operators]


def journal(tmp_path, data):
    folder = tmp_path / "checkpoints/connectors/v/journal"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.lines").write_bytes(data)


def test_a_journal_of_lines_is_read_from_the_stored_byte(tmp_path):
    journal(tmp_path, b"one\ntwo\r\nthree\n")
    run = SourceRun(spec("socket", host="127.0.0.1", port=0), services_in(tmp_path))
    run.offsets = {"journal": 4}
    run.start()
    try:
        assert run.source.guarantee is Guarantee.EXACTLY_ONCE
        assert values_of(run.drain()) == ["two", "three"]
    finally:
        run.stop()


def test_a_journal_of_messages_is_read_from_the_stored_byte(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"socket://127.0.0.1:{server.getsockname()[1]}/numbers"
        journal(tmp_path, b"5 0 0 broadcast 1\n6 1 0 broadcast 2\n7 2 0 broadcast 3\n")
        properties = {"address": address, "journal": True, "value_format": "json"}
        run = SourceRun(spec("socket_stream", **properties), services_in(tmp_path))
        run.offsets, run.state = {"journal": 18}, {"sequence": 0}
        run.start()
        try:
            batches = run.drain()
            assert values_of(batches) == [2, 3]
            assert run.state == {"sequence": 2}
        finally:
            run.stop()


def test_a_sealed_epoch_of_lines_is_published_from_its_stored_state(tmp_path):
    run = SinkRun(spec("socket", host="127.0.0.1", port=0), services_in(tmp_path))
    run.start()
    run.seal([["one", {"a": 1}]])
    run.stop()
    run.is_sealed = False  # The test publishes it, when a client is there.
    state = {"files": run.state["files"]}
    assert "records.txt" in json.dumps(state)
    run.start()
    try:
        with socket.create_connection(("127.0.0.1", run.sink.port), timeout=10) as client:
            eventually(lambda: run.sink.client_count == 1)
            run.sink.publish(run.epoch, state)
            assert client.recv(64) == b'one\n{"a":1}\n'
    finally:
        run.stop()


def test_lines_of_a_socket_without_a_stream_may_have_a_format(tmp_path):
    source = create_source(spec("socket", host="127.0.0.1", port=0, value_format="json"))
    journal(tmp_path, b'{"a": 1}\r\nno json\n')
    run = SourceRun(source.spec, services_in(tmp_path)).start()
    try:
        batches = run.drain()
        assert values_of(batches) == [{"a": 1}]
        assert [bad.raw for batch in batches for bad in batch.failures] == [b"no json"]
    finally:
        run.stop()
