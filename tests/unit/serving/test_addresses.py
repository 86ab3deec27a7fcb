"""Where the service listens."""

import socket

import pytest

from bicycle_runtime.serving.addresses import hosts_of, listen
from bicycle_runtime.serving.errors import ADDRESS_REFUSED
from bicycle_sdk.errors import BicycleError
from tests.raising import raises


def test_a_listener_says_that_it_is_tcp_so_that_answers_are_sent_at_once():
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_requests_may_call_the_service_by_address_and_as_localhost_with_its_port_only():
    with listen("localhost", 0) as listener:
        port = listener.getsockname()[1]

        assert hosts_of(listener, "localhost") == [f"127.0.0.1:{port}", f"localhost:{port}"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1"])
def test_an_address_that_others_reach_is_refused(host):
    with raises(ADDRESS_REFUSED):
        listen(host, 0)


@pytest.mark.parametrize("host", ["no such name", "\0", "a" * 64])
def test_what_is_no_address_is_told(host):
    with pytest.raises(BicycleError):
        listen(host, 0)
