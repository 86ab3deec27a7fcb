import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bicycle_runtime.dev.kafka_jars import FetchFailure, Jar, fetchers
from tests.waiting import PATIENCE_S

JARS = [
    Jar(group="org.sample", artifact=name, version="1.0", sha256="", size_bytes=0)
    for name in ("wheel", "bell")
]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A PATH with nothing but scripts of the test; returns how to add one."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    def add(name, text):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)

    return add


def way(name):
    return dict(fetchers())[name]


def test_maven_comes_before_ivy(programs):
    programs("mvn", "exit 0")

    assert [name for name, _ in fetchers()] == ["Maven", "Ivy"]


def test_ivy_is_used_where_there_is_no_maven(programs):
    assert [name for name, _ in fetchers()] == ["Ivy"]


def test_finding_ivy_does_not_import_pyspark():
    code = (
        "import sys; from bicycle_runtime.dev.kafka_jars import fetchers; "
        "assert fetchers(); assert 'pyspark' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S, env=environment)


def test_maven_is_asked_for_each_jar_and_for_nothing_that_a_jar_needs(programs, tmp_path):
    programs("mvn", "exit 0")

    way("Maven")(JARS, tmp_path)

    names = {"m": "http://maven.apache.org/POM/4.0.0"}
    project = ElementTree.parse(tmp_path / "pom.xml")
    dependencies = project.findall(".//m:dependency", names)
    assert [d.findtext("m:artifactId", namespaces=names) for d in dependencies] == ["wheel", "bell"]
    for dependency in dependencies:
        excluded = dependency.findall("m:exclusions/m:exclusion/*", names)
        assert [part.text for part in excluded] == ["*", "*"]


def test_ivy_is_asked_for_each_jar_and_for_nothing_that_a_jar_needs(programs, tmp_path):
    programs("java", 'case "$*" in *-version*) echo \'version "17"\' >&2 ;; esac')

    way("Ivy")(JARS, tmp_path)

    dependencies = ElementTree.parse(tmp_path / "ivy.xml").findall(".//dependency")
    assert [d.get("name") for d in dependencies] == ["wheel", "bell"]
    assert {d.get("transitive") for d in dependencies} == {"false"}


def test_settings_of_ivy_in_the_home_count(programs, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = tmp_path / ".ivy2" / "ivysettings.xml"
    settings.parent.mkdir()
    settings.write_text("<ivysettings/>")
    programs(
        "java",
        f'case "$*" in *-version*) echo \'version "17"\' >&2 ;; *) echo "$*" > {tmp_path}/words ;; '
        "esac",
    )

    way("Ivy")(JARS, tmp_path)

    assert f"-settings {settings}" in Path(tmp_path / "words").read_text()


def test_what_went_wrong_is_taken_from_the_output(programs, tmp_path):
    programs("mvn", "echo nothing special; echo '[ERROR] no route to the repository'; exit 3")

    with pytest.raises(FetchFailure) as failure:
        way("Maven")(JARS, tmp_path)

    assert "no route to the repository" in str(failure.value)
    assert "nothing special" not in str(failure.value)
    assert "exit code 3" in str(failure.value)


def test_a_maven_that_cannot_be_run_is_a_failure(programs, tmp_path):
    programs("mvn", "exit 0")
    maven = way("Maven")
    (tmp_path / "programs" / "mvn").unlink()

    with pytest.raises(FetchFailure):
        maven(JARS, tmp_path)
