"""Standalone masters tell their cores by their pages."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bicycle_runtime.base.spark_masters import Masters
from bicycle_sdk.clock import ManualClock

MASTER = "spark://head:7077"
GOOD = {"url": MASTER, "status": "ALIVE", "cores": 6, "workers": []}


@pytest.fixture
def page():
    """A page whose answer is chosen by the test; it counts who asks."""

    class Handler(BaseHTTPRequestHandler):
        answer, asked = json.dumps(GOOD).encode(), []

        def do_GET(self):
            self.asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.answer)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        Handler.url = f"http://127.0.0.1:{server.server_port}"
        yield Handler
        server.shutdown()
        thread.join()


def test_a_master_is_asked_again_after_a_while_and_not_before(page):
    clock = ManualClock(start_ms=1_000_000)
    masters = Masters(clock, {MASTER: page.url})

    found = [masters.cores(MASTER), masters.cores(MASTER)]
    page.answer = json.dumps({**GOOD, "cores": 2}).encode()
    clock.advance(15_000)

    assert [*found, masters.cores(MASTER)] == [6, 6, 2]
    assert page.asked == ["/json/", "/json/"]


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[]", b"{}", json.dumps({**GOOD, "status": "STANDBY"}).encode()]
)
def test_a_page_that_tells_nothing_leaves_the_cores_unknown(page, answer):
    page.answer = answer

    assert Masters(ManualClock(start_ms=1_000_000), {MASTER: page.url}).cores(MASTER) is None


def test_on_the_usual_port_another_master_is_not_believed(page, monkeypatch):
    monkeypatch.setattr(
        "bicycle_runtime.base.spark_masters._PAGE_PORT", int(page.url.rpartition(":")[2])
    )
    here, other = "spark://127.0.0.1:7077", "spark://127.0.0.1:7078"
    page.answer = json.dumps({**GOOD, "url": here}).encode()
    masters = Masters(ManualClock(start_ms=1_000_000), {})

    assert masters.cores(f"{here},127.0.0.1:7079") == 6  # One that leads, one that stands by.
    assert masters.cores(other) is None
    assert [masters.cores(each) for each in ("yarn", "k8s://https://127.0.0.1:1")] == [None, None]
