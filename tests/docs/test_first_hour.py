"""The commands of the first hour are typed one after the other, and do what the page says."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.scripts import DOCS
from tests.waiting import until

PAGE = (DOCS / "tutorial/first-hour.md").read_text("utf-8")
BICYCLE = Path(sys.executable).with_name("bicycle")


def block(language: str, heading: str) -> str:
    """Return the first block of a language behind a heading."""
    section = PAGE.partition(f"\n## {heading}")[2]
    return re.search(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "visits.py").write_text(block("python", "2."), "utf-8")
    (tmp_path / "visits.csv").write_text(block("text", "4."), "utf-8")
    return tmp_path


@pytest.fixture
def bicycle(folder):
    """Runs a command line of the page, and returns what it printed."""
    environment = os.environ | {"BICYCLE_HOME": str(folder / "home")}

    def run(line: str) -> str:
        command = [str(BICYCLE), *shlex.split(line.removeprefix("bicycle "))]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    yield run
    for job in json.loads(run("list --json")):
        if job["state"] in ("RUNNING", "RESTARTING", "STOPPING", "CREATED"):
            run(f"cancel {job['id']}")


def lines_of(heading: str) -> list[str]:
    text = block("sh", heading).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.startswith("bicycle ")]


def output_of(folder: Path) -> list[str]:
    files = sorted(folder.rglob("*.jsonl"))
    return sorted(
        line.strip('"') for f in files for line in f.read_text("utf-8").split("\n") if line
    )


def append(folder: Path, line: str) -> None:
    with (folder / "visits.csv").open("a", encoding="utf-8") as file:
        file.write(line + "\n")


@pytest.mark.extended
@pytest.mark.spark
def test_each_command_does_what_the_page_says(folder, bicycle):
    plan, run = lines_of("4.")
    assert "exactly once" in bicycle(plan).replace("-", " ")
    bicycle(run)
    before = output_of(folder / "out")
    append(folder, "ada,/home")
    bicycle(run)
    assert sorted([*before, "ada /home 3"]) == output_of(folder / "out")

    submit, status = lines_of("5.")
    bicycle(submit)
    append(folder, "bob,/cart")

    def seen() -> dict:
        return json.loads(bicycle(f"{status} --json"))

    until(lambda: seen()["event_count"] == 5, "the fifth visit")
    os.kill(seen()["pid"], signal.SIGKILL)
    append(folder, "bob,/cart")
    until(lambda: seen()["event_count"] == 6, "the sixth visit")
    assert seen()["restart_count"] == 1

    checkpoints, get, diff = lines_of("6.")
    epochs = [str(e["epoch"]) for e in json.loads(bicycle(f"{checkpoints} --json"))["epochs"]]
    assert '"ada"' in bicycle(get)
    bicycle(diff.replace("diff 1 2", f"diff {epochs[1]} {epochs[0]}"))

    for line in lines_of("7."):
        bicycle(line)
    assert "ada /home 3" in output_of(folder / "live-out")
