"""A pipeline is a job like any other: submitted, looked at, saved, restored with another text."""

import json
import socket
import urllib.request

import pytest

from tests.spark.cli_process import Bicycle
from tests.waiting import until

pytestmark = pytest.mark.spark

TEXT = """
on_error = "dead_letter"

[source]
kind = "file"
path = "{folder}/in.jsonl"
time_field = "at"
fields = {{ at = "int", page = "string", ms = "int" }}
follow = {follow}

[[steps]]
operator = "map"
set = {{ page = "lower(page)", share = "1000 / ms" }}

[window]
type = "tumbling"
size = "1m"

[ops]
count_by = "page"

[sink]
kind = "file"
out_dir = "{folder}/out"
"""


@pytest.fixture
def bicycle(tmp_path, spark_cache):
    bicycle = Bicycle(tmp_path / "home", tmp_path / "site", spark_cache)
    yield bicycle
    bicycle.kill_jobs()


def append(folder, *rows):
    with (folder / "in.jsonl").open("a") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def counts_in(folder):
    lines = [line for path in folder.rglob("*.jsonl") for line in path.read_text().splitlines()]
    rows = map(json.loads, lines)
    return sorted((row["window_start_ms"], row["page"], row["count"]) for row in rows)


def test_a_pipeline_is_submitted_saved_edited_and_its_dead_letters_replayed(bicycle, tmp_path):
    file = tmp_path / "clicks.toml"
    file.write_text(TEXT.format(folder=tmp_path, follow="true"))
    append(
        tmp_path,
        {"at": 0, "page": "A", "ms": 10},
        {"at": 1, "page": "b", "ms": 0},  # Has no share.
        {"at": 2, "page": "a", "ms": 5},
    )
    place = ["--checkpoint-dir", str(tmp_path / "checkpoints")]
    bicycle.answer("submit", str(file), "--name", "clicks", "--retained-epochs", "9", *place)
    bicycle.wait_until("clicks", lambda status: status["record_count"] == 3)

    (letter,) = until(lambda: bicycle.answer("dlq", "list", "clicks")["items"], "a dead letter")
    assert letter["operator"] == "map-1"
    again = bicycle.answer("dlq", "replay", "clicks", "--operator", "map-1")
    saved = bicycle.answer("savepoint", "create", "clicks", "--name", "before")
    replayed = bicycle.answer("replay", "clicks", "--epoch", "1", *place)
    assert bicycle.answer("stop", "clicks")["state"] == "STOPPED"
    assert counts_in(tmp_path / "out") == []
    assert len(again["letters"]) == 1
    assert replayed

    edited = TEXT.replace("1000 / ms", "case when ms = 0 then 0 else 1000 / ms end")
    file.write_text(edited.format(folder=tmp_path, follow="false"))
    append(tmp_path, {"at": 60_000, "page": "B", "ms": 1})
    done = bicycle.answer(
        "run", "--config", str(file), "--name", "edited", "--from", saved["url"], *place
    )

    assert done["state"] == "FINISHED"
    # What the savepoint holds goes on under the same ids, and with it two records of the window.
    assert counts_in(tmp_path / "out") == [(0, "a", 2), (60_000, "b", 1)]


def test_a_run_tells_its_figures_at_a_port(bicycle, tmp_path):
    file = tmp_path / "clicks.toml"
    file.write_text(TEXT.format(folder=tmp_path, follow="true"))
    append(tmp_path, {"at": 0, "page": "A", "ms": 10})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    process = bicycle.start("run", "-c", str(file), "--name", "told", "--http-port", str(port))

    def told():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                return 'pulse_operator_records_total{job="told"' in answer.read().decode()
        except OSError:  # It is not there yet.
            return False

    try:
        until(told, "the figures of the operators")
    finally:
        process.terminate()
        _, stderr = process.communicate()
    assert process.returncode == 0, stderr
