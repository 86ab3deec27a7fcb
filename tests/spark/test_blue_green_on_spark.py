"""A blue-green upgrade on real Spark, through a service; both driver and service are killed."""

import json
import os
import signal
import threading

import pytest
from click.testing import CliRunner

from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.cli.root import main
from bicycle_runtime.jobs.shadow_note import read_shadow
from bicycle_runtime.layouts.paths import SHADOW
from tests.unit.jobs.upgrading.versions import Site, plugin_wheel
from tests.unit.service_process.served import Served
from tests.waiting import until

pytestmark = pytest.mark.spark


class Feeding:
    """Gives a job a word every tenth of a second, from entering to leaving."""

    def __init__(self, site):
        self.site, self.count, self.end = site, 0, threading.Event()
        self.thread = threading.Thread(target=self.feed)

    def feed(self):
        while not self.end.wait(0.1):
            self.site.feed(f"w{self.count % 7}")
            self.count += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        self.thread.join()


@pytest.fixture
def site(tmp_path, spark_cache, monkeypatch):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    found = Site(tmp_path)
    (found.home.path / "cache").symlink_to(spark_cache)
    monkeypatch.setenv("BICYCLE_HOME", str(found.home.path))
    return found


def bicycle(*words):
    return CliRunner().invoke(main, [*words, "--json"])


def begin(site):
    """Submit version 1, whose driver is started again when it is killed."""
    settings = [f"input={site.input}", f"output={site.output}"]
    begun = bicycle(
        "submit", "--plugin", "demo", "--wheel", str(plugin_wheel(site.root / "wheels", "1.0")),
        "--name", "job", "--follow", "--master", "local[1]", "--restart-attempts", "3",
        *(word for each in settings for word in ("--set", each)),
    )  # fmt: skip
    assert begun.exit_code == 0, begun.output


def followed(site):
    """Wait until the new version follows the job."""

    def epochs():
        note = read_shadow(site.home.folder("job"))
        return note is not None and 0 < note.first < note.epoch

    until(epochs, "a version that follows")


def assert_each_once(site, count):
    """See that each word was counted once, whichever version said it."""
    until(lambda: site.status.event_count == count, "all words")
    bicycle("stop", "job")
    rows = [(row["word"], row["count"]) for row in site.rows()]
    wanted = [(f"w{n % 7}", n // 7 + 1) for n in range(count)]
    assert sorted(rows) == sorted(wanted)
    assert {row["by"] for row in site.rows()} == {"1.0", "2.0"}
    assert open_storage(site.status.checkpoint).list(SHADOW) == []


def test_a_job_is_upgraded_while_it_runs_although_it_is_killed_and_its_service_is(site):
    served = Served(site.home.path).start()
    try:
        begin(site)
        with Feeding(site) as feeding:
            second = str(plugin_wheel(site.root / "wheels", "2.0"))
            answers = []
            words = ("--strategy", "blue-green", "--epochs", "30", "--watch-ms", "90000")
            upgrading = threading.Thread(
                target=lambda: answers.append(bicycle("upgrade", "job", "--wheel", second, *words))
            )
            upgrading.start()
            followed(site)
            os.kill(site.status.pid, signal.SIGKILL)
            followed(site)
            served.end(signal.SIGKILL)
            upgrading.join()
            served.start()

            def is_upgraded():
                found = served.get("/api/v1/operations?limit=5")["items"]
                done = [each for each in found if each["kind"] == "upgrade"]
                assert all(each["state"] != "failed" for each in done), done
                return next((each for each in done if each["state"] == "done"), None)

            done = until(is_upgraded, "the upgrade")
        assert_each_once(site, feeding.count)
    finally:
        served.ask("POST", "/api/v1/jobs/job/cancel")
        served.end()

    assert answers[0].exit_code != 0  # The service that it had asked was killed.
    assert done["result"]["plugin_version"] == "2.0"
    assert done["result"]["strategy"] == "blue-green"
    assert done["result"]["gap_ms"] > 0
    assert "shadow_taken_over" in site.home.folder("job").log_path.read_text()


def test_a_version_that_fails_in_the_shadow_is_told_and_the_job_goes_on(site):
    served = Served(site.home.path).start()
    try:
        begin(site)
        with Feeding(site) as feeding:
            broken = plugin_wheel(site.root / "wheels", "6.6", body="raise ValueError(line)")
            failed = bicycle(
                "upgrade", "job", "--wheel", str(broken), "--strategy", "blue-green",
                "--skip-savepoint",
            )  # fmt: skip
            pid = site.status.pid
            before = site.status.event_count
            until(lambda: site.status.event_count > before + 3, "more words")
        until(lambda: site.status.event_count == feeding.count, "all words")
        is_same = site.status.pid == pid
        bicycle("stop", "job")
    finally:
        served.ask("POST", "/api/v1/jobs/job/cancel")
        served.end()

    # The progress of the operation precedes the error.
    assert json.loads(failed.output.splitlines()[-1])["code"] == "BIC-1951"
    assert is_same
    rows = sorted((row["word"], row["count"]) for row in site.rows())
    assert rows == sorted((f"w{n % 7}", n // 7 + 1) for n in range(feeding.count))
    assert {row["by"] for row in site.rows()} == {"1.0"}
