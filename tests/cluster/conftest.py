"""One real Spark cluster for all tests here, whose hosts have the runtime and no plugin.

It has two hosts with one core each. A test may do to it what it likes: the next one finds it with
two hosts again. On the hosts, jobs run in an environment made of wheels of this checkout.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bicycle_runtime.dev.cluster_record import ClusterOptions
from bicycle_runtime.dev.spark_cluster import SparkCluster
from tests.cluster.clustersite import ClusterSite
from tests.cluster.wheels import install, new_venv, run
from tests.lock_file import locked
from tests.spark.jobsite import SHORT_LIVED_JAVA
from tests.waiting import PATIENCE_S

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
# What workers import of what the runtime requires; Spark itself they get from their host.
WORKER_LIBRARIES = (
    "cloudpickle", "fsspec", "importlib-metadata", "lazy-importer", "msgspec", "packaging",
    "pluggy", "rocksdict", "zipp", "zstandard",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stands here."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def whole_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """The cluster of all tests; ask for `cluster`."""
    patience_ms = int(PATIENCE_S * 1_000)
    folder = tmp_path_factory.mktemp("cluster")
    options = ClusterOptions(folder=folder, start_timeout_ms=patience_ms)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SHORT_LIVED_JAVA.items():
            patch.setenv(name, value)
        with SparkCluster(options) as cluster:
            yield cluster
    assert cluster.processes() == []


@pytest.fixture
def cluster(whole_cluster: SparkCluster) -> SparkCluster:
    """The cluster, with two hosts whatever the test before has done."""
    while len(whole_cluster.hosts()) < 2:
        whole_cluster.add_host()
    return whole_cluster


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheels of SDK, toolkit and runtime, without what earlier builds left there."""
    store, copies = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("sources")
    left_out = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    folders = [
        str(shutil.copytree(_ROOT / name, copies / name, ignore=left_out))
        for name in ("plugin_sdk", "streams", "runtime")
    ]
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", str(store), *folders])
    return sorted(store.glob("*.whl"))


@pytest.fixture(scope="session")
def host_python(tmp_path_factory: pytest.TempPathFactory, wheels: list[Path]) -> Path:
    """An interpreter that has the runtime and no plugin, as hosts have it."""
    python = new_venv(tmp_path_factory.mktemp("host") / "venv")
    libraries = [f"{name}=={locked()[name]}" for name in WORKER_LIBRARIES]
    install(python, "--no-deps", *libraries, *map(str, wheels))
    return python


@pytest.fixture
def new_site(
    cluster: SparkCluster, host_python: Path, tmp_path: Path, spark_cache: Path
) -> Iterator[Callable[..., ClusterSite]]:
    """Make places to run jobs on the cluster; no driver outlives the test."""
    sites: list[ClusterSite] = []

    def make(plugin: str = "wordcount") -> ClusterSite:
        site = ClusterSite(tmp_path / f"site-{len(sites)}", spark_cache, plugin=plugin)
        site.master, site.host_python = cluster.url, str(host_python)
        sites.append(site)
        return site

    yield make
    for site in sites:
        site.kill_everything()


@pytest.fixture
def site(new_site: Callable[..., ClusterSite]) -> ClusterSite:
    """A place to run the word count."""
    return new_site()
