"""Seeded schedules of all that can die or change under a running job, done for real.

Each schedule has every act at least once, in an order of its own. A failure prints what was done;
``-k "schedule and 7" --cluster-schedules 8`` replays it, as far as real processes can be replayed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from pathlib import Path

import pytest

from bicycle_runtime.dev.spark_cluster import SparkCluster
from tests.cluster.clustersite import ClusterSite
from tests.spark.jobsite import Life, expected_counts, visible_counts
from tests.waiting import until

ACTS = ("crash", "retry", "executor", "zombie", "host", "rolling_restart", "rescale")
MORE_ACTS = 2
PARALLELISMS = (2, 3, 4)
SETTINGS = (
    *("--max-records-per-epoch", "20", "--restart-attempts", "20"),
    # A frozen executor is to be given up in seconds.
    *("--conf", "spark.network.timeout=8s", "--conf", "spark.executor.heartbeatInterval=2s"),
    *("--conf", "spark.network.timeoutInterval=1s"),
)
_EXECUTOR, _DAEMON = b"CoarseGrainedExecutorBackend", b"spark.daemon"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("seed", range(metafunc.config.getoption("--cluster-schedules")))


def test_no_schedule_of_losses_and_rescales_loses_or_doubles_a_record(
    site: ClusterSite, cluster: SparkCluster, seed: int
) -> None:
    site.install_whereabouts()
    words = site.write_words(lines=30_000)
    schedule = Schedule(site, cluster, seed)

    schedule.run()

    site.finish("--parallelism", "2")
    assert visible_counts(site.output) == expected_counts(words)


class Schedule:
    """One order of acts, drawn from a seed, and one job that lives through it."""

    def __init__(self, site: ClusterSite, cluster: SparkCluster, seed: int) -> None:
        self._site = site
        self._cluster = cluster
        self._random = random.Random(f"schedule {seed}")
        self._acts = [*ACTS, *self._random.choices(ACTS, k=MORE_ACTS)]
        self._random.shuffle(self._acts)
        self._done: list[str] = []

    def run(self) -> None:
        """Do all acts, with epochs between them, and stop the job."""
        try:
            life = self._start()
            for act in self._acts:
                self._site.let_epochs_pass(self._random.randrange(2, 6))
                self._done.append(act)
                life = getattr(self, f"_{act}")() or life
            self._site.let_epochs_pass(3)
        except AssertionError as error:
            raise AssertionError(f"{self._acts}, done {self._done}") from error
        life.process.send_signal(signal.SIGTERM)
        assert life.wait() == 0, (life.stdout, life.stderr)
        assert life.answer["state"] == "STOPPED"

    def _start(self) -> Life:
        return self._site.start(
            "--parallelism", str(self._random.choice(PARALLELISMS)), *SETTINGS, "--json"
        )

    def _crash(self) -> Life:
        """Kill the driver; its Java ends with it. The same command goes on."""
        life = self._site.lives[-1]
        life.process.kill()
        life.wait()
        return self._start()

    def _retry(self) -> None:
        """Kill a Python worker, so that its task is tried again."""
        until(lambda: self._has_killed(self._workers()), "a Python worker")

    def _executor(self) -> None:
        until(lambda: self._has_killed(self._processes(_EXECUTOR)), "an executor")

    def _zombie(self) -> None:
        """Freeze an executor until others have done its tasks, and let it go on then."""
        frozen = self._random.choice(until(lambda: self._processes(_EXECUTOR), "an executor"))
        os.kill(frozen, signal.SIGSTOP)
        try:
            self._site.let_epochs_pass(3)
        finally:
            with contextlib.suppress(ProcessLookupError):  # Its worker may have given it up.
                os.kill(frozen, signal.SIGCONT)

    def _host(self) -> None:
        host = self._random.choice(self._cluster.hosts())
        self._cluster.kill_host(host)
        self._site.let_epochs_pass(3)
        assert self._cluster.add_host() == host
        self._let_both_hosts_work()

    def _rolling_restart(self) -> None:
        for host in self._cluster.hosts():
            self._cluster.stop_host(host)
            self._site.let_epochs_pass(3)
            assert self._cluster.add_host() == host
            self._let_both_hosts_work()

    def _rescale(self) -> None:
        self._site.rescale(self._random.choice(PARALLELISMS))

    def _let_both_hosts_work(self) -> None:
        """Wait until an epoch that began after this has records from both hosts."""
        self._site.let_epochs_pass(3)
        until(
            lambda: self._site.is_at(0) and len(self._site.newest_hosts()) == 2,
            "work on both hosts",
        )

    def _has_killed(self, pids: list[int]) -> bool:
        if not pids:
            return False
        with contextlib.suppress(ProcessLookupError):  # It is gone since we looked.
            os.kill(self._random.choice(pids), signal.SIGKILL)
            return True
        return False

    def _workers(self) -> list[int]:
        """Return what the Python daemons have forked; their parents are daemons, too."""
        daemons = self._processes(_DAEMON)
        return [pid for pid in daemons if _parent(pid) in daemons]

    def _processes(self, word: bytes) -> list[int]:
        return [pid for pid in self._cluster.processes() if word in _read(pid, "cmdline")]


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # It is gone.
        return b""
