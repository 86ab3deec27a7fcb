"""Our own sources, each as a case of the conformance suite."""

import gzip
import json
import socket
from dataclasses import asdict, dataclass

import pyarrow
import zstandard
from pyarrow import parquet

from bicycle_runtime.testing.connectors import (
    EndlessSourceCase,
    FeedsBadRecords,
    SourceCase,
)
from bicycle_sdk.connectors import (
    SourceDescriptor,
    collection_source,
    csv_file_source,
    generator_source,
    jsonl_file_source,
    parquet_file_source,
    socket_source,
    text_file_source,
)

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


class GeneratorCase(SourceCase):
    word = "generator"

    def record(self, number):
        return WORDS[number % len(WORDS)]

    def feed(self, numbers):
        self.count = numbers.stop

    def descriptor(self):
        return generator_source(rate_ms=0, count=self.count)


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


class GzipCase(TextCase):
    """Each feed is a member of its own."""

    def append(self, data):
        path = self.folder / "in.txt.gz"
        before = path.read_bytes() if path.exists() else b""
        path.write_bytes(before + gzip.compress(data + b"\n"))

    def descriptor(self):
        return text_file_source(self.folder / "in.txt.gz")


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
