"""The HTTP sink: bodies and keys, a server that fails, records that it refuses."""

import base64
import json
import pickle
import ssl
import traceback
from dataclasses import dataclass

import pytest

from bicycle_runtime.base.errors import HEADER_UNUSABLE
from bicycle_runtime.connectors.errors import (
    CONNECTOR_OPTION_WRONG,
    HTTP_REFUSED,
    HTTP_UNREACHABLE,
    PublishInterruptedError,
)
from bicycle_runtime.testing import Harness
from bicycle_sdk import Secret
from bicycle_sdk.errors import SecretError, StreamDefinitionError
from bicycle_sdk.sinks import http_sink
from tests.certificates import make_certificates
from tests.raising import raises
from tests.sink_runs import SinkRuns
from tests.unit.connectors.http_server import Server


@dataclass(frozen=True)
class Alarm:
    id: int
    word: str


ALARMS = [Alarm(number, f"word {number}") for number in range(10)]
PLAIN = [{"id": alarm.id, "word": alarm.word} for alarm in ALARMS]


@pytest.fixture
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def sink(server, tmp_path):
    runs = SinkRuns("http", tmp_path, url=server.url, batch_records=4)
    yield runs.start
    runs.stop()


def refused(run):
    letters = run.services.letters.storage
    return [json.loads(line) for n in letters.list("") for line in letters.read(n).splitlines()]


def record_of(letter):
    return pickle.loads(base64.b64decode(letter["value"]))


def test_records_go_in_arrays_with_a_key_for_each_request(server, sink):
    sink().run_epoch([ALARMS[:5], ALARMS[5:]])

    assert [len(body) for _, _, body in server.requests] == [4, 4, 2]
    assert server.records == PLAIN
    keys = [key for key, _, _ in server.requests]
    assert [key.split("-")[-2:] for key in keys] == [
        ["0", "4"], ["4", "4"], ["8", "2"],
    ]  # fmt: skip


def test_a_record_goes_by_itself_or_with_a_key_of_its_own(server, sink):
    sink(body="object", batch_records=1).run_epoch([ALARMS[:2]])
    assert [body for _, _, body in server.requests] == PLAIN[:2]
    server.requests.clear()
    sink(body="keyed", place="two").run_epoch([ALARMS[:2]])

    [(_, _, body)] = server.requests
    assert [each["record"] for each in body] == PLAIN[:2]
    assert len({each["key"] for each in body}) == 2


def test_a_job_sends_what_a_server_takes_and_keeps_what_it_refuses(server, tmp_path):
    server.failures.extend([503, "cut", (429, "0"), "lost"])
    server.refuses = lambda record: record["id"] in (3, 7)

    def job(env):
        sink = http_sink(server.url, batch_records=4, idempotent=True)
        env.from_collection(ALARMS).sink_to(sink).uid("out")

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()

    assert sorted(record["id"] for record in server.records) == [0, 1, 2, 4, 5, 6, 8, 9]


def test_refused_records_are_kept_with_what_the_server_said(server, sink):
    server.refuses = lambda record: record["id"] in (3, 7)
    run = sink()
    run.run_epoch([ALARMS])
    run.publish()
    run.restart()

    found = refused(run)
    assert [record_of(letter)["id"] for letter in found] == [3, 7]
    assert {letter["operator"] for letter in found} == {"out"}
    assert all(f"{server.url} responded with 422: " in letter["message"] for letter in found)
    assert len({letter["key"] for letter in found}) == 2
    assert sorted(record["id"] for record in server.records) == [0, 1, 2, 4, 5, 6, 8, 9]


def test_a_refused_record_ends_the_job_where_that_is_asked_for(server, sink):
    server.refuses = lambda record: record["id"] == 3
    run = sink(on_refused="fail")
    run.seal([ALARMS])
    with raises(HTTP_REFUSED) as caught:
        run.publish()
    assert caught.value.facts["status"] == 422
    server.refuses = lambda _: False
    run.restart()

    assert {record["id"] for record in server.records} == set(range(10))


@pytest.mark.parametrize("status", [301, 401, 404])
def test_an_answer_about_the_address_ends_the_job_and_refuses_no_record(server, sink, status):
    run = sink()
    run.seal([ALARMS])
    server.failures.append(status)
    with raises(HTTP_REFUSED) as caught:
        run.publish()

    assert caught.value.facts["status"] == status
    assert refused(run) == []


def test_an_epoch_that_was_sent_is_not_sent_again_at_a_restart(server, sink):
    run = sink()
    run.run_epoch([ALARMS])
    count = len(server.requests)
    run.restart()
    run.publish()
    assert len(server.requests) == count
    run.run_epoch([ALARMS])

    assert len(server.records) == 20


def test_a_job_of_the_same_savepoint_elsewhere_has_other_keys(server, sink):
    first = sink()
    first.run_epoch([ALARMS])
    second = sink(place="two", state=first.state)
    second.run_epoch([ALARMS])

    assert len(server.records) == 20


def test_a_secret_goes_with_each_request_and_nowhere_else(server, sink, monkeypatch):
    monkeypatch.setenv("TOKEN", "Bearer geheim\n")  # The client would refuse and show it.
    run = sink(headers={"Authorization": Secret.env("TOKEN").to_json(), "X-Team": "a"})
    run.run_epoch([ALARMS])

    assert {found for _, found, _ in server.requests} == {"Bearer geheim"}
    assert "geheim" not in json.dumps(run.state)
    monkeypatch.delenv("TOKEN")
    with pytest.raises(SecretError):
        sink(headers={"Authorization": Secret.env("TOKEN").to_json()})


