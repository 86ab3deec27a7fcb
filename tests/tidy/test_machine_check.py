"""``.ci/check-machine`` finds Java and Python as Spark and make do, and names the fix."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "check-machine"
BASIC_TOOLS = ("sh", "sed", "head", "env")


class Machine:
    """A PATH with basic tools only, onto which a test puts a Java and a Python of its choice."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.bin.mkdir()
        self.variables = {"PATH": str(self.bin)}
        for tool in BASIC_TOOLS:
            place = next(p for d in os.get_exec_path() if (p := Path(d) / tool).exists())
            (self.bin / tool).symlink_to(place)

    def put(self, name: str, script: str) -> None:
        place = self.bin / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!/bin/sh\n{script}\n")
        place.chmod(0o755)

    def put_java(self, version: str, *, name: str = "java", before: str = "") -> None:
        self.put(name, f"{before}\necho 'openjdk version \"{version}\" 2025-04-15' >&2")

    def put_python(self, version: str, *, has_venv: bool = True) -> None:
        code = f'case "$2" in *ensurepip*) exit {int(not has_venv)};; *) echo {version};; esac'
        self.put("python3", code)

    def check(self) -> tuple[int, list[str]]:
        done = subprocess.run(
            ["/bin/sh", SCRIPT], env=self.variables, capture_output=True, text=True, check=False
        )
        assert done.stdout == ""
        return done.returncode, done.stderr.splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.put_python("3.11")
    made.put_java("17.0.15")
    return made


def test_a_machine_that_has_all_gets_no_line(machine):
    assert machine.check() == (0, [])


@pytest.mark.parametrize("version", ["17", "17.0.15", "21", "21.0.2+13", "25-ea", "100.1"])
def test_java_from_17_on_is_accepted_however_its_version_is_written(machine, version):
    machine.put_java(version)

    assert machine.check() == (0, [])


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_392", 8), ("9", 9), ("11.0.22", 11), ("16-ea", 16)]
)
def test_an_old_java_is_refused_with_the_fix(machine, version, major):
    machine.put_java(version)

    assert machine.check() == (
        1,
        [f"bicycle needs Java 17 or newer, found {major}: apt-get install openjdk-17-jre-headless"],
    )


def test_a_missing_java_is_one_line_with_the_fix(machine):
    (machine.bin / "java").unlink()

    status, [line] = machine.check()

    assert status == 1
    assert "Java 17" in line
    assert "found none on PATH" in line
    assert "apt-get install" in line


def test_java_home_comes_before_path(machine):
    machine.put_java("11", name="java")
    machine.put_java("17.0.1", name="home/bin/java")
    machine.variables["JAVA_HOME"] = str(machine.bin / "home")

    assert machine.check() == (0, [])


def test_an_old_java_in_java_home_is_refused_although_path_has_a_newer_one(machine):
    machine.put_java("11", name="home/bin/java")
    machine.variables["JAVA_HOME"] = str(machine.bin / "home")

    status, [line] = machine.check()

    assert (status, "found 11" in line, "JAVA_HOME" in line) == (1, True, True)


def test_an_empty_java_home_is_named(machine):
    machine.variables["JAVA_HOME"] = "/nowhere"

    status, [line] = machine.check()

    assert (status, "/nowhere" in line) == (1, True)


def test_what_java_picks_up_from_the_environment_does_not_hide_its_version(machine):
    machine.put_java("21.0.1", before="echo 'Picked up JAVA_TOOL_OPTIONS: -Dx=1' >&2")

    assert machine.check() == (0, [])


def test_a_java_that_only_fails_is_refused(machine):
    machine.put("java", "echo 'cannot map memory' >&2; exit 1")

    status, [line] = machine.check()

    assert (status, "tells no version" in line) == (1, True)


@pytest.mark.parametrize("version", ["3.10", "3.9", "2.7"])
def test_an_old_python_is_refused_with_the_fix(machine, version):
    machine.put_python(version)

    status, [line] = machine.check()

    assert (status, f"found {version}" in line, "apt-get install" in line) == (1, True, True)


@pytest.mark.parametrize("version", ["3.12", "3.20", "4.0"])
def test_a_newer_python_is_accepted(machine, version):
    machine.put_python(version)

    assert machine.check() == (0, [])


def test_a_python_without_venv_is_refused(machine):
    machine.put_python("3.12", has_venv=False)

    status, [line] = machine.check()

    assert (status, "python3-venv" in line) == (1, True)


def test_the_python_of_the_variable_is_the_one_looked_at(machine):
    machine.put_python("3.9")
    machine.put("mine", "echo 3.13")
    machine.variables["PYTHON"] = "mine"

    assert machine.check() == (0, [])


def test_everything_missing_is_said_at_once(machine):
    (machine.bin / "java").unlink()
    (machine.bin / "python3").unlink()

    status, lines = machine.check()

    assert (status, len(lines)) == (1, 2)
