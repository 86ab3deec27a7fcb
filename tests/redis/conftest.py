"""One server for all tests of a file; each test has an empty one."""

import pytest

from tests.certificates import make_certificates
from tests.redis.redis_server import RedisServer


@pytest.fixture(scope="module")
def one_server():
    server = RedisServer()
    yield server
    server.remove()


@pytest.fixture
def server(one_server):
    one_server.start()
    with one_server.client as client:
        client.flushall()
    return one_server


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))
