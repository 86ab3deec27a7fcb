"""Streams that nobody keeps as sources: what the conformance suite knows of them."""

import json
import os
import select
import socket
import sys
import threading
from types import SimpleNamespace

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve

from bicycle_runtime.testing.connectors import EndlessSourceCase, FeedsBadRecords
from bicycle_runtime.testing.connectors.running import pauses
from bicycle_sdk.connectors import SourceDescriptor
from bicycle_sdk.uris import source_from_uri


class Feed:
    """A WebSocket server that sends numbered frames, from the one on that a client asks for."""

    def __init__(self):
        self.frames = []
        self._news = threading.Condition()
        self._server = serve(self._serve_one, "127.0.0.1", 0)
        self.port = self._server.socket.getsockname()[1]
        self._is_closed = False
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def send(self, frame, number=None):
        with self._news:
            self.frames.append((number, frame))
            self._news.notify_all()

    def close(self):
        self._is_closed = True
        with self._news:
            self._news.notify_all()
        self._server.shutdown()
        self._thread.join()

    def _serve_one(self, peer):
        after = json.loads(peer.recv())["after"]
        numbers = [number for number, _ in self.frames]
        position = numbers.index(after) + 1 if after in numbers else 0
        try:
            while not self._is_closed:
                for _, frame in self._wait_for(position):
                    peer.send(frame)
                    position += 1
        except ConnectionClosed:
            return

    def _wait_for(self, position):
        with self._news:
            self._news.wait_for(lambda: self._is_closed or position < len(self.frames))
            return self.frames[position:]


class WebSocketCase(EndlessSourceCase, FeedsBadRecords):
    word = "websocket"

    def __init__(self, folder):
        super().__init__(folder)
        self.server = Feed()

    def close(self):
        self.server.close()

    def record(self, number):
        return {"seq": number, "text": "a\nb\\" + "x" * (number * 7 % 40)}

    def feed(self, numbers):
        for record in self.records(numbers):
            self.server.send(json.dumps(record), record["seq"])

    def feed_bad(self):
        self.server.send("{no json")
        return b"{no json"

    def descriptor(self):
        described = source_from_uri(
            f"ws://127.0.0.1:{self.server.port}/prices?journal=true&format=json"
            '&subscribe={"after": {sequence}}&sequence_field=seq',
            dict,
        )
        properties = {**described.properties, "segment_bytes": 1024}
        return SourceDescriptor(connector_type=self.word, properties=properties, output_type=dict)


class StdioCase(EndlessSourceCase, FeedsBadRecords):
    """Standard input is a pipe that stays open."""

    word = "stdio"

    def __init__(self, folder):
        super().__init__(folder)
        self.before = sys.stdin
        reading, self.writing = os.pipe()
        sys.stdin = SimpleNamespace(buffer=os.fdopen(reading, "rb"))

    def close(self):
        os.close(self.writing)
        sys.stdin.buffer.close()
        sys.stdin = self.before

    def record(self, number):
        return {"n": number}

    def feed(self, numbers):
        for record in self.records(numbers):
            os.write(self.writing, json.dumps(record).encode() + b"\n")

    def feed_bad(self):
        os.write(self.writing, b"{no json\n")
        return b"{no json"

    def descriptor(self):
        return source_from_uri("stdio:///numbers?journal=true&format=json", dict)


class SocketStreamCase(EndlessSourceCase, FeedsBadRecords):
    """A TCP server of others sends lines to who connects.

    Nobody can tell what the other side of TCP has read, so a line that a crash meets on its way is
    lost; feeding ends when all lines are in the journal.
    """

    word = "socket"

    def __init__(self, folder):
        super().__init__(folder)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lines = []
        self.sent_count = 0
        self.news = threading.Condition()
        self.is_closed = False
        self.segments = None
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        """Send each line once, to who is there; who has left is noticed before the next one."""
        while not self.is_closed:
            connection, _ = self.listener.accept()
            with connection:
                self.send_to(connection)

    def send_to(self, connection):
        while not self.is_closed and not has_left(connection):
            with self.news:
                if self.sent_count < len(self.lines):
                    connection.sendall(self.lines[self.sent_count])
                    self.sent_count += 1
                else:
                    self.news.wait(0.01)

    def close(self):
        self.is_closed = True
        socket.create_connection(("127.0.0.1", self.port)).close()
        self.thread.join()
        self.listener.close()

    def record(self, number):
        return {"n": number, "text": "x" * (number * 7 % 40)}

    def feed(self, numbers):
        self.say([json.dumps(record).encode() + b"\n" for record in self.records(numbers)])

    def feed_bad(self):
        self.say([b"{no json\n"])
        return b"{no json"

    def started(self, source):
        self.segments = source.reader().segments

    def say(self, lines):
        with self.news:
            self.lines += lines
            self.news.notify_all()
        for _ in pauses(self.wait_s):
            if self.journalled().endswith(lines[-1]):
                return
        raise AssertionError(f"the source journalled only {self.journalled()!r}")

    def journalled(self):
        paths = map(self.segments.path, self.segments.starts())
        return b"".join(map(self.segments.storage.read, paths))

    def descriptor(self):
        return source_from_uri(
            f"socket://127.0.0.1:{self.port}/numbers?journal=true&format=json", dict
        )


def has_left(connection):
    ready, _, _ = select.select([connection], [], [], 0)
    return bool(ready) and not connection.recv(1)
