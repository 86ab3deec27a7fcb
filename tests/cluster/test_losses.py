"""Hosts die, come and go while a job runs; it goes on by itself and its results are exact."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.cluster.clustersite import ClusterSite
from tests.spark.jobsite import Life, expected_counts, visible_counts
from tests.waiting import until

_EXECUTOR = b"CoarseGrainedExecutorBackend"
SMALL_EPOCHS = ("--parallelism", "2", "--max-records-per-epoch", "20")


@pytest.mark.timeout(400)
def test_lost_added_and_restarted_hosts_lose_and_double_nothing(site, cluster):
    site.install_whereabouts()
    words = site.write_words(lines=30_000)
    life = site.start(*SMALL_EPOCHS, "--json")
    _epochs_pass(site, 3)

    cluster.kill_host("127.0.0.3")
    _epochs_pass(site, 3)
    assert cluster.add_host() == "127.0.0.3"
    _both_hosts_work(site)

    [executor, *_] = [pid for pid in cluster.processes() if _EXECUTOR in _command(pid)]
    os.kill(executor, signal.SIGKILL)
    _epochs_pass(site, 3)

    for host in cluster.hosts():
        cluster.stop_host(host)
        _epochs_pass(site, 3)
        assert cluster.add_host() == host
        _both_hosts_work(site)

    life.process.send_signal(signal.SIGTERM)
    assert life.wait() == 0, (life.stdout, life.stderr)
    assert life.answer["state"] == "STOPPED"
    site.finish("--parallelism", "2")
    assert visible_counts(site.output) == expected_counts(words)


@pytest.mark.timeout(400)
def test_a_job_whose_cluster_is_gone_is_told_in_time_and_goes_on_when_it_is_back(site, cluster):
    site.install_whereabouts()
    words = site.write_words(lines=30_000)
    patience = ("--cluster-timeout-ms", "8s", "--restart-attempts", "50")
    life = site.start(*SMALL_EPOCHS, *patience, "--json")
    _epochs_pass(site, 3)

    for host in cluster.hosts():
        cluster.kill_host(host)

    until(lambda: "BIC-1853" in _restarts(life), "the loss of all executors", patience_s=40)
    until(lambda: "BIC-1851" in _restarts(life), "a start without executors")
    cluster.add_host()
    _epochs_pass(site, 3)
    life.process.send_signal(signal.SIGTERM)
    assert life.wait() == 0, (life.stdout, life.stderr)
    site.finish("--parallelism", "2")
    assert visible_counts(site.output) == expected_counts(words)


def _restarts(life: Life) -> list[str]:
    """Return the codes of the errors that made a job start again."""
    whole_lines = life.stderr.rpartition("\n")[0].splitlines()
    events = [json.loads(line) for line in whole_lines if '"job_restarting"' in line]
    return [event["error"]["code"] for event in events]


def _epochs_pass(site: ClusterSite, count: int) -> None:
    goal = site.newest_epoch() + count
    until(lambda: _is_ahead(site, goal), f"epoch {goal}")


def _is_ahead(site: ClusterSite, goal: int) -> bool:
    life = site.lives[-1]
    assert life.process.poll() is None, (life.stdout, life.stderr)
    return site.newest_epoch() >= goal


def _both_hosts_work(site: ClusterSite) -> None:
    """Wait until an epoch that began after this has records from both hosts."""
    _epochs_pass(site, 3)
    until(lambda: _is_ahead(site, 0) and len(site.newest_hosts()) == 2, "work on both hosts")


def _command(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:  # noqa: PTH123  # it may be gone
            return stream.read()
    except OSError:
        return b""
