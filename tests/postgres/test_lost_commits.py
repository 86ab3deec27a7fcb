"""Commits of the PostgreSQL sink that land while the client gets an error."""

import pytest

from bicycle_runtime.base.faults import arm_fault, disarm_faults
from tests.lost_answers import LostAnswers
from tests.sink_runs import SinkRuns

COLUMNS = {"columns": {"id": "int", "name": "str"}}


@pytest.fixture
def relay(server):
    relay = LostAnswers(server.port)
    yield relay
    relay.close()


@pytest.fixture
def sink(server, table, relay, tmp_path):
    runs = SinkRuns("postgres", tmp_path)
    url = server.url.replace(str(server.port), str(relay.port))

    def start(**properties):
        return runs.start(url=url, table=table, create_table=True, **COLUMNS, **properties)

    yield start
    disarm_faults()
    runs.stop()


@pytest.mark.parametrize("answer", [b"", None], ids=["error", "time-out"])
@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "keys": ["id"]}])
def test_a_commit_whose_answer_is_lost_counts_once(server, sink, relay, table, options, answer):
    run = sink(publish_timeout_ms=20_000, **options)
    run.run_epoch([[{"id": 1, "name": "a"}]])
    run.seal([[{"id": 2, "name": "b"}]])
    arm_fault("transaction_marked", act=lambda: relay.lose(b"COMMIT", answer=answer))
    run.publish()
    run.run_epoch([[{"id": 3, "name": "c"}]])

    assert relay.lost_count == 1
    assert server.query(f"select * from {table} order by id") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_commit_whose_answer_is_lost_with_the_server_counts_once(server, sink, relay, table):
    run = sink()
    run.seal([[{"id": 1, "name": "a"}]])
    arm_fault("transaction_marked", act=lambda: relay.lose(b"COMMIT"))
    run.publish()
    server.kill()
    server.start()
    run.restart()
    run.publish()

    assert relay.lost_count == 1
    assert server.query(f"select * from {table}") == [(1, "a")]
