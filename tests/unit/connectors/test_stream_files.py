"""Files of streams as sinks: what a crash leaves in them, and others who write there."""

import pytest

from bicycle_runtime.connectors.errors import STREAM_FILE_CHANGED, STREAMS_AHEAD
from bicycle_streams.addresses import StreamKey
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


def test_an_older_epoch_is_refused(start):
    run = start()
    run.run_epoch([["1"]])
    older = dict(run.state)
    run.run_epoch([["2"]])

    with raises(STREAMS_AHEAD):
        start(state=older, epoch=run.epoch - 1)
