"""Files of streams as sinks: what a crash leaves in them, and others who write there."""

import pytest

from bicycle_runtime.connectors.errors import STREAM_FILE_CHANGED, STREAMS_AHEAD
from bicycle_runtime.connectors.stream_clients.backends import AwayError
from bicycle_runtime.connectors.stream_clients.stream_files import FileOutput
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.testing.connectors.running import SourceRun, services_in, values_of
from bicycle_streams.addresses import StreamKey
from bicycle_streams.file.creating import create_file
from bicycle_streams.file.format import FileHeader
from bicycle_streams.file.writing import FileWriter
from tests.raising import raises
from tests.sink_runs import SinkRuns
from tests.unit.streams.ss_decoder import decode


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.ss"


@pytest.fixture
def start(path, tmp_path):
    runs = SinkRuns("stream_file", tmp_path, address=f"file://{path}/numbers")
    yield runs.start
    runs.stop()


def numbers(path):
    return [payload for key, *_, payload in decode(path.read_bytes()).messages if key == "numbers"]


def append(path, *payloads, key="numbers"):
    writer = FileWriter(path, limit_bytes=1 << 30, buffer_bytes=1)
    for payload in payloads:
        writer.take(StreamKey(key), 0, payload, None)
    writer.close(with_end=False)


def test_an_epoch_that_was_half_written_is_cut_off_and_written_again(start, path):
    run = start()
    run.run_epoch([["1"]])
    run.seal([["2"], ["3"]])
    append(path, f"begun {run.epoch}".encode(), key=f"bicycle.epochs.{run.state['run']}")
    append(path, b"2")
    run.restart()

    assert numbers(path) == [b"1", b"2", b"3"]


def test_others_may_append_between_epochs(start, path):
    run = start()
    run.run_epoch([["1"]])
    append(path, b"of others")
    run.run_epoch([["2"]])
    run.restart()

    assert numbers(path) == [b"1", b"of others", b"2"]


def test_what_others_wrote_behind_half_an_epoch_is_not_cut_off(start, path):
    run = start()
    run.run_epoch([["1"]])
    run.seal([["2"]])
    append(path, f"begun {run.epoch}".encode(), key=f"bicycle.epochs.{run.state['run']}")
    append(path, b"of others")
    before = path.read_bytes()

    with raises(STREAM_FILE_CHANGED):
        run.restart()
    assert path.read_bytes() == before


def test_an_epoch_that_another_driver_writes_meanwhile_is_written_once(start, path):
    start()
    outputs = [FileOutput(path, StreamKey("numbers")) for _ in range(2)]

    def read_slowly():
        yield b"x"
        outputs[1].write("run", 0, iter([b"x", b"y"]))  # By the next driver.
        append(path, b"of others")
        yield b"y"

    outputs[0].write("run", 0, read_slowly())

    assert numbers(path) == [b"x", b"y", b"of others"]


def test_half_an_epoch_is_written_whole_while_its_first_driver_reads(start, path):
    start()
    outputs = [FileOutput(path, StreamKey("numbers")) for _ in range(2)]
    append(path, b"begun 0", key="bicycle.epochs.run")
    append(path, b"x")

    def read_slowly():
        yield b"x"
        outputs[1].write("run", 0, iter([b"x", b"y"]))
        outputs[1].write("run", 1, iter([b"z"]))
        yield b"y"

    outputs[0].write("run", 0, read_slowly())

    assert numbers(path) == [b"x", b"y", b"z"]


def test_a_file_that_another_program_writes_is_not_cut_off(start, path):
    start()
    append(path, b"begun 0", key="bicycle.epochs.run")
    append(path, b"x")
    before = path.read_bytes()
    other = FileWriter(path, limit_bytes=1 << 30, buffer_bytes=1)

    with raises(AwayError):
        FileOutput(path, StreamKey("numbers")).write("run", 0, iter([b"x", b"y"]))
    assert path.read_bytes() == before
    other.abandon()


def test_an_older_epoch_is_refused(start):
    run = start()
    run.run_epoch([["1"]])
    older = dict(run.state)
    run.run_epoch([["2"]])

    with raises(STREAMS_AHEAD):
        start(state=older, epoch=run.epoch - 1)


@pytest.mark.parametrize("has_file", [True, False])
def test_a_restart_does_not_choose_the_latest_message_again(path, tmp_path, has_file):
    if has_file:
        append_to_new(path, b"1", b"2")
    run = source_run(path, tmp_path, start="latest")
    assert run.drain() != []  # Without messages: the start is sealed before any arrives.
    append_to_new(path, b"3")
    run.restart()
    append(path, b"4")

    assert values_of(run.drain()) == ["3", "4"]
    assert not run.source.poll().has_input
    run.stop()


def test_a_restart_does_not_choose_the_end_of_a_bounded_source_again(path, tmp_path):
    append_to_new(path, b"1")
    run = source_run(path, tmp_path, start="latest", bounded=True)
    assert not run.source.poll().is_finished
    run.drain()
    append(path, b"2")
    run.restart()

    assert values_of(run.drain()) == []
    assert run.source.poll().is_finished
    run.stop()


def append_to_new(path, *payloads):
    create_file(path, FileHeader(path.name, 0, 1 << 20), must_be_new=False)
    append(path, *payloads)


def source_run(path, folder, **properties):
    address = f"file://{path}/numbers"
    spec = ConnectorSpec(
        vertex_id="in", connector_type="stream_file",
        properties={"address": address, **properties}, record_type=str,
    )  # fmt: skip
    return SourceRun(spec, services_in(folder / "job")).start()
