"""A file sink that runs epoch after epoch, and its output directory."""

import pytest

from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.testing.connectors.running import SinkRun, services_in


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
