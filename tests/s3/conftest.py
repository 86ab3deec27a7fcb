"""One S3 server for all tests here, which start it; each test has a bucket of its own."""

from __future__ import annotations

import itertools

import pytest

from bicycle_runtime.base.remote_storage import file_system
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.cli.parameters import home
from tests.s3.s3_server import KEY, SECRET, S3Server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def running_server(tmp_path_factory):
    server = S3Server(tmp_path_factory.mktemp("s3"), home().cache_dir)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def server(running_server, monkeypatch):
    """The server, up, with credentials for it in the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", running_server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    yield running_server
    running_server.resume()
    if not running_server.is_up():
        running_server.start()


@pytest.fixture
def bucket(server):
    name = f"bucket-{next(_numbers)}"
    server.make_bucket(name)
    return name


@pytest.fixture
def storage(bucket):
    """A storage that is patient for a short time only."""
    return open_storage(f"s3://{bucket}/jobs/wordcount", patience_s=1)


@pytest.fixture
def asked(storage):
    """The operations that the server is asked for, by name, from now on."""
    names = []
    events = file_system(storage.url).s3.meta.events

    def note(model, **_):
        names.append(model.name)

    events.register("before-call.s3", note)
    yield names
    events.unregister("before-call.s3", note)
