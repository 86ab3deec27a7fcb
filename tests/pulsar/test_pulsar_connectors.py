"""Pulsar as source and sink of jobs against the conformance suites, on a server that is killed."""

import json
import os

import pulsar
import pytest

from bicycle_runtime.connectors import builtin
from bicycle_runtime.contract import Guarantee
from bicycle_runtime.testing.connectors import (
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


class PulsarCase(HasOutages):
    """A stream of its own for each test; an outage is a server that was killed."""

    word = "pulsar"
    clock = SystemClock()
    wait_s = 120.0

    def join(self, server, key):
        self.server = server
        self.key = key
        return self

    @property
    def uri(self):
        return f"{self.server.uri}/{self.key}?format=json"

    def break_transport(self):
        self.server.kill()

    def repair_transport(self):
        self.server.start()

    def client(self):
        log = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
        return pulsar.Client(self.server.uri, logger=log)


class PulsarSourceCase(PulsarCase, EndlessSourceCase, FeedsBadRecords, CarriesMetadata):
    is_ordered = False

    def join(self, server, key):
        server.ask("PUT", f"persistent/public/default/{key}/partitions", SHARDS)
        return super().join(server, key)

    def record(self, number):
        return {"n": number}

    def metadata(self, number):
        return Metadata(timestamp_ms=BEGIN_MS + number)

    def descriptor(self):
        return source_from_uri(f"{self.uri}&group=conformance", dict)

    def feed(self, numbers):
        self.send([(n % SHARDS, b'{"n": %d}' % n, BEGIN_MS + n) for n in numbers])

    def feed_bad(self):
        self.send([(0, b"{no json", BEGIN_MS)])
        return b"{no json"

    def send(self, messages):
        client = self.client()
        producers = [
            client.create_producer(f"persistent://public/default/{self.key}-partition-{shard}")
            for shard in range(SHARDS)
        ]
        for shard, payload, time_ms in messages:
            producers[shard].send(payload, event_timestamp=time_ms)
        client.close()


class PulsarSinkCase(PulsarCase, SinkCase):
    guarantee = Guarantee.AT_LEAST_ONCE

    def record(self, number):
        return {"n": number, "text": "x" * (number % 7)}

    def descriptor(self):
        return sink_from_uri(self.uri)

    def visible(self):
        self.server.start()
        client = self.client()
        topic = f"persistent://public/default/{self.key}"
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(json.loads(reader.read_next(10_000).data()))
        client.close()
        return [found]


class TestPulsarSource(SourceSuite):
    case_type = PulsarSourceCase

    @pytest.fixture
    def case(self, tmp_path, pulsar_server, new_key):
        return PulsarSourceCase(tmp_path).join(pulsar_server, new_key("source"))


class TestPulsarSink(SinkSuite):
    case_type = PulsarSinkCase

    @pytest.fixture
    def case(self, tmp_path, pulsar_server, new_key):
        case = self.case_type(tmp_path).join(pulsar_server, new_key("sink"))
        yield case
        case.close()


class TestExtension(ExtensionSuite):
    extension = builtin
    suites = (TestPulsarSource, TestPulsarSink)
    sources = {"pulsar"}  # noqa: RUF012 - as the suite declares it.
    sinks = {"pulsar"}  # noqa: RUF012 - as the suite declares it.
