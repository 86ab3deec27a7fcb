"""Settings of Spark that Java must know when it starts: memory, and options of the user's own."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.spark.jobsite import JobSite

pytestmark = pytest.mark.spark

MIB = 1 << 20


class Started(NamedTuple):
    """How Spark's Java process was started."""

    command: list[str]
    environment: list[str]


def _java_started_with(site: JobSite, *settings: str) -> Started:
    """Return how Spark's Java process is started in a job with these settings."""
    (site.input / "lines.txt").write_text("ada bob\n")
    site.environment = {}
    fault = "before_seal@1=hold"
    words = [word for setting in settings for word in ("--conf", setting)]
    life = site.start(*words, faults=fault)
    life.wait_for_fault(fault)
    java = site.java()
    environment = Path(f"/proc/{java.pid}/environ").read_text()
    life.release()
    assert life.wait() == 0, life.stderr
    command = java.command.decode()
    return Started(command.rstrip("\0").split("\0"), environment.split("\0"))


def _flags(command: list[str]) -> dict[str, str]:
    """Return what Java itself makes of the options of a command."""
    options = command[: command.index("org.apache.spark.deploy.SparkSubmit")]
    asked = [*options, "-XX:+PrintFlagsFinal", "-version"]
    plain = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    told = subprocess.run(asked, capture_output=True, text=True, check=True, env=plain).stdout
    return dict(re.findall(r"^ *\w+ (\w+) += (\S+)", told, re.MULTILINE))


def test_memory_and_options_of_the_user_reach_java(site: JobSite):
    command, _ = _java_started_with(
        site,
        "spark.driver.memory=700m",
        "spark.driver.extraJavaOptions=-Dtold='a b' -XX:+UseSerialGC",
    )

    flags = _flags(command)
    assert int(flags["MaxHeapSize"]) == 700 * MIB
    assert (flags["UseSerialGC"], flags["TieredStopAtLevel"]) == ("true", "4")
    assert "-Dtold=a b" in command


def test_paths_of_the_user_come_before_those_of_spark(site: JobSite, tmp_path: Path):
    classes, libraries = tmp_path / "classes", tmp_path / "libraries"
    command, environment = _java_started_with(
        site,
        f"spark.driver.extraClassPath={classes}",
        f"spark.driver.extraLibraryPath={libraries}",
        "spark.driver.defaultJavaOptions=-Dtold=first",
        "spark.driver.extraJavaOptions=-Dtold=last",
    )

    paths = command[command.index("-cp") + 1].split(os.pathsep)
    assert paths[0] == str(classes)
    assert any("pyspark" in path for path in paths[1:])
    assert command.index("-Dtold=first") < command.index("-Dtold=last")
    assert any(re.fullmatch(f"LD_LIBRARY_PATH={libraries}(:.*)?", line) for line in environment)


def test_java_does_without_its_second_compiler_unless_the_user_says_otherwise(site: JobSite):
    flags = _flags(_java_started_with(site).command)

    assert (flags["TieredStopAtLevel"], int(flags["MaxHeapSize"])) == ("1", 1024 * MIB)


def test_options_that_cannot_be_read_are_refused(site: JobSite):
    life = site.run("--conf", "spark.driver.extraJavaOptions=-Dtold='a b")

    assert life.process.returncode != 0
    assert "spark.driver.extraJavaOptions: No closing quotation" in life.answer["facts"]["reason"]
    site.wait_for_no_process()
