"""A pipeline that a service was sent, on real Spark: it runs, and is found again after a kill."""

import json
import signal

import pytest
from click.testing import CliRunner

from bicycle_runtime.cli.root import main
from tests.unit.jobs.upgrading.versions import Site
from tests.unit.serving.served import Served
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

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


def test_a_pipeline_runs_by_a_service_that_is_killed_meanwhile(tmp_path, spark_cache, monkeypatch):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    site = Site(tmp_path)
    (site.home.path / "cache").symlink_to(spark_cache)
    site.feed('{"word": "ada"}', '{"word": "bob"}')
    file = tmp_path / "tally.toml"
    file.write_text(PIPELINE.format(input=site.input, output=site.output))
    served = Served(site.home.path).start()
    words = [
        "submit", str(file), "--service", served.url, "--name", "job", "--follow",
        "--master", "local[1]", "--checkpoint-dir", str(tmp_path / "cp"), "--json",
    ]  # fmt: skip
    try:
        begun = CliRunner().invoke(main, words, env={"BICYCLE_HOME": str(tmp_path / "nowhere")})
        assert begun.exit_code == 0, begun.output
        file.unlink()  # The service has a copy.
        served.end(signal.SIGKILL)
        served.start()
        site.feed('{"word": "ada"}')
        until(lambda: site.status.event_count == 3, "all words")
        kept = list(site.home.path.glob("service/pipelines/*/tally.toml"))
        served.post("/api/v1/jobs/job/stop")
    finally:
        served.ask("POST", "/api/v1/jobs/job/cancel")
        served.end()

    assert json.loads(begun.output)["id"] == "job"
    assert len(kept) == 1
    assert sorted((row["key"], row["count"]) for row in site.rows()) == [
        ("ada", 1), ("ada", 2), ("bob", 1),
    ]  # fmt: skip
