"""Where the service listens."""

import json
import socket

import pytest

from bicycle_runtime.service_process.main import main
from bicycle_sdk.errors import BicycleError
from bicycle_streams.access.addresses import hosts_of, listen
from bicycle_streams.access.doors import Doors
from bicycle_streams.access.errors import ADDRESS_REFUSED, TLS_INCOMPLETE, TLS_UNUSABLE
from tests.raising import raises


def test_a_listener_says_that_it_is_tcp_so_that_answers_are_sent_at_once():
    with listen("127.0.0.1", 0, missing="TLS") as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_requests_may_call_the_service_by_address_and_as_localhost_with_its_port_only():
    with listen("localhost", 0, missing="TLS") as listener:
        port = listener.getsockname()[1]

        assert hosts_of(listener, "localhost") == [f"127.0.0.1:{port}", f"localhost:{port}"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1"])
def test_an_address_that_others_reach_is_refused(host):
    with raises(ADDRESS_REFUSED):
        listen(host, 0, missing="TLS")


@pytest.mark.parametrize("host", ["no such name", "\0", "a" * 64])
def test_what_is_no_address_is_told(host):
    with pytest.raises(BicycleError):
        listen(host, 0, missing="TLS")


def test_browsers_leave_out_the_usual_port():
    class Listener:
        def getsockname(self):
            return "192.0.2.1", 443

    found = hosts_of(Listener(), "0.0.0.0", names=["Jobs.Example"], is_tls=True)

    assert found[0] == "jobs.example:443"
    assert {"jobs.example", "192.0.2.1", "192.0.2.1:443"} <= set(found)


def test_a_name_may_have_the_port_of_a_proxy():
    class Listener:
        def getsockname(self):
            return "0.0.0.0", 9000

    found = hosts_of(Listener(), "0.0.0.0", names=["Jobs.Example:443", "in.example"], is_tls=True)

    assert found == [
        *("jobs.example:443", "in.example:9000", "0.0.0.0:9000", "localhost:9000"),
        "jobs.example",
    ]


@pytest.mark.parametrize(
    ("doors", "missing"),
    [
        (Doors(tls_cert="a"), "--tls-key"),
        (Doors(tls_key="a"), "--tls-cert"),
        (Doors(tls_client_ca="a"), "--tls-cert"),
        (Doors(tls_cert="a", tls_key="a", tls_client_ca="a"), "--client-role"),
        (Doors(tls_cert="a", tls_key="a", client_roles={"a": "admin"}), "--tls-client-ca"),
    ],
)
def test_an_option_for_tls_that_lacks_another_is_refused(doors, missing):
    with raises(TLS_INCOMPLETE) as caught:
        doors.context()
    assert caught.value.facts["missing"] == missing


def test_a_certificate_that_is_none_is_refused(tmp_path):
    place = str(tmp_path / "cert.pem")
    (tmp_path / "cert.pem").write_text("none")

    for doors in (Doors(tls_cert=place, tls_key=place), Doors(tls_cert="gone", tls_key="gone")):
        with raises(TLS_UNUSABLE):
            doors.context()


def test_an_address_that_others_reach_needs_tls_and_somebody_who_may_come_in(
    tmp_path, certificates, capsys
):
    home = str(tmp_path / "home")
    tls = {
        "tls_cert": str(certificates / "service.pem"),
        "tls_key": str(certificates / "service.key"),
    }

    assert main([home, "0.0.0.0", "0", "{}"]) == 1
    assert "no certificate" in json.loads(capsys.readouterr().err.splitlines()[-1])["message"]
    assert main([home, "0.0.0.0", "0", json.dumps(tls)]) == 1
    assert "no token" in json.loads(capsys.readouterr().err.splitlines()[-1])["message"]
