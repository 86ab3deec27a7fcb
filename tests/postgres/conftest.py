"""One server for all tests of a file; each test has a table of its own."""

import itertools

import pytest

from tests.postgres.postgres_server import PostgresServer

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server():
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def table():
    return f"rows_{next(_numbers)}"
