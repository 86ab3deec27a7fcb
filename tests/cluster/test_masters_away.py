"""Masters that do not respond: the start of Spark ends in time, with what the user can do."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from bicycle_runtime.engine.errors import MASTER_UNREACHABLE
from bicycle_runtime.engine.spark.executor import SparkExecutor
from tests.own_process import run_alone
from tests.raising import raises

_LIMIT_MS = 2_000
_ADDRESS = "yarn.resourcemanager.address"
_KUBERNETES = {
    "spark.kubernetes.container.image": "bicycle:1",
    "spark.driver.host": "127.0.0.1",
}


def _master(kind: str, port: int, conf: Path) -> str:
    """Return the URL of a master at a port; of YARN, write its address into its configuration."""
    address = f"127.0.0.1:{port}"
    row = f"<property><name>{_ADDRESS}</name><value>{address}</value></property>"
    (conf / "yarn-site.xml").write_text(f"<configuration>{row}</configuration>")
    return {"yarn": "yarn", "k8s": f"k8s://http://{address}", "spark": f"spark://{address}"}[kind]


@pytest.mark.parametrize("is_silent", [False, True], ids=["dead", "silent"])
@pytest.mark.parametrize(
    ("kind", "advice"),
    [("spark", "dev cluster status"), ("yarn", "yarn-site.xml"), ("k8s", "kubectl")],
)
def test_a_master_that_does_not_respond_ends_the_start_in_time(
    kind, advice, is_silent, tmp_path, spark_cache
):
    server = socket.create_server(("127.0.0.1", 0))
    with closing(server):
        master = _master(kind, server.getsockname()[1], tmp_path)
        if not is_silent:
            server.close()
        # PySpark keeps one Java per process, which other tests of this one share.
        run_alone(check_start, master, advice, str(tmp_path), str(spark_cache))


def check_start(master, advice, conf, cache):
    os.environ["HADOOP_CONF_DIR"] = conf
    spark = SparkExecutor(
        master, settings=_KUBERNETES, cache_dir=Path(cache), job="away",
        cluster_timeout_ms=_LIMIT_MS,
    )  # fmt: skip
    try:
        with raises(MASTER_UNREACHABLE) as error:
            spark.warm()
    finally:
        spark.stop()
        spark.wait_ended()
    assert error.value.facts["master"] == master
    assert advice in error.value.remedy
