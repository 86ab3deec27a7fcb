"""Our own sinks, each as a case of the conformance suite."""

import json
import socket
import threading
from dataclasses import dataclass

from bicycle_runtime.contract import Guarantee
from bicycle_runtime.testing.connectors import (
    CanBeUnwritable,
    RunsInForks,
    SinkCase,
)
from bicycle_sdk.connectors import (
    collect_sink,
    console_sink,
    file_sink,
    socket_sink,
)
from bicycle_sdk.sinks import console_table_sink


@dataclass
class Order:
    id: int
    user: str


class CollectCase(SinkCase):
    word = "collect"

    def record(self, number):
        return [(number, "a"), {number}, Order(number, "x"), b"%d" % number, number / 4][number % 5]

    def descriptor(self):
        return collect_sink("out")

    def visible(self):
        return [self.collected["out"]]


class ConsoleCase(SinkCase):
    word = "console"
    guarantee = Guarantee.AT_LEAST_ONCE

    def record(self, number):
        return f"record {number}"

    def descriptor(self):
        return console_sink()

    def visible(self):
        return [[text.removeprefix("[SINK] ") for text in self.console]]


class ConsoleTableCase(ConsoleCase):
    def record(self, number):
        return Order(number, f"user {number}")

    def descriptor(self):
        return console_table_sink(columns={"id": int, "user": str}, rows=1_000)

    def visible(self):
        cells = (text.split(maxsplit=1) for text in self.console)
        return [[Order(int(row[0]), row[1].strip()) for row in cells if row[0].isdecimal()]]


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


class FewRecordsCase(JsonlSinkCase):
    roll_bytes = 250


class StagedFileCase(JsonlSinkCase):
    roll_bytes = 1


class TextSinkCase(JsonlSinkCase):
    word = "text_file"
    format = "text"

    def record(self, number):
        return f"record {number}"

    def parse(self, text):
        return text.splitlines()


class CsvSinkCase(TextSinkCase):
    word = "csv_file"
    format = "csv"

    def parse(self, text):
        lines = text.splitlines()
        assert lines[0] == "value"
        assert "value" not in lines[1:]
        return lines[1:]


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
