import random
import socket
from pathlib import Path

import pytest

from bicycle_runtime.dev.ports import choose_port, is_free

HOST = "127.0.0.1"


def test_a_chosen_port_is_free_and_never_given_to_an_outgoing_connection():
    outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])

    ports = [choose_port(HOST, random.Random(seed)) for seed in range(50)]

    assert all(is_free(HOST, port) for port in ports)
    assert all(20_000 <= port < max(outgoing, 20_001) for port in ports)


def test_a_port_with_a_listener_is_not_free():
    with socket.create_server((HOST, 0)) as listener:
        assert not is_free(HOST, listener.getsockname()[1])


def test_a_taken_port_is_passed_over():
    first = choose_port(HOST, random.Random(1))

    with socket.create_server((HOST, first)):
        assert choose_port(HOST, random.Random(1)) != first


def test_the_port_beside_is_passed_over():
    first = choose_port(HOST, random.Random(1))

    assert choose_port(HOST, random.Random(1), besides=first) != first


def test_a_machine_without_free_ports_is_told_so():
    with pytest.raises(OSError, match="no free port"):
        choose_port("192.0.2.1", random.Random(1))  # Not an address of any machine.
