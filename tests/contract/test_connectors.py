"""Our own connectors against the contract suites."""

import gzip
import json
import socket
from dataclasses import dataclass
from typing import ClassVar

import pytest
import zstandard

from bicycle_runtime.connectors.contract import ConnectorSpec, Guarantee
from tests.contract.connector_suite import (
    DurableSinkSuite,
    SinkRun,
    SinkSuite,
    SourceRun,
    SourceSuite,
    eventually,
    services_in,
)

LINES = [f"line {number} " + "x" * (number * 7 % 40) for number in range(60)]


@dataclass
class Order:
    id: int
    user: str


def source_run(folder, word, properties, **more):
    spec = ConnectorSpec(vertex_id="v", connector_type=word, properties=properties, **more)
    return SourceRun(spec, services_in(folder))


class TestCollection(SourceSuite):
    expected: ClassVar = [{"n": number} for number in range(50)]

    def make_run(self, folder):
        return source_run(folder, "collection", {}, payloads={"items": self.expected})


class TestGenerator(SourceSuite):
    expected: ClassVar = (
        ["hello", "world", "bicycle", "streaming", "data", "python", "spark"] * 6
    )[:40]

    def make_run(self, folder):
        return source_run(folder, "generator", {"rate_ms": 0, "count": 40})


class TestTextFile(SourceSuite):
    expected: ClassVar = LINES

    def make_run(self, folder):
        (folder / "in.txt").write_text("\n".join(LINES))
        return source_run(folder, "text", {"path": str(folder / "in.txt")})


class TestFollowedTextFiles(SourceSuite):
    expected: ClassVar = LINES
    is_bounded = False
    is_ordered = False

    def make_run(self, folder):
        (folder / "in").mkdir()
        for number in range(3):
            text = "".join(f"{line}\n" for line in LINES[number * 20 : number * 20 + 20])
            (folder / "in" / f"{number}.txt").write_text(text + "half a line")
        return source_run(folder, "text", {"path": str(folder / "in"), "follow": True})


