"""Redis as source and sink of jobs against the conformance suites, on a server that is killed."""

import itertools
import json

import pytest

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
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.sinks.addresses import sink_from_uri
from bicycle_sdk.uris import source_from_uri

pytest_plugins = ["bicycle_streams.testing.plugin"]

BEGIN_MS = 1_700_000_000_000
SHARDS = 2
_numbers = itertools.count()


class RedisCase(HasOutages):
    """A stream of its own for each test; an outage is a server that was killed."""

    word = "redis"
    clock = SystemClock()
    query = ""

    def join(self, server):
        self.server = server
        self.key = f"conformance-{next(_numbers)}"
        return self

    @property
    def uri(self):
        return f"{self.server.uri}/{self.key}?format=json{self.query}"

    def entry_id(self, time_ms):
        """Return an id of this time, behind the others of it."""
        return f"{time_ms}-*"

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
                client.xadd(key, {"msg": f'{{"n": {number}}}'}, id=self.entry_id(BEGIN_MS + number))
                self.last_ms = BEGIN_MS + number

    def feed_bad(self):
        with self.server.client as client:
            client.xadd(self.key, {"msg": b"{no json"}, id=self.entry_id(self.last_ms))
        return b"{no json"


class InNanoseconds:
    """The trait of a case whose ids are nanoseconds."""

    query = "&timestamps=ns"

    def entry_id(self, time_ms):
        self.id_count = getattr(self, "id_count", 0) + 1
        return f"{time_ms}{self.id_count:06d}-0"


class NanosecondSourceCase(InNanoseconds, RedisSourceCase):
    """A stream whose programs have ids in nanoseconds."""


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


class NanosecondSinkCase(InNanoseconds, RedisSinkCase):
    """A stream to whose readers the job has to give ids in nanoseconds."""


class TestRedisSource(SourceSuite):
    case_type = RedisSourceCase

    @pytest.fixture
    def case(self, tmp_path, server):
        return self.case_type(tmp_path).join(server)


class TestNanosecondSource(TestRedisSource):
    case_type = NanosecondSourceCase


class TestRedisSink(SinkSuite):
    case_type = RedisSinkCase

    @pytest.fixture
    def case(self, tmp_path, server):
        case = self.case_type(tmp_path).join(server)
        yield case
        case.close()


class TestNanosecondSink(TestRedisSink):
    case_type = NanosecondSinkCase


class TestExtension(ExtensionSuite):
    extension = builtin
    suites = (TestRedisSource, TestRedisSink)
    sources = {"redis"}  # noqa: RUF012 - as the suite declares it.
    sinks = {"redis"}  # noqa: RUF012 - as the suite declares it.
