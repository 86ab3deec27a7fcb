"""Our backends of streams against the conformance suite that every backend has to pass."""

import pytest

from bicycle_streams import connecting
from bicycle_streams.testing import StreamCase, StreamLoadSuite, StreamSuite

pytest_plugins = ["bicycle_streams.testing.plugin"]

# Their suites are in the folders of servers, and in tests/unit/streams.
ELSEWHERE = {"kafka", "pulsar", "pulsar+ssl", "redis", "rediss", "socket", "ws", "wss"}


class FileCase(StreamCase):
    word = "file"

    @property
    def uri(self):
        return f"file://{self.folder}/events.ss"

    @property
    def options(self):
        return {"create": "if-missing", "poll_interval_ms": 1}


class StdioCase(StreamCase):
    """What is sent to standard output comes back, and nothing is read from standard input."""

    word = "stdio"
    uri = "stdio://"
    options = {"loopback": True}  # noqa: RUF012  # the contract


class TestFile(StreamSuite):
    case_type = FileCase


class TestStdio(StreamSuite):
    case_type = StdioCase


@pytest.mark.extended
class TestFileUnderLoad(StreamLoadSuite):
    case_type = FileCase


@pytest.mark.extended
class TestStdioUnderLoad(StreamLoadSuite):
    case_type = StdioCase


def test_every_backend_has_its_suite():
    suites = (TestFile, TestStdio)
    assert {suite.case_type.word for suite in suites} | ELSEWHERE == set(connecting._BACKENDS)
