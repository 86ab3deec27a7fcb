"""Work of a service that takes long: the command shows for how long it has waited."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bicycle_runtime.cli import remote
from bicycle_runtime.cli.remote import Remote, progress
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def _soon(monkeypatch):
    for name in ("_FIRST_PROGRESS_S", "_PROGRESS_S"):
        monkeypatch.setattr(remote, name, 0.01)


@pytest.fixture
def lines(capsys):
    """Call for the lines that were shown so far."""
    shown = ""

    def read():
        nonlocal shown
        shown += capsys.readouterr().err
        return shown.splitlines()

    return read


@pytest.fixture
def slow_service():
    """A service that builds an environment until it may end; its address, and what lets it end."""
    may_end = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            assert may_end.wait(PATIENCE_S)
            body = json.dumps({"digest": "d"}).encode()
            self.send_response(201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words):
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", may_end.set
        may_end.set()
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("_soon")
def test_work_that_takes_long_is_shown_with_its_time(lines):
    with progress("submit of words"):
        until(lambda: len(lines()) >= 2, "two lines")

    assert all(line.startswith("submit of words: ") for line in lines())
    assert all(line.endswith(" so far") for line in lines())


def test_quick_work_shows_nothing_and_passes_errors_on(lines):
    with pytest.raises(ZeroDivisionError), progress("upload"):
        _ = 1 / 0

    assert lines() == []


@pytest.mark.usefixtures("_soon")
def test_an_upload_shows_that_the_service_builds_an_environment(tmp_path, slow_service, lines):
    url, let_end = slow_service
    wheel = tmp_path / "shop-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    answers = []
    upload = threading.Thread(
        target=lambda: answers.append(Remote(url=url).upload(wheel=wheel, lock=None))
    )
    upload.start()
    until(lambda: len(lines()) >= 2, "two lines")
    let_end()
    upload.join()

    assert answers == [{"digest": "d"}]
    start = "the service builds the environment of shop-1.0-py3-none-any.whl: "
    assert all(line.startswith(start) for line in lines())
