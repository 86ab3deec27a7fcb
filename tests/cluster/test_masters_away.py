"""Masters that do not respond: the start of Spark ends in time, with what the user can do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bicycle_runtime.engine.errors import MASTER_UNREACHABLE
from tests.waiting import PATIENCE_S

# A process of its own: PySpark keeps one Java per process, which other tests of this one share.
_START = """
import json, sys
from pathlib import Path
from bicycle_runtime.engine.spark.executor import SparkExecutor
from bicycle_sdk.errors import BicycleError

spark = SparkExecutor(
    sys.argv[1], settings=json.loads(sys.argv[2]), cache_dir=Path(sys.argv[3]), job="away",
    cluster_timeout_ms=2_000,
)
try:
    spark.warm()
except BicycleError as error:
    print(json.dumps(error.to_json()))
finally:
    spark.stop()
    spark.wait_ended()
"""
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
        done = subprocess.run(
            [sys.executable, "-c", _START, master, json.dumps(_KUBERNETES), str(spark_cache)],
            capture_output=True, text=True, timeout=PATIENCE_S, check=True,
            env={**os.environ, "HADOOP_CONF_DIR": str(tmp_path)},
        )  # fmt: skip

    error = json.loads(done.stdout)
    assert error["code"] == MASTER_UNREACHABLE.code, done.stderr
    assert error["facts"]["master"] == master
    assert advice in error["fix"]
