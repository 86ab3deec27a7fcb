"""A wrong chain is a type error in the editor: mypy and pyright agree with the marks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = (
    "good_chains.py",
    "good_connectors.py",
    "good_joins.py",
    "good_states.py",
    "good_windows.py",
    "wrong_chains.py",
)


def marked_lines() -> set[tuple[str, int]]:
    return {
        (name, number)
        for name in FILES
        for number, line in enumerate((HERE / name).read_text().splitlines(), start=1)
        if line.endswith("# wrong")
    }


def mypy_lines() -> set[tuple[str, int]]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--output=json"]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "plugin_sdk/src")}
    done = subprocess.run(
        [*command, *(str(HERE / name) for name in FILES)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found, done.stderr
    return {(Path(item["file"]).name, item["line"]) for item in found}


def pyright_lines() -> set[tuple[str, int]]:
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--project", str(HERE), "--outputjson"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {(Path(item["file"]).name, item["range"]["start"]["line"] + 1) for item in found}


@pytest.mark.parametrize("checker", [mypy_lines, pyright_lines])
def test_a_checker_rejects_the_wrong_chains_and_nothing_else(checker):
    assert checker() == marked_lines()


def test_the_examples_mark_wrong_chains():
    assert {name for name, _ in marked_lines()} == {"wrong_chains.py"}
