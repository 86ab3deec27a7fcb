"""Jobs on YARN in client mode: containers and a node are lost, and environments travel."""

from __future__ import annotations

import os
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bicycle_runtime.engine.spark.java import spark_environment
from tests.cluster.clustersite import ClusterSite
from tests.cluster.yarn_cluster import HOST, QUEUE, YarnCluster
from tests.spark.jobsite import expected_counts, visible_counts
from tests.waiting import until

_EXECUTOR = "YarnCoarseGrainedExecutorBackend"
_PATIENCE_S = 600


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    with YarnCluster(tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster
    until(lambda: not cluster.containers(""), "the end of all containers")


@pytest.fixture
def site(
    yarn: YarnCluster, host_python: Path, tmp_path: Path, spark_cache: Path
) -> Iterator[ClusterSite]:
    place = ClusterSite(tmp_path / "site", spark_cache, master="yarn")
    place.host_python = str(host_python)
    place.environment["HADOOP_CONF_DIR"] = str(yarn.conf)
    yield place
    place.kill_everything()


def options(site: ClusterSite, **settings: str) -> list[str]:
    """Return the options of a job on YARN with two containers."""
    given = {
        "spark.driver.host": HOST,
        "spark.executor.instances": "2",
        "spark.yarn.jars": f"local:{spark_environment()['SPARK_HOME']}/jars/*",
        "spark.yarn.queue": QUEUE,
        "spark.yarn.stagingDir": f"file://{site.root}/staging",
        **settings,
    }
    words = ["--parallelism", "2", "--max-records-per-epoch", "20", "--state-backend", "rocksdb"]
    words += ["--cluster-timeout-ms", f"{_PATIENCE_S}s", "--json"]
    return [*words, *(word for item in given.items() for word in ("--conf", "=".join(item)))]


class Text:
    """The input of a following job, which is written while the job runs."""

    def __init__(self, site: ClusterSite) -> None:
        self.words: list[str] = []
        self._site, self._line_count = site, 0

    def write(self) -> None:
        """Write lines for ten epochs."""
        lines = [f"w{number % 7} w{number % 11} all" for number in range(200)]
        part = self._site.root / f"part-{self._line_count}.txt"
        part.write_text("".join(f"{line}\n" for line in lines))
        part.rename(self._site.input / part.name)
        self._line_count += len(lines)
        self.words += " ".join(lines).split()

    def wait(self) -> None:
        """Wait until the job has processed all lines."""
        life = self._site.lives[-1]
        until(self._is_read, lambda: life.stderr[-6_000:], patience_s=_PATIENCE_S)

    def _is_read(self) -> bool:
        life, path = self._site.lives[-1], self._site.home / "jobs/wordcount/status.json"
        assert life.process.poll() is None, (life.stdout, life.stderr[-6_000:])
        return path.exists() and self._site.status()["event_count"] == self._line_count


def pack(python: Path, target: Path) -> None:
    """Pack the environment of an interpreter."""
    with tarfile.open(target, "w:gz", compresslevel=1) as packed:
        packed.add(python.parents[1], arcname=".")


@pytest.mark.timeout(3 * _PATIENCE_S)
def test_a_job_on_yarn_is_exact_after_the_loss_of_a_container_and_of_the_node_of_its_master(
    yarn, site, tmp_path
):
    site.params["follow"] = "true"
    text = Text(site)
    text.write()
    life = site.start(*options(site))
    text.wait()

    text.write()
    os.kill(yarn.containers(_EXECUTOR)[0].pid, signal.SIGKILL)
    text.wait()
    until(lambda: len(yarn.containers(_EXECUTOR)) == 2, "another container")
    text.write()
    [application] = yarn.applications()
    yarn.stop_node(application["amHostHttpAddress"].partition(":")[0])
    text.wait()
    # One node is left, which has no room for another application.
    large = options(site, **{"spark.yarn.am.memory": "3g"})
    site.params["output"] = str(tmp_path / "queued")
    queued = site.start(*large, "--name", "queued", "--cluster-timeout-ms", "30s")
    assert queued.wait(_PATIENCE_S) == 6, (queued.stdout, queued.stderr)
    assert queued.answer["code"] == "BIC-1851"
    site.params["output"] = str(site.output)
    [application, removed] = yarn.applications()
    assert removed["finalStatus"] == "KILLED"
    life.process.send_signal(signal.SIGTERM)

    assert life.wait(_PATIENCE_S) == 0, (life.stdout, life.stderr)
    # The master sees that the driver has left, and then tells YARN.
    until(lambda: yarn.applications()[0]["finalStatus"] != "UNDEFINED", "the end on YARN")
    [application, _] = yarn.applications()
    assert (application["queue"], application["finalStatus"]) == (f"root.{QUEUE}", "SUCCEEDED")
    site.params["follow"] = "false"
    text.write()
    pack(Path(site.host_python), tmp_path / "bicycle.tar.gz")
    archive = {
        "spark.pyspark.python": "./env/bin/python",
        "spark.yarn.dist.archives": f"{tmp_path}/bicycle.tar.gz#env",
    }
    last = site.start(*options(site, **archive))
    assert last.wait(_PATIENCE_S) == 0, (last.stdout, last.stderr)
    assert visible_counts(site.output) == expected_counts(text.words)
    kept = f"*/local/usercache/*/appcache/{yarn.applications()[-1]['id']}"
    until(lambda: not list(yarn.folder.glob(kept)), "the end of the local state")
