"""How the end of Java on its way up is told: killed, or not able to start."""

import io
import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from py4j import protocol
from py4j.java_gateway import GatewayClient, GatewayParameters
from pyspark import util
from pyspark.core import broadcast
from pyspark.serializers import CloudPickleSerializer

from bicycle_runtime.engine.errors import SparkStartError, SparkStartKilledError
from bicycle_runtime.engine.spark.java import (
    FIRST_JARS,
    StartingJava,
    _java_command,
    hush_py4j,
    hush_serializers,
    search_path,
    spark_environment,
)


@pytest.mark.parametrize(
    ("code", "kind", "how"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "BIC-1807", "signal 9"),
        ("raise SystemExit(1)", "BIC-1802", "exit code 1"),
    ],
)
def test_java_that_was_killed_is_told_from_java_that_cannot_start(tmp_path, code, kind, how):
    process = subprocess.Popen([sys.executable, "-c", code])
    starting = StartingJava(process, tmp_path / "info", tmp_path / "log", "local[*]")
    with pytest.raises(SparkStartError) as caught:
        starting.wait()

    assert (caught.value.code, isinstance(caught.value, SparkStartKilledError)) == (
        kind, kind == "BIC-1807",
    )  # fmt: skip
    assert how in caught.value.facts["reason"]


def test_jars_of_most_classes_are_search_path_and_all_others_behind_them(tmp_path):
    for name in ("a-1", "spark-core_2.13-9", "scala-library-2", "spark-x"):
        (tmp_path / f"{name}.jar").touch()
    mine, all_jars = "/mine/spark-core_2.jar", f"{tmp_path}/*"
    first = [
        f"{tmp_path}/{name}.jar" for name in ("spark-core_2.13-9", "scala-library-2", "spark-x")
    ]

    found = search_path(os.pathsep.join([mine, all_jars])).split(os.pathsep)

    assert found == [mine, *first, all_jars]


def test_the_class_path_follows_the_folders_of_hadoop(tmp_path, monkeypatch):
    launcher = tmp_path / "java"
    words = "java\\0-cp\\0jars:$HADOOP_CONF_DIR\\0org.apache.spark.deploy.SparkSubmit\\0"
    launcher.write_text(f'#!/bin/sh\nprintf "{words}"\n')
    launcher.chmod(0o755)
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    commands = []
    for folder in ("/etc/one", "/etc/two"):
        commands.append(_java_command(tmp_path / "cache", launcher, "yarn"))
        monkeypatch.setenv("HADOOP_CONF_DIR", folder)
    commands.append(_java_command(tmp_path / "cache", launcher, "yarn"))

    assert [words[2] for words in commands] == ["jars:", "jars:/etc/one", "jars:/etc/two"]


def test_each_jar_that_is_search_path_is_one_of_spark():
    jars = Path(spark_environment()["SPARK_HOME"]) / "jars"
    names = [path.name for path in jars.glob("*.jar")]

    assert [
        first for first in FIRST_JARS if not any(name.startswith(first) for name in names)
    ] == []


def lost_command():
    """Send a command to a Java that ends before it answers; return the answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = GatewayClient(gateway_parameters=GatewayParameters(port=server.getsockname()[1]))

        def end() -> None:
            server.accept()[0].close()

        ended = threading.Thread(target=end)
        ended.start()
        answer = client.send_command("x\n", retry=False)
        ended.join()
        return answer


def test_the_end_of_java_leaves_no_traceback_of_py4j_in_the_log(caplog):
    root = logging.getLogger()
    py4j = logging.getLogger("py4j")
    filters, level = root.filters, py4j.level
    root.filters = []  # An earlier test may have started a Spark.
    py4j.setLevel(logging.NOTSET)
    try:
        assert lost_command() == protocol.ERROR
        loud = len(caplog.records)
        hush_py4j()
        assert lost_command() == protocol.ERROR
        logging.getLogger("py4j.clientserver").error("as a child of its logger")
    finally:
        root.filters = filters
        py4j.setLevel(level)

    assert loud >= 1
    assert len(caplog.records) == loud


class OfLostJava:
    """A broadcast: pickling it asks Java for its id."""

    def __reduce__(self):
        raise ConnectionRefusedError("Java is gone")


def lost_pickles():
    """Pickle a broadcast in both ways that PySpark has; return the errors."""
    errors = []
    for pickled in (
        lambda: CloudPickleSerializer().dumps(OfLostJava()),
        lambda: broadcast.Broadcast(path="nowhere").dump(OfLostJava(), io.BytesIO()),
    ):
        with pytest.raises(pickle.PicklingError) as caught:
            pickled()
        errors.append(str(caught.value))
    return errors


def test_the_end_of_java_under_a_pickled_broadcast_prints_no_traceback(capsys, monkeypatch):
    monkeypatch.setattr(util, "print_exec", lambda stream: stream.write("Traceback"))
    monkeypatch.setattr(broadcast, "print_exec", lambda stream: stream.write("Traceback"))
    loud = lost_pickles()
    assert capsys.readouterr().err.count("Traceback") == 2

    hush_serializers()
    assert lost_pickles() == loud
    assert all("Java is gone" in each for each in loud)
    assert capsys.readouterr().err == ""


def test_pyspark_comes_without_sql_until_someone_imports_it():
    program = """
import sys
from bicycle_runtime.engine.spark.java import import_spark

import_spark()
import_spark()
import pyspark
assert not hasattr(pyspark, "sql") and not hasattr(pyspark, "none")
assert not {"pyspark.sql", "numpy"} & sys.modules.keys()
from pyspark import Row
from pyspark.sql import Row as same
assert Row is same is pyspark.sql.Row
"""
    subprocess.run([sys.executable, "-c", program], check=True)
