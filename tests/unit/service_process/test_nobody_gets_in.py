"""What somebody tries who wants in: each at the real process, as bytes on a socket."""

import json
import re
import signal
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState
from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.roles import Role
from bicycle_streams.access.tokens import tokens_of
from tests.unit.jobs.job_samples import put_job
from tests.unit.service_process.served import Served
from tests.waiting import PATIENCE_S

REQUIRED = {
    "content-security-policy", "x-content-type-options", "referrer-policy",
    "cross-origin-opener-policy", "cross-origin-resource-policy", "cache-control",
}  # fmt: skip


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    home = tmp_path_factory.mktemp("door") / "home"
    put_job(Home(home), "job", state=JobState.FINISHED, ended_ms=1)
    found = Served(home, needs_login=True)
    with tokens_of(home, SystemClock()) as tokens:
        _, found.token = tokens.create("root", role=Role.ADMIN, lifetime_ms=10**8, by="test")
    found.start()
    found.host = urlsplit(found.url).netloc
    yield found
    found.end(signal.SIGKILL)


def raw(door, data, *, is_last=True):
    """Send bytes, and return all that comes back until the other side closes.

    With ``is_last`` it is told that no more comes, so that nobody waits for the rest of a request.
    """
    port = urlsplit(door.url).port
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as line:
        line.sendall(data)
        if is_last:
            line.shutdown(socket.SHUT_WR)
        found = b""
        while piece := line.recv(1 << 16):
            found += piece
        return found


def head(door, method="GET", path="/api/v1/jobs", *more):
    lines = [f"{method} {path} HTTP/1.1", f"Host: {door.host}", *more, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def codes(answer):
    return [int(each) for each in re.findall(rb"HTTP/1\.1 (\d{3})", answer)]


def bearer(door):
    return f"Authorization: Bearer {door.token}"


def test_a_good_token_gets_in_by_the_same_way_that_the_attacks_below_take(door):
    assert codes(raw(door, head(door, "GET", "/api/v1/jobs", bearer(door)))) == [200]


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1", "localhost:1", "evil.example#@{host}", "{host}.evil.example",
     "{host}, evil.example", "", "\u00ff", "user@{host}", "[::1]:1", "{host}\tevil"],
)  # fmt: skip
def test_a_foreign_host_is_refused_before_anybody_is_asked_who_they_are(door, host):
    name = host.replace("{host}", door.host)
    sent = f"GET /api/v1/jobs HTTP/1.1\r\nHost: {name}\r\n{bearer(door)}\r\n\r\n"

    assert codes(raw(door, sent.encode("latin-1"))) in ([403], [400])


def test_two_hosts_or_none_are_refused(door):
    twice = head(door, "GET", "/api/v1/jobs", "Host: evil.example", bearer(door))
    none = f"GET /api/v1/jobs HTTP/1.1\r\n{bearer(door)}\r\n\r\n".encode()

    assert codes(raw(door, twice)) == [400]
    assert codes(raw(door, none)) == [400]


@pytest.mark.parametrize(
    "more",
    [["Origin: https://evil.example"], ["Origin: null"], ["Sec-Fetch-Site: cross-site"],
     ["Sec-Fetch-Site: same-site"], ["Origin: http://{host}.evil.example"],
     ["Origin: http://{host}", "Sec-Fetch-Site: cross-site"], ["Origin: https://{host}"]],
    ids=str,
)  # fmt: skip
def test_a_page_of_others_changes_nothing_even_with_a_good_token(door, more):
    lines = [line.replace("{host}", door.host) for line in more]
    for path, kind in (("/api/v1/jobs/job/stop", "application/json"), ("/bulk/stop", "text/plain")):
        sent = head(
            door, "POST", path, f"Content-Type: {kind}", "Content-Length: 2", bearer(door), *lines
        )  # fmt: skip
        assert codes(raw(door, sent + b"{}")) == [403]