@pytest.mark.parametrize(
    "secret", ["ge\nheim", "ge\0heim", "ge\x01heim", "ge\x7fheim", " geheim", "geheim ", "gehéim"]
)
def test_a_header_that_cannot_be_sent_is_an_error_without_its_value(server, sink, tmp_path, secret):
    file = tmp_path / "token"
    file.write_bytes(secret.encode())

    with raises(HEADER_UNUSABLE) as caught:
        sink(headers={"Authorization": Secret.file(file).to_json()})
    assert "Authorization" in str(caught.value)
    shown = "".join(traceback.format_exception(caught.value))
    assert secret not in shown
    assert repr(secret)[1:-1] not in shown
    assert not server.requests


def test_a_job_that_must_end_does_not_wait_for_the_server(server, sink):
    run = sink()
    run.seal([ALARMS])
    server.failures.extend([(503, "60")] * 3)
    run.sink.interrupt()

    with raises(PublishInterruptedError):
        run.publish()


def test_a_server_that_takes_nothing_for_too_long_is_an_error(server, sink):
    run = sink(publish_timeout_ms=1_000)
    run.seal([ALARMS])
    server.failures.extend([500] * 50)
    with raises(HTTP_UNREACHABLE) as caught:
        run.publish()
    assert "500" in caught.value.facts["reason"]
    server.failures.clear()
    run.restart()

    assert server.records == PLAIN


@pytest.mark.parametrize(
    "properties",
    [
        {"url": "ftp://ada:geheim@host/x"},
        {"url": "https://ada:geheim@host/x"},
        {"url": "no address"},
        {"body": "object"},
        {"headers": ["a"]},
        {"headers": {"Authorization": {"secret": "geheim"}}},
    ],
)
def test_options_that_cannot_be_are_refused_without_showing_a_password(sink, properties):
    with raises(CONNECTOR_OPTION_WRONG) as caught:
        sink(**properties)
    assert "geheim" not in str(caught.value)


def test_the_call_says_what_the_connector_needs():
    found = http_sink("http://h", headers={"A": Secret.env("T")}, body="object", idempotent=True)

    assert (found.connector_type, found.properties) == (
        "http",
        {
            "url": "http://h", "headers": {"A": {"secret": {"env": "T"}}}, "body": "object",
            "batch_records": 1, "idempotent": True,
        },
    )  # fmt: skip
    with pytest.raises(StreamDefinitionError, match="requires batch_records=1, got 5"):
        http_sink("http://h", body="object", batch_records=5)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("place", ["same", "other"])
def test_a_redirect_is_not_followed_and_its_target_is_named(server, tmp_path, status, place):
    other = Server()
    target = server if place == "same" else other  # The same server would redirect forever.
    address = target.url.replace("//", "//ada:secret@")
    server.failures.append(status)
    server.redirects_to = f"{address}?token=hidden"
    runs = SinkRuns("http", tmp_path, url=server.url, headers={"Authorization": "Bearer ada"})
    run = runs.start()
    run.seal([ALARMS[:2]])
    with raises(HTTP_REFUSED) as caught:
        run.publish()
    runs.stop()
    other.stop()

    assert (len(server.requests), other.requests) == (1, [])
    assert target.url in caught.value.facts["reason"]
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def tls_server(folder, name, *, is_client_asked=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    if is_client_asked:
        context.load_verify_locations(folder / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return Server(tls=context)


def own(name):
    return {"cert_file": f"{name}.pem", "key_file": f"{name}.key"}


# The certificate of the server, whether it asks for one, the options, and the advice.
REFUSALS = {
    "unset": ("service", False, {}, "set ca_file"),
    "wrong-ca": ("service", False, {"ca_file": "stranger.pem"}, "set ca_file"),
    "expired": ("expired", False, {"ca_file": "ca.pem"}, "has expired"),
    "host": ("elsewhere", False, {"ca_file": "elsewhere.pem"}, "another host"),
    "none": ("service", True, {"ca_file": "service.pem"}, "set cert_file and key_file"),
    "stranger": ("service", True, {"ca_file": "service.pem", **own("stranger")}, "rejected"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_tls_handshake_that_fails_names_the_option_and_a_corrected_start_sends(
    certificates, tmp_path, case
):
    name, is_client_asked, words, advice = REFUSALS[case]
    server = tls_server(certificates, name, is_client_asked=is_client_asked)
    runs = SinkRuns("http", tmp_path, url=server.url)
    words = {word: str(certificates / file) for word, file in words.items()}
    with raises(HTTP_UNREACHABLE) as caught:
        runs.start(**words)
    assert advice in caught.value.facts["reason"]

    server.stop()
    server = tls_server(certificates, "service", is_client_asked=True)
    right = {"ca_file": "service.pem", **own("ada")}
    right = {word: str(certificates / file) for word, file in right.items()}
    run = runs.start(**right, url=server.url)
    run.run_epoch([ALARMS])
    runs.stop()
    server.stop()
    assert server.records == PLAIN


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://127.0.0.1:1", {"ca_file": "missing.pem"}),
        ("https://127.0.0.1:1", {"cert_file": "ada.pem", "key_file": "eve.key"}),
        ("http://127.0.0.1:1", {"ca_file": "ca.pem"}),
    ],
)
def test_files_of_tls_that_cannot_be_used_are_refused_before_the_start(
    certificates, tmp_path, url, words
):
    words = {word: str(certificates / file) for word, file in words.items()}
    with raises(CONNECTOR_OPTION_WRONG):
        SinkRuns("http", tmp_path, url=url, **words).start()