class TestGzipFile(SourceSuite):
    expected: ClassVar = LINES

    def make_run(self, folder):
        (folder / "in.txt.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
        return source_run(folder, "text", {"path": str(folder / "in.txt.gz")})


class TestZstdFiles(SourceSuite):
    expected: ClassVar = [json.loads(f'{{"line": "{line}"}}') for line in LINES]
    is_ordered = False

    def make_run(self, folder):
        for number in range(3):
            some = self.expected[number * 20 : number * 20 + 20]
            data = "".join(json.dumps(value) + "\n" for value in some).encode()
            frames = zstandard.compress(data[:100]) + zstandard.compress(data[100:])
            (folder / f"{number}.jsonl.zst").write_bytes(frames)
        return source_run(folder, "jsonl", {"path": str(folder / "*.zst")})


class TestJsonlFile(SourceSuite):
    expected: ClassVar = [Order(number, f"user {number}") for number in range(60)]

    def make_run(self, folder):
        rows = [f'{{"id": {order.id}, "user": "{order.user}"}}\n' for order in self.expected]
        (folder / "in.jsonl").write_text("\n".join(rows))
        return source_run(folder, "jsonl", {"path": str(folder / "in.jsonl")}, record_type=Order)


class TestCsvFile(SourceSuite):
    expected: ClassVar = [
        Order(number, 'a "user"\nof two lines' * (number % 3)) for number in range(60)
    ]

    def make_run(self, folder):
        rows = ["id,user\n"]
        for order in self.expected:
            user = order.user.replace('"', '""')
            rows.append(f'{order.id},"{user}"\n' if user else f"{order.id},\n")
        (folder / "in.csv").write_text("".join(rows))
        return source_run(folder, "csv", {"path": str(folder / "in.csv")}, record_type=Order)


class TestSocketSource(SourceSuite):
    expected: ClassVar = LINES
    is_bounded = False

    def make_run(self, folder):
        return source_run(folder, "socket", {"host": "127.0.0.1", "port": 0, "segment_bytes": 1024})

    def after_start(self, run):
        with socket.create_connection(("127.0.0.1", run.source.port)) as client:
            client.sendall("\n".join(LINES).encode())
        byte_count = sum(len(line) + 1 for line in LINES)
        eventually(lambda: run.source.poll().lag.byte_count == byte_count)


def sink_run(folder, word, properties, printed=None):
    spec = ConnectorSpec(vertex_id="v", connector_type=word, properties=properties)
    return SinkRun(spec, services_in(folder, printed))


JSON_EPOCHS = [
    [
        [{"epoch": epoch, "n": number, "subtask": subtask} for number in range(3)]
        for subtask in (0, 1)
    ]
    for epoch in range(5)
]


class TestCollect(SinkSuite):
    guarantee = Guarantee.EXACTLY_ONCE
    epochs: ClassVar = [[[(1, "a"), {2, 3}], [Order(1, "x")]], [[b"bytes"], [None, 1.5]]]

    def make_run(self, folder):
        return sink_run(folder, "collect", {"name": "out"})

    def visible(self, folder, run):
        return run.services.collected["out"]


class TestConsole(SinkSuite):
    guarantee = Guarantee.AT_LEAST_ONCE
    epochs: ClassVar = [[["a", "b"], ["c"]], [["d"], ["e", "f"]]]

    def make_run(self, folder):
        self.printed = []
        return sink_run(folder, "console", {}, self.printed)

    def visible(self, folder, run):
        return [line.removeprefix("[SINK] ") for line in self.printed]


class FileSinkCase(DurableSinkSuite):
    guarantee = Guarantee.EXACTLY_ONCE
    word: str
    roll_bytes = 1 << 20

    def make_run(self, folder):
        path = str(folder / "out")
        return sink_run(folder, self.word, {"path": path, "roll_bytes": self.roll_bytes})

    def visible(self, folder, run):
        texts = [path.read_text() for path in sorted((folder / "out").iterdir())]
        assert all(text.endswith("\n") for text in texts)
        return [record for text in texts for record in self.parse(text)]

    def parse(self, text):
        return [json.loads(line) for line in text.splitlines()]


class TestJsonlFileSink(FileSinkCase):
    word = "jsonl_file"
    epochs: ClassVar = JSON_EPOCHS


class TestJsonlFileSinkWithOnePartPerFewRecords(FileSinkCase):
    word = "jsonl_file"
    epochs: ClassVar = JSON_EPOCHS
    roll_bytes = 250


class TestJsonlFileSinkWithOnePartPerStagedFile(FileSinkCase):
    word = "jsonl_file"
    epochs: ClassVar = JSON_EPOCHS
    roll_bytes = 1


class TestTextFileSink(FileSinkCase):
    word = "text_file"
    epochs: ClassVar = [[["a", "b"], ["c"]], [["d"], ["e", "f"]]]

    def parse(self, text):
        return text.splitlines()


class TestCsvFileSink(FileSinkCase):
    word = "csv_file"
    epochs: ClassVar = [[["a", "b"], ["c"]], [["d"], ["e", "f"]], [["g"], []]]

    def parse(self, text):
        lines = text.splitlines()
        assert lines[0] == "value"
        assert "value" not in lines[1:]
        return lines[1:]


class TestSocketSink(SinkSuite):
    guarantee = Guarantee.AT_LEAST_ONCE
    epochs: ClassVar = [[["a", "b"], ["c"]], [["d"], ["e", "f"]]]

    @pytest.fixture(autouse=True)
    def _clients(self):
        self.clients = []
        yield
        for client in self.clients:
            client.close()

    def make_run(self, folder):
        return sink_run(folder, "socket", {"host": "127.0.0.1", "port": 0})

    def before_publishing(self, run):
        self.clients.append(socket.create_connection(("127.0.0.1", run.sink.port)))
        self.clients[-1].settimeout(10)
        eventually(lambda: run.sink.client_count == 1)

    def test_a_restart_after_every_sealed_epoch_is_harmless(self, run):
        run.seal(self.epochs[0])

        run.restart()

        assert run.sink.dropped_count() == len(self.expected(1))  # Nobody was connected yet.

    def visible(self, folder, run):
        run.sink.stop()
        text = ""
        for client in self.clients:
            while data := client.recv(1 << 16):
                text += data.decode()
        return text.splitlines()
