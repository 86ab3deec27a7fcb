"""An Iceberg table whose catalogue is in a PostgreSQL server that is killed between commits."""

from threading import Timer

import pytest

from bicycle_runtime.connectors.errors import LAKE_UNREACHABLE
from bicycle_sdk import Secret
from tests.lakes.conftest import Iceberg
from tests.postgres.postgres_server import PostgresServer
from tests.raising import raises

COLUMNS = {"columns": {"id": "int"}}


@pytest.fixture(scope="module")
def server():
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def lake(server, tmp_path):
    lake = Iceberg(tmp_path, server.url)
    yield lake
    server.start()
    lake.stop()


def ids(lake):
    return sorted(lake.read()["id"].to_pylist())


def test_rows_are_committed_through_a_server_that_is_away_meanwhile(server, lake):
    run = lake.start(**COLUMNS)
    run.run_epoch([[{"id": 1}]])
    run.seal([[{"id": 2}]])
    server.kill()
    back = Timer(1.0, server.start)
    back.start()
    run.publish()
    back.join()
    run.restart()
    run.run_epoch([[{"id": 3}]])

    assert ids(lake) == [1, 2, 3]


def test_a_password_is_taken_from_where_its_reference_says(server, lake, monkeypatch):
    server.query("drop role if exists eve")
    server.query("create role eve login superuser password 'open sesame'")
    address = server.url.replace("ada@", "eve@")
    password = Secret.env("SESAME").to_json()
    properties = {"catalog": address, "catalog_password": password, **COLUMNS}
    monkeypatch.setenv("SESAME", "open sesame")
    lake.start(name="b", **properties).run_epoch([[{"id": 1}]])
    assert lake.read("b").num_rows == 1
    monkeypatch.setenv("SESAME", "wrong")

    with raises(LAKE_UNREACHABLE) as caught:
        lake.start(name="b", **properties)
    assert "open sesame" not in str(caught.value)
