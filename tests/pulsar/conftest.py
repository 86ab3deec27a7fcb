"""One server for all tests here; each test has streams of its own."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pulsar.pulsar_server import PulsarServer

_numbers = itertools.count()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``service.pem`` and ``service.key``, of RSA: Pulsar reads no other keys."""
    folder = tmp_path_factory.mktemp("certificates")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", str(folder / "service.key"), "-out", str(folder / "service.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def one_pulsar(certificates: Path) -> Iterator[PulsarServer]:
    server = PulsarServer(certificates)
    yield server
    server.remove()


@pytest.fixture
def pulsar_server(one_pulsar: PulsarServer) -> PulsarServer:
    """The server, up."""
    one_pulsar.start()
    return one_pulsar


@pytest.fixture
def new_key() -> Callable[[str], str]:
    """Give names of streams that no other test has."""
    number = next(_numbers)
    return lambda name: f"{name}-{number}"
