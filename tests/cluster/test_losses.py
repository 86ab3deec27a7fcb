"""All hosts die while a job runs; it goes on by itself when one is back. See also the schedules."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.cluster.clustersite import ClusterSite
from tests.spark.jobsite import Life, epoch_ms, expected_counts, visible_counts
from tests.waiting import until

BICYCLE = Path(sys.executable).with_name("bicycle")
# A host has 10 s to answer with its stacks, which a loaded machine may exceed.
_ENDS_MAX = 4
SMALL_EPOCHS = ("--parallelism", "2", "--max-records-per-epoch", "20")


def test_a_job_whose_cluster_is_gone_is_told_in_time_and_goes_on_when_it_is_back(site, cluster):
    site.install_whereabouts()
    words = site.write_words(lines=30_000)
    patience = ("--cluster-timeout-ms", "40s", "--restart-attempts", "50")
    life = _started(site, *patience)
    site.let_epochs_pass(3)

    for host in cluster.hosts():
        cluster.kill_host(host)

    until(lambda: "BIC-1853" in _restarts(life), "the loss of all executors")
    until(lambda: "BIC-1851" in _restarts(life), "a start without executors")
    cluster.add_host()
    site.let_epochs_pass(3)
    life.process.send_signal(signal.SIGTERM)
    assert life.wait() == 0, (life.stdout, life.stderr)
    site.finish("--parallelism", "2")
    assert visible_counts(site.output) == expected_counts(words)


def test_a_rescale_without_executors_is_tried_once_and_answered_with_the_reason(site, cluster):
    words = site.write_words(lines=40)
    idle = ("--follow", "--cluster-timeout-ms", "40s", "--restart-attempts", "50")
    life = _started(site, *idle)
    until(lambda: site.status()["event_count"] == 40, "all lines")
    for host in cluster.hosts():
        cluster.kill_host(host)
    bicycle = str(Path(sys.executable).with_name("bicycle"))
    rescale = site.launch([bicycle, "rescale", site.plugin, "--parallelism", "1", "--json"])

    assert rescale.wait() != 0
    assert rescale.answer["code"] == "BIC-1842", rescale.stdout
    assert "has had no executor for 40 s" in rescale.answer["facts"]["reason"]
    assert "job_rescaled" not in life.stderr
    cluster.add_host()
    more = ["late"] * 3
    with (site.input / "more.txt").open("w") as stream:
        stream.writelines(f"{word}\n" for word in more)
    until(lambda: site.status()["event_count"] == 43, "the lines after the loss")
    assert {each["parallelism"] for each in site.status()["operators"].values()} >= {2}
    life.process.send_signal(signal.SIGTERM)
    assert life.wait() == 0, (life.stdout, life.stderr)
    site.finish("--parallelism", "2")
    assert visible_counts(site.output) == expected_counts(words + more)


@pytest.mark.parametrize("words", [["stop"], ["stop", "--savepoint"], ["cancel"]])
def test_every_end_of_a_job_that_hangs_shows_the_stack_of_another_host(site, cluster, words):
    site.install_whereabouts()
    site.params["follow"] = "true"
    site.write_words(lines=20)
    site.start(*SMALL_EPOCHS, "--json")
    site.let_epochs_pass(1)
    with (site.input / "more.txt").open("w") as stream:
        stream.write(f"hang {site.root / 'hangs'}\n")
    for _ in range(_ENDS_MAX):
        asked = _end_while_it_hangs(site, words)
        status = site.status()
        assert status["state"] == {"cancel": "CANCELED", "stop": "STOPPED"}.get(
            words[-1], "SUSPENDED"
        )
        if found := [thread for thread in status["stuck"] if thread["role"] == "worker"]:
            break
        site.start(*SMALL_EPOCHS, "--json")  # It reads the same line again.

    told = (asked.stdout, asked.stderr, status["stuck"])
    assert len(found) == 1, told
    [stuck] = found
    assert stuck["host"] in cluster.hosts()
    assert "whereabouts.py:3" in stuck["location"], stuck
    assert stuck["stack"][-1].endswith(" in words")


def _end_while_it_hangs(site: ClusterSite, words: list[str]) -> Life:
    """End the job by a command when its code hangs, and return the command."""
    hangs = site.root / "hangs"
    until(hangs.exists, "code that hangs")
    until(lambda: epoch_ms(site.status()) >= 5_000, "an epoch so old that a cancel collects stacks")
    hangs.unlink()
    asked = site.launch([str(BICYCLE), words[0], site.plugin, *words[1:], "--json"])
    asked.wait()
    return asked


def _started(site: ClusterSite, *words: str) -> Life:
    """Start a job until the cluster is in time with executors, and wait for its first epoch."""

    def is_running() -> bool:
        life = site.lives[-1]
        if life.process.poll() is None:
            return site.newest_epoch() > 0
        assert life.answer["code"] in ("BIC-1850", "BIC-1851"), (life.stdout, life.stderr)
        site.start(*SMALL_EPOCHS, *words, "--json")
        return False

    site.start(*SMALL_EPOCHS, *words, "--json")
    until(is_running, "the first epoch")
    return site.lives[-1]


def _restarts(life: Life) -> list[str]:
    """Return the codes of the errors that made a job start again."""
    whole_lines = life.stderr.rpartition("\n")[0].splitlines()
    events = [json.loads(line) for line in whole_lines if '"job_restarting"' in line]
    return [event["error"]["code"] for event in events]
