"""Whole jobs with their checkpoints in S3: killed, frozen and cut off, with exact results."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.s3.s3_server import KEY, SECRET
from tests.simulation.leased_site import LeasedSite, ended
from tests.spark.jobsite import (
    JobSite,
    Life,
    expected_counts,
    visible_counts,
)
from tests.waiting import until

pytestmark = pytest.mark.crash

BEAT_MS = 300
LINES = [f"ada bob{number % 7} eve" for number in range(240)]
WORDS = [word for line in LINES for word in line.split()]
POINTS = ("delta_written", "before_seal", "after_seal", "half_published", "after_publish")


class Site(LeasedSite):
    """A word count whose checkpoints lie in a bucket, and its drivers, one process each."""

    def __init__(self, root: Path, bucket: str) -> None:
        super().__init__(root, f"s3://{bucket}/jobs/wordcount", LINES)

    def start(self, faults: str = "", *, patience_s: float = 30) -> Life:
        return self.launch(faults, str(BEAT_MS), "40", str(patience_s))

    def assert_exact(self) -> None:
        assert visible_counts(self.output) == expected_counts(WORDS)
        for life in self.lives:
            assert not any(secret in life.stdout + life.stderr for secret in (KEY, SECRET))


@pytest.fixture
def site(tmp_path, bucket):
    site = Site(tmp_path / "site", bucket)
    with ended(site):
        yield site


def test_a_job_in_s3_that_is_killed_at_every_point_counts_exactly(site):
    for number, point in enumerate(POINTS, 1):
        life = site.start(f"{point}@{number % 3 + 1}=kill")
        assert life.wait() == -signal.SIGKILL, life.stderr
    last = site.start()
    assert last.wait() == 0, last.stdout + last.stderr
    site.assert_exact()


@pytest.mark.parametrize("point", ["before_seal", "half_published"])
def test_a_driver_in_s3_that_is_frozen_and_replaced_is_fenced(site, point):
    fault = f"{point}@4=hold"
    zombie = site.start(fault)
    zombie.wait_for_fault(fault)
    zombie.process.send_signal(signal.SIGSTOP)
    other = site.start()
    assert other.wait() == 0, other.stdout + other.stderr

    zombie.release()
    zombie.process.send_signal(signal.SIGCONT)
    assert zombie.wait() == 1, zombie.stderr
    error = json.loads(zombie.stdout)
    assert error["code"] == "BIC-1541"
    assert error["facts"]["pid"] == other.process.pid
    site.assert_exact()


def test_a_job_whose_storage_goes_says_so_and_goes_on_when_it_is_back(site, server):
    fault = "before_seal@3=hold"
    life = site.start(fault, patience_s=1)
    life.wait_for_fault(fault)
    server.kill()
    life.release()
    assert life.wait() == 1, life.stderr
    assert json.loads(life.stdout)["code"] == "BIC-1135", life.stdout

    server.start()
    last = site.start()
    assert last.wait() == 0, last.stdout + last.stderr
    site.assert_exact()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.spark
def test_a_job_on_spark_in_s3_that_is_killed_goes_on_and_counts_exactly_even_from_a_damaged_file(
    tmp_path, spark_cache, server, bucket
):
    spark = JobSite(tmp_path / "site", spark_cache)
    try:
        (spark.input / "lines.txt").write_text("".join(f"{line}\n" for line in LINES))
        words = ("--checkpoint-dir", f"s3://{bucket}/jobs", "--max-records-per-epoch", "80")
        killed = spark.run(*words, faults="after_seal@2=kill")
        assert killed.process.returncode == -signal.SIGKILL, killed.stderr
        state = server.buckets / bucket / "jobs/wordcount/state"
        flip(max(state.rglob("*.delta"), key=lambda path: path.name))  # No size tells it.
        again = spark.run(*words)
        assert again.process.returncode == 0, (again.stdout, again.stderr)
        found = [(event["event"], event.get("epoch")) for event in again.log_events]
        assert [epoch for event, epoch in found if event == "job_recovered"] == [2, 1]
        assert [event for event, _ in found].count("manifest_damaged") == 1
        assert visible_counts(spark.output) == expected_counts(WORDS)
        told = [path.read_text() for path in spark.home.rglob("*.json")]
        told += [life.stdout + life.stderr for life in spark.lives]
        assert any(f"s3://{bucket}/jobs/wordcount" in text for text in told)
        assert not any(secret in text for text in told for secret in (KEY, SECRET))
    finally:
        spark.kill_everything()


@pytest.mark.spark
def test_a_second_driver_of_another_host_is_sent_away_and_told_who_runs_the_job(
    tmp_path, spark_cache, server, bucket
):
    """It has a home of its own, so that no lock of this machine reaches it."""
    first = JobSite(tmp_path / "first", spark_cache)
    second = JobSite(tmp_path / "second", spark_cache)
    words = ("--checkpoint-dir", f"s3://{bucket}/jobs", "--follow")
    lease = server.root / "data" / bucket / "jobs/wordcount/lease/000000000001.beat"
    try:
        holder = first.start(*words)
        until(lease.exists, "the lease of the first driver")
        refused = second.run(*words)

        assert refused.process.returncode == 5, (refused.stdout, refused.stderr)
        assert refused.answer["code"] == "BIC-1540", refused.answer
        assert refused.answer["facts"]["pid"] == holder.process.pid
        assert holder.process.poll() is None
    finally:
        first.kill_everything()
        second.kill_everything()
