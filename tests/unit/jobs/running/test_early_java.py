"""Java starts with the command of a job that has not run, and ends if no executor takes it."""

from signal import SIGKILL

import pytest

from bicycle_runtime.engine.spark.executor import SparkExecutor
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.running.early_java import EarlyJava
from tests.unit.jobs.job_samples import request_of

# It prints the command of Spark's launcher; as Spark, it waits for the end of its input.
JAVA = """#!/bin/sh
case "$*" in
*launcher.Main*) printf 'java\\0-cp\\0jars\\0org.apache.spark.deploy.SparkSubmit\\0' ;;
*) exec cat ;;
esac
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text(JAVA.replace("printf 'java", f"printf '{java}"))
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return Home(tmp_path / "home")


def test_java_of_an_early_start_ends_with_its_folder_unless_it_is_taken(home, tmp_path):
    request = request_of(checkpoint_dir=str(tmp_path / "new"))
    with EarlyJava(request, home) as unused:
        assert unused._found is not None
        java, folder = unused._found
        assert java.process.poll() is None
    assert java.process.returncode == -SIGKILL  # At SIGTERM, it would write an archive of classes.
    assert not folder.path.exists()

    with EarlyJava(request, home) as early:
        taken = early.take()
        executor = SparkExecutor(
            "local[2]", settings={}, cache_dir=home.cache_dir, job="early", early=taken
        )
        assert early.take() is None
    assert executor.java_pid is not None
    assert taken[0].process.poll() is None
    executor.stop()
    assert taken[0].process.wait(10) == -SIGKILL
    assert not taken[1].path.exists()


def test_java_starts_early_only_if_the_job_surely_needs_it(home, tmp_path, monkeypatch):
    (tmp_path / "old" / "job").mkdir(parents=True)
    late = [
        request_of(name="job", checkpoint_dir=str(tmp_path / "old")),
        request_of(checkpoint_dir="s3://bucket/job"),
        request_of(checkpoint_dir=str(tmp_path / "new"), master="spark://host:7077"),
        request_of(checkpoint_dir=str(tmp_path / "new"), name="no/name"),
    ]
    assert [EarlyJava(request, home).take() for request in late] == [None] * 4
    with EarlyJava(request_of(checkpoint_dir=None), home) as early:
        assert early._found is not None
        java, _ = early._found
    assert java.process.returncode is not None

    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    assert EarlyJava(request_of(checkpoint_dir=None), home).take() is None
