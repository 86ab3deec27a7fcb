import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bicycle_runtime.extraction.discovery import PluginRef
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.jobs.errors import SCAFFOLD_REFUSED
from bicycle_runtime.jobs.getting_started.scaffold import project_files, write_project
from tests.raising import raises

SDK = Path(__file__).parents[4] / "plugin_sdk/src"


def test_the_tests_of_a_new_project_pass_and_its_job_can_be_extracted(tmp_path):
    folder = write_project("clicks-per-user", tmp_path)
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-W", "error"),
            *("-p", "no:cacheprovider", "-p", "no:asyncio"),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(SDK), "PATH": ""},
    )
    ref = PluginRef(
        name="clicks-per-user",
        module="clicks_per_user",
        attribute="clicks_per_user",
        dist_name="clicks-per-user",
        dist_version="0.1.0",
        location=str(folder / "src"),
    )
    bundle = extract(ref, {"input": "in", "output": "out"})

    assert result.returncode == 0, result.stdout + result.stderr
    assert (bundle.plugin, bundle.plugin_version) == ("clicks-per-user", "0.1.0")
    assert set(bundle.shipping.values()) == {"by reference"}


def test_the_entry_point_leads_to_the_job():
    files = project_files("my-job")
    points = tomllib.loads(files["pyproject.toml"])["project"]["entry-points"]

    assert points["bicycle.plugins"] == {"my-job": "my_job:my_job"}
    assert "def my_job(" in files["src/my_job/__init__.py"]


def test_the_plugin_has_at_most_twenty_lines():
    lines = project_files("my-job")["src/my_job/__init__.py"].splitlines()

    assert len([line for line in lines if line.strip()]) <= 20


def test_the_project_keeps_to_the_linter(tmp_path):
    folder = write_project("my-job", tmp_path)
    ruff = Path(sys.executable).with_name("ruff")
    for words in (["check", "--select", "E,F,I,B,UP"], ["format", "--check"]):
        command = [ruff, words[0], "--isolated", "--line-length", "100", *words[1:], "."]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    "name", ["", "Clicks", "1st", "a--b", "a-", "a b", "../x", "class", "json", "bicycle", "a" * 41]
)
def test_a_name_that_cannot_be_a_module_is_refused(name, tmp_path):
    with raises(SCAFFOLD_REFUSED):
        write_project(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_text("x")

    with raises(SCAFFOLD_REFUSED):
        write_project("mine", tmp_path)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes"]
