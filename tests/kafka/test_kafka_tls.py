"""Kafka behind TLS with client certificates: what is wrong is named, and no message is lost."""

import asyncio
import ssl
import subprocess
import threading
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient

from bicycle_runtime.cli.parameters import home
from bicycle_runtime.connectors.kafka.errors import KafkaAccessError
from bicycle_runtime.connectors.kafka.settings import ClientProperties
from bicycle_runtime.connectors.kafka.topics import TopicAdmin
from bicycle_runtime.dev.broker_options import BrokerOptions, BrokerSecurity, Keystore
from bicycle_runtime.dev.kafka_broker import KafkaBroker, serves_metadata
from bicycle_streams import connect
from bicycle_streams.errors import STREAM_TLS_REFUSED
from tests.certificates import make_certificates
from tests.kafka.kafka_feeding import feed_secure, source_run, values
from tests.kafka_broker import USERS, create_topic, end
from tests.raising import raises

NAME = "guarded"
PASSWORD = "keystore"
HINT = "has expired, names another host, or is not trusted: .* ssl.ca.location"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = make_certificates(tmp_path_factory.mktemp("certificates"))
    both = (folder / "service.pem").read_text() + (folder / "ca.pem").read_text()
    (folder / "trusted.pem").write_text(both)
    subprocess.run(
        ["openssl", "pkcs12", "-export", "-in", str(folder / "service.pem"),
         "-inkey", str(folder / "service.key"), "-out", str(folder / "service.p12"),
         "-passout", f"pass:{PASSWORD}"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def broker(certificates, tmp_path_factory, guard_broker):
    """A broker that requires a certificate of ``ca``, and a login."""
    keystore = Keystore(
        path=certificates / "service.p12",
        ca_path=certificates / "trusted.pem",
        password=PASSWORD,
    )
    options = BrokerOptions(
        folder=tmp_path_factory.mktemp("kafka"),
        heap_mb=256,
        security=BrokerSecurity(keystore=keystore, users=USERS),
        extra={"listener.name.client.ssl.client.auth": "required"},
    )
    broker = GuardedBroker(options, cache_dir=home().cache_dir)
    broker.files = own_files(certificates)
    guard_broker(broker)
    try:
        broker.start()
        settings = all_settings(broker, certificates)
        create_topic(AdminClient(settings), NAME)
        feed_secure(settings, NAME, [str(number) for number in range(20)])
        yield broker
    finally:
        end(broker)


class GuardedBroker(KafkaBroker):
    """A broker whose start is checked by a client with a certificate."""

    files: dict[str, str]

    def client_settings(self, user=None):
        return {**super().client_settings(user), **self.files}

    def is_answering(self, *_):
        return serves_metadata(self.client_settings(), timeout_s=1)


def own_files(certificates, **changes):
    """Return the settings with the certificate of ada, and with changes."""
    files = {"ssl.certificate.location": "ada.pem", "ssl.key.location": "ada.key", **changes}
    return {name: file and str(certificates / file) for name, file in files.items()}


def all_settings(broker, certificates, **changes):
    """Return the settings of a client with the certificate of ada, and with changes."""
    found = {**broker.client_settings("ada"), **own_files(certificates, **changes)}
    return {name: value for name, value in found.items() if value is not None}


@pytest.fixture
def new_run(broker, certificates, tmp_path):
    """Make runs of the source of a job, by changes of the properties."""
    password = tmp_path / "password"
    password.write_text(USERS["ada"])

    def make(address=None, **changes):
        properties = all_settings(broker, certificates, **changes)
        del properties["bootstrap.servers"]
        properties["sasl.password"] = {"secret": {"file": str(password)}}
        where = broker if address is None else SimpleNamespace(bootstrap=address)
        return source_run(where, tmp_path, topics=[NAME], properties=properties)

    return make


@contextmanager
def serving_tls(certificates, name):
    """Yield the address of a server with a certificate, which does no more than a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")

    class Handshake(BaseRequestHandler):
        def handle(self):
            with (
                suppress(OSError),  # Failed handshakes are wanted.
                context.wrap_socket(self.request, server_side=True) as connection,
            ):
                while connection.recv(1):
                    continue

    class Server(ThreadingTCPServer):
        daemon_threads = True  # Connections end with the clients.

    with Server(("127.0.0.1", 0), Handshake) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_job_that_ran_is_told_of_a_wrong_authority_and_goes_on_once_it_is_right(
    broker, certificates, new_run
):
    run = new_run().start()
    run.poll_for_input()
    run.drain()
    run.stop()
    offsets = dict(run.offsets)

    wrong = new_run(**{"ssl.ca.location": "stranger.pem"})
    wrong.offsets, wrong.state = dict(offsets), run.state
    with pytest.raises(KafkaAccessError, match=HINT):
        wrong.start()

    feed_secure(all_settings(broker, certificates), NAME, ["later"])
    right = new_run()
    right.offsets, right.state = offsets, run.state
    right.start()
    try:
        assert values(right.drain(count=1)) == ["later"]
    finally:
        right.stop()


WITHOUT = {"ssl.certificate.location": None, "ssl.key.location": None}
REQUIRED = "asks for a certificate of the client: set .*ssl.certificate.location"


def test_a_job_without_a_certificate_is_told_so_also_if_it_ran_before(new_run):
    ran = new_run().start()
    ran.poll_for_input()
    ran.drain()
    ran.stop()

    for offsets, state in (({}, {}), (dict(ran.offsets), ran.state)):
        run = new_run(**WITHOUT)
        run.offsets, run.state = offsets, state
        with pytest.raises(KafkaAccessError, match=REQUIRED):
            run.start()


def test_a_sink_without_a_certificate_is_told_so(broker, certificates):
    plain = {**all_settings(broker, certificates, **WITHOUT), "log_level": "0"}
    client = ClientProperties(vertex="out", plain=plain, values={})

    def give_up(reason):
        raise AssertionError(reason)

    with pytest.raises(KafkaAccessError, match=REQUIRED):
        TopicAdmin(client, give_up).partition_count(NAME)


def test_a_program_without_a_certificate_is_told_so(broker, certificates):
    options = {
        "security_protocol": "SASL_SSL",
        "username": "ada",
        "password": USERS["ada"],
        "ca_file": str(certificates / "ca.pem"),
        "sasl_mechanism": "SCRAM-SHA-512",
        "connect_timeout_ms": 3_000,
    }

    async def scenario():
        async with connect(f"kafka://{broker.bootstrap}", options):
            raise AssertionError("it must not open")

    with raises(STREAM_TLS_REFUSED) as caught:
        asyncio.run(scenario())
    assert "set cert_file and key_file" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "authority"), [("expired", "ca.pem"), ("elsewhere", "elsewhere.pem")]
)
def test_a_server_with_a_wrong_certificate_is_told(new_run, certificates, name, authority):
    with serving_tls(certificates, name) as address:
        run = new_run(address, **{"ssl.ca.location": authority})
        with pytest.raises(KafkaAccessError, match=HINT):
            run.start()
