"""Settings of Spark that Java must know when it starts: memory, and options of the user's own."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.spark.jobsite import JobSite

pytestmark = pytest.mark.spark

MIB = 1 << 20


def _java_started_with(site: JobSite, *settings: str) -> list[str]:
    """Return the command of Spark's Java process in a job with these settings."""
    (site.input / "lines.txt").write_text("ada bob\n")
    site.environment = {}
    fault = "before_seal@1=hold"
    words = [word for setting in settings for word in ("--conf", setting)]
    life = site.start(*words, faults=fault)
    life.wait_for_fault(fault)
    command = site.java().command.decode().rstrip("\0").split("\0")
    life.release()
    assert life.wait() == 0, life.stderr
    return command


def _flags(command: list[str]) -> dict[str, str]:
    """Return what Java itself makes of the options of a command."""
    options = command[: command.index("org.apache.spark.deploy.SparkSubmit")]
    asked = [*options, "-XX:+PrintFlagsFinal", "-version"]
    plain = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    told = subprocess.run(asked, capture_output=True, text=True, check=True, env=plain).stdout
    return dict(re.findall(r"^ *\w+ (\w+) += (\S+)", told, re.MULTILINE))


def test_memory_and_options_of_the_user_reach_java(site: JobSite):
    command = _java_started_with(
        site,
        "spark.driver.memory=700m",
        "spark.driver.extraJavaOptions=-Dtold='a b' -XX:+UseSerialGC",
    )

    flags = _flags(command)
    assert int(flags["MaxHeapSize"]) == 700 * MIB
    assert (flags["UseSerialGC"], flags["TieredStopAtLevel"]) == ("true", "4")
    assert "-Dtold=a b" in command


def test_java_does_without_its_second_compiler_unless_the_user_says_otherwise(site: JobSite):
    flags = _flags(_java_started_with(site))

    assert (flags["TieredStopAtLevel"], int(flags["MaxHeapSize"])) == ("1", 1024 * MIB)


def test_options_that_can_not_be_read_are_refused(site: JobSite):
    life = site.run("--conf", "spark.driver.extraJavaOptions=-Dtold='a b")

    assert life.process.returncode != 0
    assert "spark.driver.extraJavaOptions: No closing quotation" in life.answer["facts"]["reason"]
    site.wait_for_no_process()
