"""Our own connectors against the conformance suite that every connector has to pass."""

import gzip
import json
import socket
import threading
from dataclasses import asdict, dataclass

import pyarrow
import zstandard
from pyarrow import parquet

from bicycle_runtime.connectors import builtin
from bicycle_runtime.connectors.contract import Guarantee
from bicycle_runtime.testing.connectors import (
    CanBeUnwritable,
    EndlessSourceCase,
    ExtensionSuite,
    FeedsBadRecords,
    RunsInForks,
    SinkCase,
    SinkSuite,
    SourceCase,
    SourceSuite,
)
from bicycle_sdk.connectors import (
    SourceDescriptor,
    collect_sink,
    collection_source,
    console_sink,
    csv_file_source,
    file_sink,
    generator_source,
    jsonl_file_source,
    parquet_file_source,
    socket_sink,
    socket_source,
    text_file_source,
)

pytest_plugins = ["bicycle_runtime.testing.connectors.plugin"]

KAFKA = {"kafka"}  # Needs a broker: its suites are in tests/kafka.
WORDS = ("hello", "world", "bicycle", "streaming", "data", "python", "spark")
HALF_A_LINE = b"line "  # So begins every line.
ORDERS = pyarrow.schema([("id", pyarrow.int64()), ("user", pyarrow.string())])


@dataclass
class Order:
    id: int
    user: str


def line(number):
    return f"line {number} " + "x" * (number * 7 % 40)


class CollectionCase(SourceCase):
    word = "collection"

    def __init__(self, folder):
        super().__init__(folder)
        self.items = []

    def record(self, number):
        return {"n": number}

    def feed(self, numbers):
        self.items += self.records(numbers)

    def descriptor(self):
        return collection_source(self.items)


class TestCollection(SourceSuite):
    case_type = CollectionCase


class GeneratorCase(SourceCase):
    word = "generator"

    def record(self, number):
        return WORDS[number % len(WORDS)]

    def feed(self, numbers):
        self.count = numbers.stop

    def descriptor(self):
        return generator_source(rate_ms=0, count=self.count)


class TestGenerator(SourceSuite):
    case_type = GeneratorCase


class TextCase(SourceCase, FeedsBadRecords):
    """Lines of one file; the last one has no newline."""

    word = "text"

    def record(self, number):
        return line(number)

    def feed(self, numbers):
        self.append("\n".join(self.records(numbers)).encode())

    def feed_bad(self):
        self.append(b"\xff\xfe no text")
        return b"\xff\xfe no text"

    def append(self, data):
        path = self.folder / "in.txt"
        before = path.read_bytes() + b"\n" if path.exists() else b""
        path.write_bytes(before + data)

    def descriptor(self):
        return text_file_source(self.folder / "in.txt")


class TestTextFile(SourceSuite):
    case_type = TextCase


class FollowedTextCase(EndlessSourceCase, FeedsBadRecords):
    """Lines that come into three files by turns; each ends with half a line."""

    word = "text"
    is_ordered = False

    def record(self, number):
        return line(number)

    def feed(self, numbers):
        for number in numbers:
            self.append(number % 3, line(number).encode())

    def feed_bad(self):
        self.append(1, b"line \xff\xfe")
        return b"line \xff\xfe"

    def append(self, number, data):
        path = self.folder / f"{number}.txt"
        rest = data.removeprefix(HALF_A_LINE) if path.exists() else data
        with path.open("ab") as stream:
            stream.write(rest + b"\n" + HALF_A_LINE)

    def descriptor(self):
        return text_file_source(self.folder, follow=True)


class TestFollowedTextFiles(SourceSuite):
    case_type = FollowedTextCase


class GzipCase(TextCase):
    """Each feed is a member of its own."""

    def append(self, data):
        path = self.folder / "in.txt.gz"
        before = path.read_bytes() if path.exists() else b""
        path.write_bytes(before + gzip.compress(data + b"\n"))

    def descriptor(self):
        return text_file_source(self.folder / "in.txt.gz")


class TestGzipFile(SourceSuite):
    case_type = GzipCase


