"""Files of streams as sources and sinks: what the conformance suite knows of them."""

import json

from bicycle_runtime.testing.connectors import (
    CanBeUnwritable,
    CarriesMetadata,
    EndlessSourceCase,
    FeedsBadRecords,
    Metadata,
    SinkCase,
    SourceCase,
)
from bicycle_sdk.sinks.addresses import sink_from_uri
from bicycle_sdk.uris import source_from_uri
from bicycle_streams.addresses import StreamKey
from bicycle_streams.file.creating import create_file
from bicycle_streams.file.format import FileHeader
from bicycle_streams.file.writing import FileWriter
from tests.unit.streams.ss_decoder import decode

BEGIN_MS = 1_700_000_000_000
SHARDS = 2


class StreamFileCase(FeedsBadRecords, CarriesMetadata):
    """A file with beacons in short distances, and two shards."""

    word = "stream_file"
    is_ordered = False

    @property
    def uri(self):
        return f"file://{self.folder}/events.ss/orders?format=json"

    def record(self, number):
        return {"n": number}

    def metadata(self, number):
        return Metadata(timestamp_ms=BEGIN_MS + number)

    def feed(self, numbers):
        for number in numbers:
            self._append(number % SHARDS, b'{"n": %d}' % number, BEGIN_MS + number)

    def feed_bad(self):
        self._append(0, b"{no json", BEGIN_MS)
        return b"{no json"

    def _append(self, shard, payload, time_ms):
        path = self.folder / "events.ss"
        create_file(path, FileHeader(path.name, BEGIN_MS, 1024), must_be_new=False)
        writer = FileWriter(path, limit_bytes=1 << 30, buffer_bytes=1)
        writer.take(StreamKey("other"), 0, b"between", time_ms)
        writer.take(StreamKey("orders"), shard, payload, time_ms)
        writer.close(with_end=False)


class GrowingStreamFileCase(StreamFileCase, EndlessSourceCase):
    def descriptor(self):
        return source_from_uri(self.uri, dict)


class BoundedStreamFileCase(StreamFileCase, SourceCase):
    def descriptor(self):
        return source_from_uri(f"{self.uri}&bounded=true", dict)


class StreamFileSinkCase(SinkCase, CanBeUnwritable):
    word = "stream_file"

    def record(self, number):
        return {"n": number, "text": "x" * (number % 7)}

    def descriptor(self):
        return sink_from_uri(f"file://{self.folder}/out.ss/orders?format=json")

    def unwritable(self):
        return sink_from_uri(f"file://{self.folder}/missing/out.ss/orders")

    def visible(self):
        path = self.folder / "out.ss"
        messages = decode(path.read_bytes()).messages if path.exists() else []
        return [[json.loads(payload) for key, *_, payload in messages if key == "orders"]]
