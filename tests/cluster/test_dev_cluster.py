"""`bicycle dev cluster` as people call it, and the class as tests use it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bicycle_runtime.dev.cluster_record import ClusterOptions
from bicycle_runtime.dev.spark_cluster import SparkCluster
from tests.waiting import PATIENCE_S, until

_BICYCLE = Path(sys.executable).with_name("bicycle")
_PAGE = Path(__file__).parents[2] / "docs" / "how-to/cluster.md"


@pytest.fixture
def folder(tmp_path):
    yield tmp_path / "spark"
    SparkCluster(ClusterOptions(folder=tmp_path / "spark")).kill()


def answer(folder, *words):
    """Return exit code and JSON document of a command on the cluster of a folder."""
    command = [str(_BICYCLE), "dev", "cluster", *words, "--dir", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.core
def test_a_cluster_is_started_shown_and_stopped(folder):
    code, started = answer(folder, "start", "--hosts", "1", "--cores-per-host", "2")
    assert (code, started["started"], started["hosts"]) == (0, True, ["127.0.0.2"])
    assert answer(folder, "start", "--hosts", "1", "--cores-per-host", "2")[1]["started"] is False
    SparkCluster(ClusterOptions(folder=folder)).kill_host("127.0.0.2")
    code, back = answer(folder, "start", "--hosts", "1", "--cores-per-host", "2")
    assert (code, back["started"], back["hosts"]) == (0, False, ["127.0.0.2"])
    code, refused = answer(folder, "start", "--hosts", "3", "--cores-per-host", "2")
    assert (code, refused["code"], refused["facts"]["name"]) == (4, "BIC-2222", "hosts")

    code, status = answer(folder, "status")

    assert (code, status["master"], status["jobs"]) == (0, started["master"], [])
    [host] = status["hosts"]
    assert (host["state"], host["cores"], host["memory_mb"]) == ("ALIVE", 2, 1024)
    assert answer(folder, "stop") == (
        0, {"folder": str(folder), "stopped": True, "clean": True},
    )  # fmt: skip
    code, gone = answer(folder, "status")
    assert (code, gone["code"]) == (1, "BIC-2221")


def test_a_start_that_was_killed_leaves_nothing_that_stop_does_not_find(folder):
    command = [str(_BICYCLE), "dev", "cluster", "start", "--dir", str(folder)]
    cluster = SparkCluster(ClusterOptions(folder=folder))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as starter:
        until(cluster.processes, "the first process")
        starter.send_signal(signal.SIGKILL)

    code, stopped = answer(folder, "stop")

    assert (code, stopped["stopped"]) == (0, True)
    assert cluster.processes() == []


def test_the_function_of_the_page_loses_a_host_and_gets_one_back(folder):
    [code] = re.findall(
        r"^```python\n(.*?)^```", _PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    names: dict = {}
    exec(compile(code, "cluster.md", "exec"), names)

    assert names["lose_a_host"](folder) == ["127.0.0.2", "127.0.0.3"]


def test_processes_of_the_cluster_do_not_inherit_secrets(cluster):
    """What stands in the environment of the one who starts it does not reach executors."""
    os.environ["BICYCLE_TEST_TOKEN"] = "hunter-three"
    try:
        cluster.kill_host(cluster.hosts()[-1])
        cluster.add_host()
    finally:
        del os.environ["BICYCLE_TEST_TOKEN"]

    for pid in cluster.processes():
        assert b"hunter-three" not in Path(f"/proc/{pid}/environ").read_bytes()
