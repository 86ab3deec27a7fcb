"""Streams that nobody keeps as sinks: what the conformance suite knows of them."""

import io
import json
import socket
import sys
import threading
from socketserver import StreamRequestHandler, ThreadingTCPServer
from types import SimpleNamespace

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve

from bicycle_runtime.contract import Guarantee
from bicycle_runtime.testing.connectors import CanBeUnwritable, SinkCase
from bicycle_sdk.sinks.addresses import sink_from_uri
from bicycle_streams import standard_input


class SentCase(SinkCase):
    guarantee = Guarantee.AT_LEAST_ONCE

    def __init__(self, folder):
        super().__init__(folder)
        self.received = []

    def record(self, number):
        return {"n": number, "text": "é" * (number % 7)}

    def visible(self):
        return [[json.loads(text.partition("] ")[2]) for text in list(self.received)]]


class WebSocketSinkCase(SentCase, CanBeUnwritable):
    """A server of others keeps the frames."""

    word = "websocket"

    def __init__(self, folder):
        super().__init__(folder)
        self.taken = socket.create_server(("127.0.0.1", 0))
        self.server = serve(self.keep, "127.0.0.1", 0)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def keep(self, peer):
        try:
            for frame in peer:
                self.received.append(frame)
        except ConnectionClosed:
            return

    def descriptor(self):
        port = self.server.socket.getsockname()[1]
        return sink_from_uri(f"ws://127.0.0.1:{port}/prices?format=json")

    def unwritable(self):
        port = self.taken.getsockname()[1]
        return sink_from_uri(f"ws://127.0.0.1:{port}/prices?listen=true")

    def close(self):
        self.taken.close()
        self.server.shutdown()
        self.thread.join()


class SocketStreamSinkCase(SentCase, CanBeUnwritable):
    """A TCP server of others keeps the lines, which are payloads as they are."""

    word = "socket"

    def __init__(self, folder):
        super().__init__(folder)
        received = self.received

        class Keep(StreamRequestHandler):
            def handle(self):
                for line in self.rfile:
                    received.append("] " + line.decode())

        self.server = ThreadingTCPServer(("127.0.0.1", 0), Keep)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def descriptor(self):
        return sink_from_uri(f"socket://127.0.0.1:{self.port}/prices?format=json")

    def unwritable(self):
        return sink_from_uri(f"socket://127.0.0.1:{self.port}/prices?listen=true")

    @property
    def port(self):
        return self.server.server_address[1]

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class StdioSinkCase(SentCase):
    word = "stdio"

    def __init__(self, folder):
        super().__init__(folder)
        self.written = io.BytesIO()
        # Only there: pytest changes the standard output of the process in each phase of a test.
        standard_input.sys = SimpleNamespace(stdout=SimpleNamespace(buffer=self.written))

    def descriptor(self):
        return sink_from_uri("stdio:///prices?format=json")

    def visible(self):
        self.received = self.written.getvalue().decode().splitlines()
        return super().visible()

    def close(self):
        standard_input.sys = sys
