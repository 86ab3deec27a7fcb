"""``bicycle service install``: units of systemd."""

import os
import pwd
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ACCOUNT = pwd.getpwuid(os.geteuid()).pw_name
_FOUND = shutil.which("systemd-analyze")
ANALYZERS = [_FOUND] if _FOUND else []


@pytest.fixture
def install(shell, tmp_path):
    def call(*words, unit="bicycle", user=ACCOUNT):
        done = shell.run(
            *("service", "install", "--dir", str(tmp_path / "units"), "--unit", unit),
            *("--user", user, *words),
        )
        return done, tmp_path / f"units/{unit}.service"

    return call


def settings(path):
    """Return the settings of a unit; one that is set again has its last value."""
    lines = path.read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")


@pytest.mark.parametrize("euid", [0, 1_000])
@pytest.mark.parametrize("analyzer", ANALYZERS)
def test_systemd_accepts_the_units_of_the_service_and_of_a_job(
    install, monkeypatch, analyzer, euid
):
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    words = ("run", "--plugin", "wordcount", "--set", 'input=/a b/$x%"y\\', "--conf", "spark.a=1")

    for unit, path in (install(), install("--", *words, unit="orders")):
        verified = subprocess.run(
            [analyzer, "verify", str(path)], capture_output=True, text=True, check=False
        )

        assert unit.exit_code == 0
        assert (verified.returncode, verified.stderr) == (0, "")


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