def test_a_form_of_a_foreign_page_cannot_be_taken_for_json(door):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        sent = head(
            door, "POST", "/api/v1/jobs/job/stop", f"Content-Type: {kind}", "Content-Length: 2",
            bearer(door),
        )  # fmt: skip
        assert codes(raw(door, sent + b"{}")) == [415]


@pytest.mark.parametrize(
    "name",
    ["..", "../..", "..%2f..%2fservice", "%2e%2e", "..%2f", "%2fetc%2fpasswd", "..%5c..", "job%00",
     "job%0d%0aX-Evil:%201", "....//", "%c0%ae%c0%ae", "job/../../service", "~root", "%ff"],
)  # fmt: skip
def test_a_path_in_an_id_leads_nowhere(door, name):
    for path in (f"/api/v1/jobs/{name}", f"/api/v1/jobs/{name}/logs", f"/jobs/{name}",
                 f"/jobs/{name}/logs", f"/static/{name}"):  # fmt: skip
        sent = head(door, "GET", path, bearer(door), "Connection: close")
        found = raw(door, sent, is_last=False)
        [code] = codes(found)
        is_ours = f"location: {door.url}/".encode() in found.lower()  # Without the last slash.
        assert code in (400, 404) or (code == 307 and is_ours), (path, found)
        assert b"\nX-Evil" not in found
        assert b"root:" not in found


SMUGGLED = "GET /api/v1/audit HTTP/1.1\r\nHost: {host}\r\n\r\n"


@pytest.mark.parametrize(
    "lines",
    [["Content-Length: 4", "Content-Length: 40"], ["Content-Length: 4, 40"],
     ["Transfer-Encoding: xchunked"], ["Transfer-Encoding: chunked, identity"],
     ["Transfer-Encoding: \x0bchunked"], ["Transfer-Encoding : chunked"],
     ["Content-Length: +4"], ["Content-Length: 0x4"], ["Content-Length: -1"],
     [" Content-Length: 4"], ["X: a\rContent-Length: 4"], ["X: a\nTransfer-Encoding: chunked\0"],
     ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"]],
    ids=repr,
)  # fmt: skip
def test_odd_headers_smuggle_no_second_request(door, lines):
    inner = SMUGGLED.replace("{host}", door.host)
    body = f"0\r\n\r\n{inner}"
    sent = head(
        door, "POST", "/api/v1/jobs/job/stop", "Content-Type: application/json", *lines
    ) + body.encode()  # fmt: skip

    found = codes(raw(door, sent))

    assert found
    assert set(found) <= {400, 401, 413, 501}
    assert 200 not in found


def test_a_length_beside_chunks_does_not_carry_a_second_request(door):
    inner = head(door, "GET", "/api/v1/audit", bearer(door))
    lines = ["Content-Type: application/json", "Content-Length: 5", "Transfer-Encoding: chunked"]
    sent = head(door, "POST", "/api/v1/jobs/none/stop", bearer(door), *lines)

    chunk = b"%x\r\n" % len(inner) + inner + b"\r\n0\r\n\r\n"
    last = head(door, "GET", "/health", "Connection: close")

    found = raw(door, sent + chunk + last, is_last=False)

    assert codes(found) in ([400], [400, 200], [404, 200])
    assert b'"items"' not in found


@pytest.mark.parametrize(
    "line",
    ["Authorization: Bearer", "Authorization: Bearer \x7f", "Authorization: Bearer bic_%_%",
     "Authorization: Basic cm9vdDpyb290", "Authorization: Bearer " + "A" * 8_000,
     "Cookie: bicycle-9000=a; bicycle-9000=b", "Cookie: " + "a=b; " * 1_500, "Cookie: ;;;=",
     "Cookie: bicycle-9000=\"\\000\"", "Cookie: \u00e9=\u00e9", "X-Forwarded-For: 127.0.0.1",
     "X-Forwarded-Proto: https", "X-Original-URL: /health", "X-HTTP-Method-Override: GET",
     "Forwarded: for=127.0.0.1", "X-Rewrite-Url: /login"],
    ids=lambda line: line[:40],
)  # fmt: skip
def test_no_header_lets_anybody_in(door, line):
    found = raw(door, head(door, "GET", "/api/v1/jobs", line))

    assert codes(found) in ([401], [429], [400])


@pytest.mark.parametrize(
    "path",
    ["//api/v1/jobs", "/API/v1/jobs", "/api/v1/jobs/", "/health/../api/v1/jobs", "/login/api/v1",
     "/static/../api/v1/jobs", "/static/%2e%2e/api/v1/jobs", "/health;/api/v1/jobs",
     "/api/v1/jobs%3f", "/login%2f..%2fapi", "/metrics", "/api/openapi.json", "/live/dashboard"],
)  # fmt: skip
def test_no_spelling_of_a_path_goes_round_the_door(door, path):
    found = raw(door, head(door, "GET", path))

    assert codes(found)[0] in (401, 404)
    assert b'"items"' not in found


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "OPTIONS", "PUT", "PATCH", "get", "X" * 99])
def test_other_methods_do_nothing(door, method):
    path = door.host if method == "CONNECT" else "/api/v1/jobs"

    assert codes(raw(door, head(door, method, path)))[0] in (400, 401, 403, 405, 415)


