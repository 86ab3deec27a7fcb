"""``bicycle service install``: units of systemd."""

import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ACCOUNT = pwd.getpwuid(os.geteuid()).pw_name
_FOUND = shutil.which("systemd-analyze")
ANALYZERS = [_FOUND] if _FOUND or "CI" not in os.environ else ["systemd-analyze"]
PAGES = Path(__file__).parents[3] / "docs/how-to"
_LINE = re.compile(r"^bicycle service install(.*)$", re.MULTILINE)
COMMANDS = [
    shlex.split(words)
    for page in ("deploy.md", "yarn.md")
    for words in _LINE.findall((PAGES / page).read_text("utf-8").replace("\\\n", " "))
]


@pytest.fixture
def install(shell, tmp_path):
    def call(*words, unit="bicycle", user=ACCOUNT):
        done = shell.run(
            *("service", "install", "--dir", str(tmp_path / "units"), "--unit", unit),
            *("--user", user, *words),
        )
        return done, tmp_path / f"units/{unit}.service"

    return call


@pytest.fixture
def parameters(tmp_path):
    """Put the parameter files of the pages into a folder of the test."""

    def call(word):
        if word.startswith("/etc/bicycle/"):
            word = str(tmp_path / Path(word).name)
            Path(word).touch()
        return word

    return call


def settings(path):
    """Return the settings of a unit; one that is set again has its last value."""
    lines = path.read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")


def complaints(analyzer, path):
    """Return the problems that systemd finds in a unit."""
    verified = subprocess.run(
        [analyzer, "verify", str(path)], capture_output=True, text=True, check=False
    )
    return verified.stderr + (f"exit code {verified.returncode}" if verified.returncode else "")


@pytest.mark.parametrize("euid", [0, 1_000])
@pytest.mark.parametrize("analyzer", ANALYZERS)
def test_systemd_accepts_the_units_of_the_service_and_of_a_job(
    install, monkeypatch, analyzer, euid
):
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    words = ("run", "--plugin", "wordcount", "--set", 'input=/a b/$x%"y\\', "--conf", "spark.a=1")

    for unit, path in (install(), install("--", *words, unit="orders")):
        assert unit.exit_code == 0
        assert complaints(analyzer, path) == ""


@pytest.mark.parametrize("analyzer", ANALYZERS)
@pytest.mark.parametrize("words", COMMANDS)
def test_systemd_accepts_the_units_that_the_pages_install(install, parameters, analyzer, words):
    unit = words[words.index("--unit") + 1] if words else "bicycle"
    done, path = install(*map(parameters, words), unit=unit)

    assert done.exit_code == 0, done.stderr
    assert complaints(analyzer, path) == ""


def test_the_page_shows_the_unit_of_its_job(install, parameters, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    [words] = [words for words in COMMANDS if "orders" in words]
    _, path = install(*map(parameters, words), unit="orders")

    text = path.read_text("utf-8").replace(str(Path(sys.executable).parent), "/opt/bicycle/bin")
    text = text.replace(str(tmp_path), "/etc/bicycle")
    [shown] = re.findall(r"```ini\n(.*?)```", (PAGES / "deploy.md").read_text("utf-8"), re.DOTALL)
    of_page = shown.replace("User=bicycle", f"User={ACCOUNT}").splitlines()
    assert [line for line in text.splitlines() if line in of_page] == of_page


def test_the_unit_of_the_service_leaves_its_jobs_running(install):
    done, path = install()

    program = str(Path(sys.executable).with_name("bicycle"))
    assert shlex.split(settings(path)["ExecStart"]) == [program, "up"]
    assert settings(path)["KillMode"] == "process"
    assert f"wrote {path}" in done.stdout


def test_the_unit_of_a_job_waits_for_the_time_limit_of_its_stop(install):
    value = "input=/a b/$x%\"y\\'"
    words = ("run", "--plugin", "orders", "--set", value, "--stop-timeout-ms", "60s")
    _, path = install("--", *words)

    started = shlex.split(settings(path)["ExecStart"].replace("$$", "$").replace("%%", "%"))
    assert started[1:] == [*words]
    assert (settings(path)["KillMode"], settings(path)["TimeoutStopSec"]) == ("mixed", "75")


def test_root_writes_a_unit_of_an_account_with_a_directory_of_state(install, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("JAVA_HOME", "/opt/java 17")
    _, path = install()

    found = settings(path)
    assert (found["User"], found["StateDirectory"]) == (ACCOUNT, "bicycle")
    assert shlex.split(found["Environment"]) == [
        *("BICYCLE_HOME=/var/lib/bicycle", "JAVA_HOME=/opt/java 17")
    ]
    assert found["WantedBy"] == "multi-user.target"


def test_a_user_writes_a_unit_with_the_own_home(install, shell, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    done, path = install()

    found = settings(path)
    assert "User" not in found
    assert shlex.split(found["Environment"]) == [f"BICYCLE_HOME={shell.home.path}"]
    assert found["WantedBy"] == "default.target"
    assert "systemctl --user daemon-reload" in done.stdout


def test_a_unit_is_replaced_unless_another_program_wrote_it(install):
    install("--", "up", "--port", "9100")
    _, path = install()

    assert "9100" not in path.read_text("utf-8")
    path.write_text("[Unit]\n", "utf-8")
    refused, _ = install()
    assert (refused.exit_code, path.read_text("utf-8")) == (2, "[Unit]\n")
    assert "another program" in refused.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("submit", "--plugin", "orders"), "got 'submit'"),
        (("stream", "graph"), "got 'stream graph'"),
        (("up", "--detach"), "--detach"),
        (("up", "--prot", "1"), "--prot"),
        (("fly",), "fly"),
    ],
)
def test_a_command_that_cannot_be_a_unit_is_refused(install, words, reason):
    done, path = install("--", *words)

    assert (done.exit_code, path.exists()) == (2, False)
    assert reason in done.stderr


def test_names_of_units_and_accounts_are_checked(install, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    assert install(unit="a/../b")[0].exit_code == 2
    done, path = install(user="nobody-has-this-name")
    assert (done.exit_code, path.exists()) == (2, False)
    assert "useradd --system nobody-has-this-name" in done.stderr
