"""Commits to an Iceberg catalogue that land while the client gets an error."""

import pytest

from bicycle_runtime.base.faults import arm_fault
from tests.lakes.conftest import Iceberg
from tests.lost_answers import LostAnswers
from tests.postgres.postgres_server import PostgresServer


@pytest.fixture(scope="module")
def server():
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def relay(server):
    relay = LostAnswers(server.port)
    yield relay
    relay.close()


@pytest.fixture
def lake(server, relay, tmp_path):
    lake = Iceberg(tmp_path, server.url.replace(str(server.port), str(relay.port)))
    yield lake
    lake.stop()


@pytest.mark.parametrize("answer", [b"", None], ids=["error", "time-out"])
@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "keys": ["id"]}])
def test_a_commit_whose_answer_is_lost_counts_once(lake, relay, options, answer):
    name = f"t{len(options)}{answer is None}".lower()
    run = lake.start(name=name, columns={"id": "int"}, publish_timeout_ms=20_000, **options)
    run.run_epoch([[{"id": 1}]])
    run.seal([[{"id": 2}]])
    arm_fault("transaction_produced", act=lambda: relay.lose(b"COMMIT", answer=answer))
    run.publish()
    run.run_epoch([[{"id": 3}]])

    assert relay.lost_count == 1
    assert sorted(lake.read(name)["id"].to_pylist()) == [1, 2, 3]