def test_a_head_without_end_is_refused_once_it_is_too_long(door):
    for sent in (b"GET /" + b"a" * 20_000, head(door, "GET", "/health")[:-2] + b"X: " * 7_000):
        assert codes(raw(door, sent, is_last=False)) == [400]


def test_many_open_connections_leave_it_answering(door):
    port = urlsplit(door.url).port
    lines = [socket.create_connection(("127.0.0.1", port), PATIENCE_S) for _ in range(60)]
    try:
        for line in lines:
            line.sendall(b"GET /health HTTP/1.1\r\nHost: ")
        assert door.ask("GET", "/health")[0] == 200
    finally:
        for line in lines:
            line.close()


def test_a_head_that_never_ends_is_cut_off(door):
    port = urlsplit(door.url).port
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: ")

        assert line.recv(100) == b""


def test_a_revoked_token_is_refused_though_another_process_revoked_it(door):
    with tokens_of(door.home.path, SystemClock()) as tokens:
        entry, text = tokens.create("eve", role=Role.ADMIN, lifetime_ms=10**8, by="test")
        assert door.ask("GET", "/api/v1/jobs", authorization=f"Bearer {text}")[0] == 200
        tokens.revoke(entry.id, by="test")

    replays = [door.ask("GET", "/api/v1/jobs", authorization=f"Bearer {text}") for _ in range(3)]

    assert {code for code, _, _ in replays} <= {401, 429}


def test_every_answer_has_the_headers_and_lets_no_page_of_others_read_it(door):
    for path in ("/", "/login", "/health", "/api/v1/jobs", "/nothing", "/metrics", "/static/x"):
        for token in ({}, {"authorization": f"Bearer {door.token}"}):
            _, headers, _ = door.ask("GET", path, origin="https://evil.example", **token)
            assert headers.keys() >= REQUIRED, path
            assert "unsafe" not in headers["content-security-policy"]
            assert not [name for name in headers if name.startswith("access-control")]
            assert "server" not in headers


def test_two_at_once_with_one_revoked_do_not_get_each_others_answer(door):
    good = {"authorization": f"Bearer {door.token}"}
    found = []

    def ask(words):
        found.append((bool(words), door.ask("GET", "/api/v1/cluster", **words)[0]))

    threads = [threading.Thread(target=ask, args=(good if n % 2 else {},)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert set(found) == {(True, 200), (False, 401)}


def test_the_log_and_the_command_line_of_the_service_hold_no_token(door):
    secret = door.token.split("_", 2)[2].encode()
    log = (door.home.path / "served.log").read_bytes()
    line = Path(f"/proc/{door.process.pid}/cmdline").read_bytes()

    assert secret not in log + line
    assert door.token not in json.dumps(
        door.ask("GET", "/api/v1/audit", authorization=f"Bearer {door.token}")[2].decode()
    )
