import subprocess
import sys

import pytest

from bicycle_runtime.jobs.errors import DOCTOR_FOUND_FAULTS
from bicycle_runtime.jobs.getting_started.doctor import Check, examine, require_health
from bicycle_runtime.jobs.home import Home
from tests.raising import raises


def by_name(home, **options):
    return {check.name: check for check in examine(Home(home), **options)}


def fake_java(folder, version):
    java = folder / "bin/java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return folder


def test_every_failed_check_has_a_fix_and_no_other_has(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))

    for check in by_name(tmp_path).values():
        assert bool(check.fix) != check.is_ok


@pytest.mark.parametrize(("version", "is_ok"), [("11.0.2", False), ("17.0.1", True), ("25", True)])
def test_java_must_be_new_enough(tmp_path, monkeypatch, version, is_ok):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", version)))

    java = by_name(tmp_path)["Java"]
    assert java.is_ok is is_ok
    assert java.found.startswith(version)


def test_a_machine_without_java_is_told_so(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert not by_name(tmp_path)["Java"].is_ok


def test_a_home_that_does_not_exist_yet_is_looked_at_above(tmp_path):
    assert by_name(tmp_path / "a/b/c")["home"].is_ok


def test_a_home_that_is_a_file_fails(tmp_path):
    (tmp_path / "file").write_text("")

    assert not by_name(tmp_path / "file")["home"].is_ok


def test_a_failed_check_is_an_error_that_names_it():
    checks = [Check(name="a", is_ok=True, found="1"), Check(name="b", is_ok=False, found="2")]

    with raises(DOCTOR_FOUND_FAULTS) as caught:
        require_health(checks)
    assert (caught.value.facts["names"], caught.value.facts["count"]) == ("b", 1)
    require_health(checks[:1])


def test_a_limit_of_open_files_that_java_cannot_live_with_is_told(tmp_path):
    program = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))\n"
        "from pathlib import Path\n"
        "from bicycle_runtime.jobs.getting_started.doctor import examine\n"
        "from bicycle_runtime.jobs.home import Home\n"
        f"checks = examine(Home(Path({str(tmp_path)!r})))\n"
        "print([c.is_ok for c in checks if c.name == 'open files'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )

    assert (done.stdout.strip(), done.returncode) == ("[False]", 0), done.stderr
    assert by_name(tmp_path)["open files"].is_ok