class ZstdCase(SourceCase, FeedsBadRecords):
    """JSON lines in a file for each feed, in two frames."""

    word = "jsonl"
    is_ordered = False

    def record(self, number):
        return {"line": line(number)}

    def feed(self, numbers):
        self.write("".join(json.dumps(value) + "\n" for value in self.records(numbers)).encode())

    def feed_bad(self):
        self.write(b'{"line": \n')
        return b'{"line": '

    def write(self, data):
        count = len(list(self.folder.iterdir()))
        frames = zstandard.compress(data[:100]) + zstandard.compress(data[100:])
        (self.folder / f"{count}.jsonl.zst").write_bytes(frames)

    def descriptor(self):
        return jsonl_file_source(self.folder / "*.zst")


class TestZstdFiles(SourceSuite):
    case_type = ZstdCase


class JsonlCase(SourceCase, FeedsBadRecords):
    """Typed records with blank lines between them."""

    word = "jsonl"

    def record(self, number):
        return Order(number, f"user {number}")

    def feed(self, numbers):
        rows = [
            f'{{"id": {order.id}, "user": "{order.user}"}}\n' for order in self.records(numbers)
        ]
        self.append("\n".join(rows))

    def feed_bad(self):
        self.append('{"id": "one"}\n')
        return b'{"id": "one"}'

    def append(self, text):
        with (self.folder / "in.jsonl").open("a") as stream:
            stream.write(text)

    def descriptor(self):
        return jsonl_file_source(self.folder / "in.jsonl", record_type=Order)


class TestJsonlFile(SourceSuite):
    case_type = JsonlCase


class CsvCase(SourceCase, FeedsBadRecords):
    """Quoted fields with quotes and newlines."""

    word = "csv"

    def record(self, number):
        return Order(number, 'a "user"\nof two lines' * (number % 3))

    def feed(self, numbers):
        for order in self.records(numbers):
            user = order.user.replace('"', '""')
            self.append(f'{order.id},"{user}"\n' if user else f"{order.id},\n")

    def feed_bad(self):
        self.append("1,2,3\n")
        return b"1,2,3"

    def append(self, text):
        path = self.folder / "in.csv"
        header = "" if path.exists() else "id,user\n"
        with path.open("a") as stream:
            stream.write(header + text)

    def descriptor(self):
        return csv_file_source(self.folder / "in.csv", record_type=Order)


class TestCsvFile(SourceSuite):
    case_type = CsvCase


class ParquetCase(SourceCase, FeedsBadRecords):
    """Typed rows in a file for each feed."""

    word = "parquet"
    is_ordered = False

    def record(self, number):
        return Order(number, f"user {number}")

    def feed(self, numbers):
        self.write([asdict(order) for order in self.records(numbers)])

    def feed_bad(self):
        self.write([{"id": 1, "user": None}])
        return b'{"id":1,"user":null}'

    def write(self, rows):
        count = len(list(self.folder.iterdir()))
        table = pyarrow.Table.from_pylist(rows, schema=ORDERS)
        parquet.write_table(table, self.folder / f"{count}.parquet", row_group_size=7)

    def descriptor(self):
        return parquet_file_source(self.folder, record_type=Order)


class TestParquetFiles(SourceSuite):
    case_type = ParquetCase


class SocketSourceCase(EndlessSourceCase, FeedsBadRecords):
    word = "socket"

    def record(self, number):
        return line(number)

    def started(self, source):
        self.port = source.port

    def feed(self, numbers):
        self.send("".join(f"{text}\n" for text in self.records(numbers)).encode())

    def feed_bad(self):
        self.send(b"\xff\xfe no text\n")
        return b"\xff\xfe no text"

    def send(self, data):
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            client.settimeout(self.wait_s)
            assert client.recv(1) == b""  # The server has read all and put it into the journal.

    def descriptor(self):
        described = socket_source(host="127.0.0.1", port=0)
        properties = {**described.properties, "segment_bytes": 1024}
        return SourceDescriptor(connector_type="socket", properties=properties, output_type=str)


class TestSocketSource(SourceSuite):
    case_type = SocketSourceCase


class CollectCase(SinkCase):
    word = "collect"

    def record(self, number):
        return [(number, "a"), {number}, Order(number, "x"), b"%d" % number, number / 4][number % 5]

    def descriptor(self):
        return collect_sink("out")

    def visible(self):
        return [self.collected["out"]]


class TestCollect(SinkSuite):
    case_type = CollectCase


