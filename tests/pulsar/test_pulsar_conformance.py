"""The Pulsar backend against the conformance suite, on a real server whose connections break."""

import pytest

from bicycle_streams.testing import (
    LosesConnections,
    StreamCase,
    StreamLoadSuite,
    StreamSuite,
)

pytest_plugins = ["bicycle_streams.testing.plugin"]


class PulsarCase(StreamCase, LosesConnections):
    word = "pulsar"
    server = None
    new_key = None

    @property
    def uri(self):
        return self.server.uri

    @property
    def options(self):
        return {"create": "if-missing", "admin_url": self.server.admin_url}

    def key(self, name):
        return self.new_key(name)

    def break_connections(self):
        self.server.break_connections()


class OnServer:
    @pytest.fixture
    def case(self, tmp_path, pulsar_server, new_key):
        case = self.case_type(tmp_path)
        case.server, case.new_key = pulsar_server, new_key
        yield case
        case.close()


class TestPulsar(OnServer, StreamSuite):
    case_type = PulsarCase


class TestPulsarUnderLoad(OnServer, StreamLoadSuite):
    case_type = PulsarCase
