"""Commits of Delta tables in S3 that land while the client gets an error, a time-out or a 503."""

import pytest
from deltalake import DeltaTable

from tests.lost_answers import LostAnswers
from tests.sink_runs import SinkRuns

UNAVAILABLE = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture
def relay(server, monkeypatch):
    relay = LostAnswers(server.port)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_TIMEOUT", "5s")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{relay.port}")
    yield relay
    relay.close()


@pytest.mark.parametrize("answer", [b"", None, UNAVAILABLE], ids=["error", "time-out", "503"])
@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "keys": ["id"]}])
def test_a_commit_whose_answer_is_lost_counts_once(bucket, relay, tmp_path, answer, options):
    runs = SinkRuns("delta", tmp_path, roll_rows=1)
    url = f"s3://{bucket}/table"
    run = runs.start(path=url, columns={"id": "int"}, **options)
    run.run_epoch([[{"id": 1}]])
    version = DeltaTable(url).version() + 1
    run.seal([[{"id": 2}]])
    relay.lose(f"PUT /{bucket}/table/_delta_log/{version:020}.json".encode(), answer=answer)
    run.publish()
    run.run_epoch([[{"id": 3}]])
    runs.stop()

    assert relay.lost_count == 1
    assert sorted(DeltaTable(url).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]