class ConsoleCase(SinkCase):
    word = "console"
    guarantee = Guarantee.AT_LEAST_ONCE

    def record(self, number):
        return f"record {number}"

    def descriptor(self):
        return console_sink()

    def visible(self):
        return [[text.removeprefix("[SINK] ") for text in self.console]]


class TestConsole(SinkSuite):
    case_type = ConsoleCase


class JsonlSinkCase(SinkCase, CanBeUnwritable, RunsInForks):
    word = "jsonl_file"
    traced_modules = ("connectors/files/parts.py", "base/storage.py")
    traced_lines_min = 10
    format = "jsonl"
    roll_bytes = 1 << 20

    def record(self, number):
        return {"number": number, "text": "x" * (number * 7 % 40)}

    def descriptor(self):
        return self.sink_in(self.folder / "out")

    def unwritable(self):
        (self.folder / "file").touch()
        return self.sink_in(self.folder / "file")

    def sink_in(self, path):
        return file_sink(path, format=self.format, roll_bytes=self.roll_bytes)

    def visible(self):
        texts = [path.read_text() for path in sorted((self.folder / "out").glob("[!.]*"))]
        assert all(text.endswith("\n") for text in texts)
        return [[record for text in texts for record in self.parse(text)]]

    def parse(self, text):
        return [json.loads(row) for row in text.splitlines()]


class TestJsonlFileSink(SinkSuite):
    case_type = JsonlSinkCase


class FewRecordsCase(JsonlSinkCase):
    roll_bytes = 250


class TestJsonlFileSinkWithOnePartPerFewRecords(SinkSuite):
    case_type = FewRecordsCase


class StagedFileCase(JsonlSinkCase):
    roll_bytes = 1


class TestJsonlFileSinkWithOnePartPerStagedFile(SinkSuite):
    case_type = StagedFileCase


class TextSinkCase(JsonlSinkCase):
    word = "text_file"
    format = "text"

    def record(self, number):
        return f"record {number}"

    def parse(self, text):
        return text.splitlines()


class TestTextFileSink(SinkSuite):
    case_type = TextSinkCase


class CsvSinkCase(TextSinkCase):
    word = "csv_file"
    format = "csv"

    def parse(self, text):
        lines = text.splitlines()
        assert lines[0] == "value"
        assert "value" not in lines[1:]
        return lines[1:]


class TestCsvFileSink(SinkSuite):
    case_type = CsvSinkCase


class SocketSinkCase(SinkCase, CanBeUnwritable):
    word = "socket"
    guarantee = Guarantee.AT_LEAST_ONCE

    def __init__(self, folder):
        super().__init__(folder)
        self.received = []
        self.clients = []
        self.taken = socket.create_server(("127.0.0.1", 0))

    def record(self, number):
        return f"record {number}"

    def descriptor(self):
        return socket_sink(host="127.0.0.1", port=0)

    def unwritable(self):
        return socket_sink(host="127.0.0.1", port=self.taken.getsockname()[1])

    def started(self, sink):
        client = socket.create_connection(("127.0.0.1", sink.port), timeout=self.wait_s)
        reader = threading.Thread(target=self.read, args=(client,))
        self.clients.append((client, reader))
        reader.start()
        done = threading.Event()
        while sink.client_count == 0:
            done.wait(0.002)

    def read(self, client):
        with client.makefile("r") as lines:
            for text in lines:
                self.received.append(text.removesuffix("\n"))

    def visible(self):
        return [list(self.received)]

    def close(self):
        self.taken.close()
        for client, reader in self.clients:
            client.shutdown(socket.SHUT_RDWR)
            reader.join()
            client.close()


class TestSocketSink(SinkSuite):
    case_type = SocketSinkCase


class TestExtension(ExtensionSuite):
    extension = builtin
    suites = (
        TestCollection,
        TestGenerator,
        TestTextFile,
        TestFollowedTextFiles,
        TestGzipFile,
        TestZstdFiles,
        TestJsonlFile,
        TestCsvFile,
        TestParquetFiles,
        TestSocketSource,
        TestCollect,
        TestConsole,
        TestJsonlFileSink,
        TestJsonlFileSinkWithOnePartPerFewRecords,
        TestJsonlFileSinkWithOnePartPerStagedFile,
        TestTextFileSink,
        TestCsvFileSink,
        TestSocketSink,
    )
    sources = builtin.bicycle_sources().keys() - KAFKA
    sinks = builtin.bicycle_sinks().keys() - KAFKA
