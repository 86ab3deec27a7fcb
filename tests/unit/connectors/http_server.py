"""A real HTTP server that takes records, and fails as it is told to."""

import json
import socket
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Takes arrays of records; one that ``deduplicates`` drops requests whose key it has seen.

    ``failures`` are what happens to the next requests: a status, or ``lost`` (the request counts,
    its answer is lost) or ``cut`` (it does not count). ``refuses`` tells of a record. ``tls`` is
    the context of a server with TLS; ``redirects_to`` is the location in all answers.
    """

    def __init__(self, *, deduplicates=True, tls=None):
        self.tls, self.redirects_to = tls, None
        self.deduplicates = deduplicates
        self.records, self.requests, self.failures = [], [], deque()
        self.refuses = lambda _: False
        self._seen = set()
        self._server = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.start()

    @property
    def url(self):
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}/records"

    def start(self):
        if self._server is not None:
            return
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                self._answer(405)

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, retry_after = server.take(json.loads(body), self.headers)
                if status is None:
                    self.close_connection = True
                    return
                self._answer(status, retry_after)

            def _answer(self, status, retry_after=None):
                self.send_response(status)
                if server.redirects_to is not None:
                    self.send_header("Location", server.redirects_to)
                if retry_after is not None:
                    self.send_header("Retry-After", retry_after)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self._server.handle_error = lambda *_: None  # Handshakes fail as the tests want.
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def take(self, body, headers):
        failure = self.failures.popleft() if self.failures else None
        self.requests.append((headers["Idempotency-Key"], headers.get("Authorization"), body))
        if failure == "cut":
            return None, None
        if isinstance(failure, tuple):
            return failure
        if isinstance(failure, int):
            return failure, None
        records = body if isinstance(body, list) else [body]
        if any(map(self.refuses, records)):
            return 422, None
        if headers["Idempotency-Key"] not in self._seen or not self.deduplicates:
            self._seen.add(headers["Idempotency-Key"])
            self.records += records
        return (None if failure == "lost" else 204), None
