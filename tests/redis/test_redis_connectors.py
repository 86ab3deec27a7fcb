"""Redis as source and sink of jobs against the conformance suites, on a server that is killed."""

import itertools
import json

import pytest

from bicycle_runtime.base.clock import SystemClock
from bicycle_runtime.connectors import builtin
from bicycle_runtime.testing.connectors import (
    CanBeUnwritable,
    CarriesMetadata,
    EndlessSourceCase,
    ExtensionSuite,
    FeedsBadRecords,
    HasOutages,
    Metadata,
    SinkCase,
    SinkSuite,
    SourceSuite,
)
from bicycle_sdk.sinks.addresses import sink_from_uri
from bicycle_sdk.uris import source_from_uri

pytest_plugins = ["bicycle_runtime.testing.connectors.plugin"]

BEGIN_MS = 1_700_000_000_000
SHARDS = 2
_numbers = itertools.count()


class RedisCase(HasOutages):
    """A stream of its own for each test; an outage is a server that was killed."""

    word = "redis"
    clock = SystemClock()
    wait_s = 60.0

    def join(self, server):
        self.server = server
        self.key = f"conformance-{next(_numbers)}"
        return self

    @property
    def uri(self):
        return f"{self.server.uri}/{self.key}?format=json"

    def break_transport(self):
        self.server.kill()

    def repair_transport(self):
        self.server.start()


class RedisSourceCase(RedisCase, EndlessSourceCase, FeedsBadRecords, CarriesMetadata):
    is_ordered = False

    def record(self, number):
        return {"n": number}

    def metadata(self, number):
        return Metadata(timestamp_ms=BEGIN_MS + number)

    def descriptor(self):
        return source_from_uri(self.uri, dict)

    def feed(self, numbers):
        with self.server.client as client:
            for number in numbers:
                shard = number % SHARDS
                key = f"{self.key}:{shard}" if shard else self.key
                client.xadd(key, {"msg": f'{{"n": {number}}}'}, id=f"{BEGIN_MS + number}-*")
                self.last_ms = BEGIN_MS + number

    def feed_bad(self):
        with self.server.client as client:
            client.xadd(self.key, {"msg": b"{no json"}, id=f"{self.last_ms}-*")
        return b"{no json"


class RedisSinkCase(RedisCase, SinkCase, CanBeUnwritable):
    def record(self, number):
        return {"n": number, "text": "x" * (number % 7)}

    def descriptor(self):
        return sink_from_uri(self.uri)

    def unwritable(self):
        with self.server.client as client:
            client.set("a-text", "not a stream")
        return sink_from_uri(f"{self.server.uri}/a-text?format=json")

    def visible(self):
        self.server.start()
        with self.server.client as client:
            return [[json.loads(fields[b"msg"]) for _, fields in client.xrange(self.key)]]


class TestRedisSource(SourceSuite):
    case_type = RedisSourceCase

    @pytest.fixture
    def case(self, tmp_path, server):
        return RedisSourceCase(tmp_path).join(server)


class TestRedisSink(SinkSuite):
    case_type = RedisSinkCase

    @pytest.fixture
    def case(self, tmp_path, server):
        case = self.case_type(tmp_path).join(server)
        yield case
        case.close()


class TestExtension(ExtensionSuite):
    extension = builtin
    suites = (TestRedisSource, TestRedisSink)
    sources = {"redis"}  # noqa: RUF012 - as the suite declares it.
    sinks = {"redis"}  # noqa: RUF012 - as the suite declares it.
