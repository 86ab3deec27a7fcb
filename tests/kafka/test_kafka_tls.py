"""Kafka behind TLS with client certificates: what is wrong is named, and no message is lost."""

import asyncio
import ssl
import subprocess
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from bicycle_runtime.connectors.kafka.errors import KafkaAccessError
from bicycle_runtime.dev.broker_options import BrokerSecurity, Keystore
from tests.certificates import make_certificates
from tests.kafka.kafka_feeding import feed_secure, source_run, values
from tests.kafka_broker import USERS, broker_in, create_topic, end

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
    """A broker that asks for a certificate of ``ca``, and for a login."""
    keystore = Keystore(
        path=certificates / "service.p12",
        ca_path=certificates / "trusted.pem",
        password=PASSWORD,
    )
    broker = broker_in(
        tmp_path_factory.mktemp("kafka"),
        security=BrokerSecurity(keystore=keystore, users=USERS),
    )
    guard_broker(broker)
    try:
        broker.start()
        settings = all_settings(broker, certificates)
        admin = AdminClient(settings)
        create_topic(admin, NAME)
        require_certificates(admin)
        feed_secure(settings, NAME, [str(number) for number in range(20)])
        yield broker
    finally:
        end(broker)


def require_certificates(admin):
    """Require client certificates of the broker, whose start is probed without one."""
    name = "listener.name.client.ssl.client.auth"
    entry = ConfigEntry(name, "required", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    [future] = admin.incremental_alter_configs([wanted]).values()
    future.result(30)


def all_settings(broker, certificates, **changes):
    """Return the settings of a client with the certificate of ada, and with changes."""
    files = {"ssl.certificate.location": "ada.pem", "ssl.key.location": "ada.key", **changes}
    found = {**broker.client_settings("ada"), **files}
    paths = {name: str(certificates / file) for name, file in files.items() if file is not None}
    return {name: value for name, value in {**found, **paths}.items() if value is not None}


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

    async def whole(started, stop):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)  # Failed handshakes are wanted.
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
        ended = asyncio.Event()
        stop.append(lambda: loop.call_soon_threadsafe(ended.set))
        started.append(server.sockets[0].getsockname()[1])
        ready.set()
        await ended.wait()
        server.close()

    started, stop, ready = [], [], threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(whole(started, stop)), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield f"127.0.0.1:{started[0]}"
    finally:
        stop[0]()
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


@pytest.mark.parametrize(
    ("name", "authority"), [("expired", "ca.pem"), ("elsewhere", "elsewhere.pem")]
)
def test_a_server_with_a_wrong_certificate_is_told(new_run, certificates, name, authority):
    with serving_tls(certificates, name) as address:
        run = new_run(address, **{"ssl.ca.location": authority})
        with pytest.raises(KafkaAccessError, match=HINT):
            run.start()
