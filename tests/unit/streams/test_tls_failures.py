"""The reason of a refused TLS handshake is read from servers of both versions of TLS."""

import asyncio
import contextlib
import socketserver
import ssl
import threading

import pytest

from bicycle_streams import connect
from bicycle_streams.errors import STREAM_TLS_REFUSED
from bicycle_streams.tls_failures import refused_handshake, tls_hint
from tests.certificates import make_certificates
from tests.raising import raises
from tests.waiting import PATIENCE_S

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@contextlib.contextmanager
def silent_server(folder, version):
    """Ask each client for a certificate, and then be silent until the client goes away."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = version
    context.load_cert_chain(folder / "service.pem", folder / "service.key")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            with (
                contextlib.suppress(OSError),
                context.wrap_socket(self.request, server_side=True) as client,
            ):
                client.recv(1)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def probe(folder, version, client, *, timeout_s):
    context = ssl.create_default_context(cafile=folder / "service.pem")
    if client is not None:
        context.load_cert_chain(folder / f"{client}.pem", folder / f"{client}.key")
    with silent_server(folder, version) as port:
        return refused_handshake("127.0.0.1", port, context, timeout_s=timeout_s)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_accepted_client_does_not_wait_for_a_silent_server(certificates, version):
    assert probe(certificates, version, "ada", timeout_s=3_600) is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("client", "advice"), [(None, "set cert_file and key_file"), ("stranger", "correct cert_file")]
)
def test_a_refused_client_gets_the_reason_of_the_server(certificates, version, client, advice):
    error = probe(certificates, version, client, timeout_s=PATIENCE_S)

    assert advice in tls_hint(error)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("protocol", "more"),
    [("kafka", {"security_protocol": "SSL"}), ("pulsar+ssl", {}), ("rediss", {})],
)
def test_a_program_without_a_certificate_is_told_so(certificates, version, protocol, more):
    options = {"ca_file": str(certificates / "service.pem"), "connect_timeout_ms": 2_000, **more}

    async def scenario(port):
        async with connect(f"{protocol}://localhost:{port}", options):
            raise AssertionError("it must not open")

    with silent_server(certificates, version) as port, raises(STREAM_TLS_REFUSED) as caught:
        asyncio.run(scenario(port))
    assert "set cert_file and key_file" in str(caught.value)
