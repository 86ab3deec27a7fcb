"""The Redis backend against the conformance suite, on a real server whose connections break."""

import pytest

from bicycle_streams.testing import (
    LosesConnections,
    StreamCase,
    StreamLoadSuite,
    StreamSuite,
)

pytest_plugins = ["bicycle_streams.testing.plugin"]


class RedisCase(StreamCase, LosesConnections):
    word = "redis"
    server = None

    @property
    def uri(self):
        return self.server.uri

    @property
    def options(self):
        return {"block_ms": 50, "claim_interval_ms": 20}

    def break_connections(self):
        self.server.break_connections()


class OnServer:
    @pytest.fixture
    def case(self, tmp_path, server):
        case = self.case_type(tmp_path)
        case.server = server
        yield case
        case.close()


@pytest.mark.core
class TestRedis(OnServer, StreamSuite):
    case_type = RedisCase


class NanosecondsCase(RedisCase):
    @property
    def options(self):
        return {**super().options, "timestamps": "ns"}


class TestNanoseconds(OnServer, StreamSuite):
    case_type = NanosecondsCase


class TestRedisUnderLoad(OnServer, StreamLoadSuite):
    case_type = RedisCase
