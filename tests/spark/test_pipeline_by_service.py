"""A file sent to a service: its job on Spark survives a kill of the service."""

import json
import signal

import grpc
import pytest
from click.testing import CliRunner

from bicycle_runtime.api.rpc.calls import JobManagerStub
from bicycle_runtime.api.rpc.generated import jobmanager_pb2 as shapes
from bicycle_runtime.cli.root import main
from bicycle_runtime.service.address import read_address
from tests.unit.jobs.upgrading.versions import Site
from tests.unit.service_process.served import Served
from tests.waiting import until

pytestmark = pytest.mark.spark

PIPELINE = """
name = "tally"
[source]
kind = "file"
path = "{input}"
[ops]
count_by = "word"
[sink]
kind = "file"
out_dir = "{output}"
"""

SQL = """
CREATE TABLE words (word VARCHAR) WITH (kind = 'file', path = '{input}');
CREATE TABLE loud (word VARCHAR, count BIGINT) WITH (kind = 'file', out_dir = '{output}');
INSERT INTO loud SELECT upper(word), length(word) FROM words WHERE word <> 'bob';
"""
PROGRAM = """
import json

from bicycle_sdk import StreamEnvironment, bicycle_plugin, file_sink


def loud(line):
    return {{"word": json.loads(line)["word"].upper(), "count": 3}}


@bicycle_plugin(name="loud", version="1")
def job(env: StreamEnvironment) -> None:
    env.read_text("{input}").map(loud).sink_to(file_sink("{output}", roll_ms=200))
"""
COUNTED = [("ada", 1), ("ada", 2), ("bob", 1)]
LOUD = [("ADA", 3), ("ADA", 3)]


def by_command(url, file, checkpoint_dir):
    words = [
        "submit", str(file), "--service", url, "--name", "job", "--follow",
        "--master", "local[1]", "--checkpoint-dir", str(checkpoint_dir), "--json",
    ]  # fmt: skip
    begun = CliRunner().invoke(main, words, env={"BICYCLE_HOME": str(checkpoint_dir / "nowhere")})
    assert begun.exit_code == 0, begun.output
    return json.loads(begun.stdout)["id"]


def by_grpc(home, file, checkpoint_dir):
    asked = shapes.SubmitJobRequest(
        name="job", pipeline=shapes.PipelineFile(file=file.name, text=file.read_text()),
        wait_seconds=60,
    )  # fmt: skip
    options = {"follow": True, "master": "local[1]", "checkpoint_dir": str(checkpoint_dir)}
    asked.options.update(options)
    with grpc.insecure_channel(read_address(home)["grpc"]) as channel:
        begun = JobManagerStub(channel).SubmitJob(asked)
    assert begun.success, begun.message
    return begun.job_id


@pytest.mark.parametrize(
    ("door", "name", "text", "rows"),
    [
        ("command", "tally.toml", PIPELINE, COUNTED),
        ("grpc", "tally.toml", PIPELINE, COUNTED),
        ("command", "loud.sql", SQL, LOUD),
        ("command", "loud.py", PROGRAM, [("ADA", 3), ("ADA", 3), ("BOB", 3)]),
    ],
)
def test_a_file_runs_by_a_service_that_is_killed_meanwhile(
    tmp_path, spark_cache, monkeypatch, door, name, text, rows
):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    site = Site(tmp_path)
    (site.home.path / "cache").symlink_to(spark_cache)
    site.feed('{"word": "ada"}', '{"word": "bob"}')
    file = tmp_path / name
    file.write_text(text.format(input=site.input, output=site.output))
    served = Served(site.home.path, grpc_port=0).start()
    try:
        if door == "grpc":
            begun = by_grpc(site.home, file, tmp_path / "cp")
        else:
            begun = by_command(served.url, file, tmp_path / "cp")
        file.unlink()  # The service has a copy.
        served.end(signal.SIGKILL)
        served.start()
        site.feed('{"word": "ada"}')
        until(lambda: site.status.event_count == 3, "all words")
        kept = list(site.home.path.glob(f"service/pipelines/*/{name}"))
        served.post("/api/v1/jobs/job/stop")
    finally:
        served.ask("POST", "/api/v1/jobs/job/cancel")
        served.end()

    assert begun == "job"
    assert len(kept) == 1
    assert sorted((row["word"], row["count"]) for row in site.rows()) == rows
