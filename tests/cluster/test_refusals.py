"""What cannot work on a cluster is told before the first record, in time and in one table."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cluster.wheels import install, new_venv

OTHER_CLOUDPICKLE = "3.1.1"
TWO = ("--parallelism", "2")


def test_a_master_that_is_not_there_is_told_at_once(site):
    site.write_words(lines=10)
    site.master = "spark://127.0.0.1:1"

    life = site.run("--cluster-timeout-ms", "1h")

    assert (life.process.returncode, life.answer["code"]) == (6, "BIC-1850")
    assert life.answer["facts"]["master"] == "spark://127.0.0.1:1"


def test_a_cluster_without_room_for_the_job_is_told_in_time(site):
    site.write_words(lines=10)

    life = site.run("--conf", "spark.executor.memory=64g", "--cluster-timeout-ms", "20s")

    assert (life.process.returncode, life.answer["code"]) == (6, "BIC-1851")


@pytest.fixture(scope="module")
def odd_python(tmp_path_factory: pytest.TempPathFactory, host_python: Path) -> Path:
    """The hosts' environment with another cloudpickle, really installed."""
    python = new_venv(tmp_path_factory.mktemp("odd") / "venv")
    site = Path("lib", f"python{_version(host_python)}", "site-packages")
    shutil.copytree(host_python.parents[1] / site, python.parents[1] / site, dirs_exist_ok=True)
    install(python, "--no-deps", f"cloudpickle=={OTHER_CLOUDPICKLE}")
    return python


def test_hosts_with_another_version_are_refused_in_one_table(site, odd_python):
    site.install_whereabouts()
    site.write_words(lines=10)
    secret = "spark.executorEnv.STORE_TOKEN=hunter-two"

    life = site.run("--conf", f"spark.pyspark.python={odd_python}", "--conf", secret, *TWO)

    assert (life.process.returncode, life.answer["code"]) == (6, "BIC-1852")
    facts = life.answer["facts"]
    assert facts["differing"] == ["cloudpickle"]
    # On a busy machine a host may be late: it compares in its first task then.
    assert set(facts["hosts"]) <= {"127.0.0.2", "127.0.0.3"}
    assert facts["hosts"]
    [row] = [row for row in facts["table"] if row[0] == "cloudpickle"]
    assert row[-1] == f"{OTHER_CLOUDPICKLE} !"
    assert "hunter-two" not in life.stdout + life.stderr
    assert site.newest_epoch() == 0
    assert site.visible_records() == []


def test_hosts_without_the_interpreter_are_refused_with_its_name(site):
    site.write_words(lines=10)

    life = site.run("--conf", "spark.pyspark.python=/nowhere/python")

    assert life.answer["code"] == "BIC-1852"
    assert "/nowhere/python" in "\n".join(life.answer["facts"]["problems"])


def _version(python: Path) -> str:
    [folder] = (python.parents[1] / "lib").glob("python*")
    return folder.name.removeprefix("python")
