"""Requests to the administration of Pulsar; a plain HTTP server is enough."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bicycle_streams.addresses import StreamerUri
from bicycle_streams.pulsar.cluster import Cluster
from bicycle_streams.pulsar.errors import DEDUPLICATION_OFF
from bicycle_streams.pulsar.options import PulsarOptions
from tests.raising import raises


@contextmanager
def serving(status, location=None):
    """Yield the address of a server, and the tokens that it received."""
    tokens = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            tokens.append(self.headers["Authorization"])
            self.send_response(status)
            if location is not None:
                self.send_header("Location", location)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"true")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", tokens
    finally:
        server.shutdown()
        server.server_close()


def cluster(admin_url):
    options = PulsarOptions(admin_url=admin_url, token="secret")
    return Cluster(StreamerUri.parse("pulsar://127.0.0.1:9"), options)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_with_the_token_and_its_target_is_named(status):
    with serving(200) as (other, stolen):
        location = f"{other.replace('//', '//ada:hidden@')}/admin?token=hidden"
        with serving(status, location) as (url, tokens):
            with raises(DEDUPLICATION_OFF, match=other) as caught:
                cluster(url).require_deduplication("a")
            assert (tokens, stolen) == (["Bearer secret"], [])
            assert "hidden" not in str(caught.value)


def test_the_token_is_sent_to_the_server_itself():
    with serving(200) as (url, tokens):
        cluster(url).require_deduplication("a")
        assert tokens == ["Bearer secret"]
