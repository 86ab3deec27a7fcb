"""The service on an address that others reach: over TLS, to those who say who they are."""

import http.client
import json
import signal
import socket
import ssl
import stat
import warnings
from urllib.parse import urlsplit

import pytest

from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.roles import Role
from bicycle_streams.access.tokens import tokens_of
from tests.unit.service_process.served import Served
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def served(tmp_path_factory, certificates):
    folder = tmp_path_factory.mktemp("tls") / "home"
    found = Served(
        folder, "0.0.0.0", names=["localhost"], tls_cert=str(certificates / "service.pem"),
        tls_key=str(certificates / "service.key"), tls_client_ca=str(certificates / "ca.pem"),
        client_roles={"ada": "operator"},
    )  # fmt: skip
    with tokens_of(folder, SystemClock()) as tokens:
        _, found.token = tokens.create("bob", role=Role.VIEWER, lifetime_ms=10**8, by="test")
    found.start()
    yield found
    found.end(signal.SIGKILL)


def ask(served, certificates, method, path, client=None, **headers):
    context = ssl.create_default_context(cafile=str(certificates / "service.pem"))
    if client is not None:
        context.load_cert_chain(certificates / f"{client}.pem", certificates / f"{client}.key")
    port = urlsplit(served.url).port
    line = http.client.HTTPSConnection("localhost", port, timeout=PATIENCE_S, context=context)
    sent = {name.replace("_", "-"): text for name, text in headers.items()}
    try:
        line.request(method, path, b"{}" if method == "POST" else None, sent)
        answer = line.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        line.close()


def test_nobody_is_let_in_without_a_token_or_a_certificate(served, certificates):
    code, headers, data = ask(served, certificates, "GET", "/api/v1/jobs")

    assert served.url.startswith("https://localhost:")
    assert (code, json.loads(data)["code"]) == (401, "BIC-2320")
    assert headers["strict-transport-security"] == "max-age=31536000"
    assert ask(served, certificates, "GET", "/health")[0] == 200
    token = f"Bearer {served.token}"
    assert ask(served, certificates, "GET", "/api/v1/jobs", authorization=token)[0] == 200


def test_a_client_with_a_certificate_has_the_role_of_its_name(served, certificates):
    post = {"content_type": "application/json"}

    assert ask(served, certificates, "GET", "/api/v1/jobs", "ada")[0] == 200
    assert ask(served, certificates, "POST", "/api/v1/jobs/none/stop", "ada", **post)[0] == 404
    assert ask(served, certificates, "GET", "/api/v1/audit", "ada")[0] == 403
    assert ask(served, certificates, "GET", "/api/v1/jobs", "eve")[0] == 401


def test_a_certificate_of_somebody_else_s_making_is_refused(served, certificates):
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        ask(served, certificates, "GET", "/api/v1/jobs", "stranger")


def test_plain_http_and_old_tls_get_no_answer(served, certificates):
    port = urlsplit(served.url).port
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as line:
        line.sendall(b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" not in line.recv(100)
    old = ssl.create_default_context(cafile=str(certificates / "service.pem"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # That it is old is the point.
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE_S) as line,
        pytest.raises((ssl.SSLError, OSError)),
    ):
        old.wrap_socket(line, server_hostname="localhost")


def test_the_database_with_tokens_is_readable_by_its_owner_only(served):
    mode = (served.home.path / "service/control.db").stat().st_mode

    assert stat.S_IMODE(mode) == 0o600
