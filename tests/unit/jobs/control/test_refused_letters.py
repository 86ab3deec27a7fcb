"""Records that an HTTP server refused are dead letters: listed, shown, and replayed by command."""

import base64
import json
import pickle

import pytest
from click.testing import CliRunner

from bicycle_runtime.cli.root import main
from bicycle_runtime.jobs.control.dead_letters import dead_letters
from bicycle_runtime.jobs.status import JobState
from tests.unit.connectors.http_server import Server
from tests.unit.jobs.running.light_jobs import LightJob
from tests.waiting import until

JOB = """
from bicycle_sdk import StreamEnvironment, bicycle_plugin
from bicycle_sdk.sinks import http_sink

@bicycle_plugin(name="alarms", version="1.0.0")
def alarms(env: StreamEnvironment) -> None:
    alarms = env.read_jsonl("FOLDER/in.jsonl", follow=True)
    alarms.sink_to(http_sink("URL", idempotent=True)).uid("hook")
"""


@pytest.fixture
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def job(tmp_path, server):
    server.refuses = lambda record: record["id"] % 2
    file = tmp_path / f"alarms_{tmp_path.name}.py"
    file.write_text(JOB.replace("FOLDER", str(tmp_path)).replace("URL", server.url))
    lines = (json.dumps({"id": number, "word": "é"}) for number in range(4))
    (tmp_path / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
    job = LightJob(tmp_path, str(file), options={"follow": True})
    running = job.start()
    until(lambda: running.done() or len(letters_of(job)) == 2, "the letters")
    yield job
    if running.done():
        running.result()
    job.end(running)


def letters_of(job):
    status = job.home.folder("job").status()
    if status is None or status.state is not JobState.RUNNING:
        return []
    return dead_letters(job.home, "job")[0]


def test_commands_show_and_replay_what_a_server_refused(job, server, monkeypatch):
    monkeypatch.setenv("BICYCLE_HOME", str(job.home.path))

    def run(*words):
        result = CliRunner().invoke(main, ["dlq", *words, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    listed = run("list", "job", "--operator", "hook")["items"]
    shown = run("show", "job", listed[0]["id"], "--reveal")
    server.refuses = lambda record: record["id"] == 3
    done = run("replay", "job", "--all")
    until(lambda: len(letters_of(job)) == 3, "the letter of the record that is refused again")
    again = letters_of(job)
    server.refuses = lambda _: False
    run("replay", "job", "--all")
    until(lambda: len(server.records) == 4, "the last record")

    assert {each["plugin"] for each in listed} == {"alarms"}
    assert all(each["plugin_version"] for each in listed)
    assert f"{server.url} responded with 422: " in shown["message"]
    assert pickle.loads(base64.b64decode(shown["value"])) == {"id": 3, "word": "é"}
    assert sorted(done["letters"]) == sorted(each["id"] for each in listed)
    assert sum(each.replayed_epoch is None for each in again) == 1
    assert all(each.replayed_epoch for each in letters_of(job))
    assert sorted(record["id"] for record in server.records) == [0, 1, 2, 3]
