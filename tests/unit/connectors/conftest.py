"""Sources of files that are followed, and file sinks that run epoch after epoch."""

from typing import TypedDict

import pytest

from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.testing.connectors.running import SinkRun, SourceRun, services_in


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def sink(tmp_path, out):
    def start(word="jsonl_file", *, services=None, folder=out, record_type=None, **properties):
        spec = ConnectorSpec(
            vertex_id="v",
            connector_type=word,
            properties={"path": str(folder), **properties},
            record_type=record_type,
        )
        return SinkRun(spec, services or services_in(tmp_path)).start()

    return start


class Event(TypedDict):
    user: str
    n: int


@pytest.fixture
def table(sink):
    """Start a Parquet sink of a record type, whose rows are never too old by themselves."""

    def start(record_type=Event, **properties):
        settings = {"roll_ms": 86_400_000, **properties}
        return sink("parquet_file", record_type=record_type, **settings)

    return start


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def follow(tmp_path):
    runs = []

    def start(path, *, follow=True, word="text", **properties):
        spec = ConnectorSpec(
            vertex_id="lines",
            connector_type=word,
            properties={"path": str(path), "follow": follow, **properties},
        )
        runs.append(SourceRun(spec, services_in(tmp_path)).start())
        return runs[-1]

    yield start
    for run in runs:
        run.stop()
