"""Records that are completed by what a server answers."""

import json
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bicycle_runtime.base.errors import HEADER_UNUSABLE
from tests.raising import raises
from tests.unit.pipelines.pipeline_runs import ran, run
from tests.unit.pipelines.test_operators import SINK, collection, graph_of


@pytest.fixture
def server():
    """Answer with what was asked; /odd/… with an error, /text with no object, /slow never."""
    asked, is_over = [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers.get("Authorization")))
            if self.path.startswith("/slow"):
                is_over.wait()
                return
            found = [self.path] if self.path == "/text" else {"path": self.path}
            self.answer(503 if self.path.startswith("/odd") else 200, found)

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, json.loads(body)))
            self.answer(200, {"size": len(body)})

        def answer(self, status, found):
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        found.asked = asked
        found.url = f"http://127.0.0.1:{found.server_port}"
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        is_over.set()
        found.shutdown()
        thread.join()


def pipeline(items, config, more=""):
    call = f"{{id: call, operator: http_call{more}, config: {config}}}"
    return graph_of(collection("a", items), call, SINK, edges=[("a", "call"), ("call", "sink")])


def test_answers_are_added_in_order_or_put_into_a_field(server, monkeypatch):
    monkeypatch.setenv("TOKEN", "Bearer x")
    items = [{"ip": "1.2.3.4"}, {"ip": "a/b?c"}]
    config = f"{{url: '{server.url}/ip/{{ip}}', secret_headers: {{Authorization: 'env:TOKEN'}}}}"

    assert run(pipeline(items, config), "yaml") == [
        {"ip": "1.2.3.4", "path": "/ip/1.2.3.4"}, {"ip": "a/b?c", "path": "/ip/a%2Fb%3Fc"},
    ]  # fmt: skip
    assert {token for _, token in server.asked} == {"Bearer x"}
    within = f"{{url: '{server.url}/x', result: geo, ordered: false}}"
    assert run(pipeline([{"ip": 1}], within), "yaml") == [{"ip": 1, "geo": {"path": "/x"}}]
    post = f"{{url: '{server.url}/score', method: POST}}"
    assert run(pipeline([{"n": 1}], post), "yaml") == [{"n": 1, "size": 7}]
    assert server.asked[-1] == ("/score", {"n": 1})


def test_a_header_that_cannot_be_sent_ends_the_job_without_its_value(server, monkeypatch):
    monkeypatch.setenv("TOKEN", "Bearer ge\nheim")
    config = f"{{url: '{server.url}/x', secret_headers: {{Authorization: 'env:TOKEN'}}}}"

    with raises(HEADER_UNUSABLE) as caught:
        run(pipeline([{"ip": 1}], config), "yaml")
    assert caught.value.facts["name"] == "Authorization"
    assert "heim" not in "".join(traceback.format_exception(caught.value))
    assert not server.asked


def test_what_is_no_good_answer_meets_the_rule_after_its_retries(server):
    rule = ", on_error: {action: dead_letter, retries: 2, backoff: 1ms}"
    items = [{"at": "odd/1"}, {"at": "ok"}, {"at": "text"}]
    text = pipeline(items, f"{{url: '{server.url}/{{at}}'}}", more=rule)

    with ran(text, "yaml") as harness:
        letters = harness.dead_letters
        assert harness.results("sink") == [{"at": "ok", "path": "/ok"}]

    assert [letter["operator"] for letter in letters] == ["call", "call"]
    assert [path for path, _ in server.asked].count("/odd%2F1") == 3


def test_an_answer_that_does_not_come_is_no_record_that_is_lost(server):
    text = pipeline(
        [{"at": "slow"}], f"{{url: '{server.url}/{{at}}', timeout: 100ms}}",
        more=", on_error: dead_letter",
    )  # fmt: skip
    with ran(text, "yaml") as harness:
        assert harness.results("sink") == []
        assert "no response within 100ms" in str(harness.dead_letters)
