"""What newcomers, editors, pipelines and package indexes read agrees with the repository."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.scripts import command_words

ROOT = Path(__file__).parents[2]
PROJECTS = [
    ROOT / "plugin_sdk/pyproject.toml",
    ROOT / "streams/pyproject.toml",
    ROOT / "runtime/pyproject.toml",
    ROOT / "deploy/operator/pyproject.toml",
    *sorted(ROOT.glob("plugins/*/pyproject.toml")),
]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
VERSIONS = ["3.11", "3.12", "3.13", "3.14"]
# The project has no web address yet, so package metadata and package readmes contain none.
PLACEHOLDER = "bicycle.example"


def project_of(file: Path) -> dict:
    return tomllib.loads(file.read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("file", PROJECTS, ids=lambda file: file.parent.name)
def test_a_distribution_has_no_placeholder_address(file):
    assert PLACEHOLDER not in file.read_text("utf-8")
    assert PLACEHOLDER not in (file.parent / "README.md").read_text("utf-8")


@pytest.mark.parametrize("file", PROJECTS, ids=lambda file: file.parent.name)
def test_a_distribution_brings_readme_licence_and_keywords(file):
    project = project_of(file)
    texts = [file.parent / project["readme"], *(file.parent / n for n in project["license-files"])]

    assert [text.name for text in texts] == ["README.md", "LICENSE"]
    assert texts[1].read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert project["name"] in texts[0].read_text("utf-8").splitlines()[0]
    assert project["keywords"]


@pytest.mark.parametrize("file", PROJECTS, ids=lambda file: file.parent.name)
def test_a_distribution_names_the_versions_of_python_that_are_tested(file):
    classifiers = project_of(file)["classifiers"]
    named = [c.rpartition(" ")[2] for c in classifiers if re.search(r":: 3\.\d+$", c)]

    assert named == VERSIONS
    assert "Typing :: Typed" in classifiers
    assert list((file.parent / "src").glob("*/py.typed"))


def test_workflows_run_what_anybody_can_run_here():
    steps = [step for file in WORKFLOWS for step in steps_of(file.read_text("utf-8"))]

    assert len(steps) >= 5
    assert [step for step in steps if not is_known(step)] == []


def test_a_step_that_leads_nowhere_is_noticed():
    text = "      - run: make fly\n      - run: .ci/run\n      - run: .venv/bin/nox -s gone\n"

    assert [is_known(step) for step in steps_of(text)] == [False, True, False]


@pytest.mark.parametrize("name", ["checks", "all-tests"])
def test_the_matrix_has_each_supported_version(name):
    text = (ROOT / f".github/workflows/{name}.yml").read_text("utf-8")
    [versions] = re.findall(r"^ +python: \[(.*)\]$", text, re.MULTILINE)

    assert re.findall(r"[\d.]+", versions) == VERSIONS


def test_hooks_before_a_commit_call_make_targets():
    text = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    entries = re.findall(r"^ +entry: (.*)$", text, re.MULTILINE)

    assert {"make lint", "make types", "make imports"} <= set(entries)
    assert [entry for entry in entries if not is_known(entry)] == []


def test_editors_break_lines_where_the_linter_does():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]
    text = (ROOT / ".editorconfig").read_text("utf-8")

    assert re.findall(r"max_line_length = (\d+)", text) == [str(settings["line-length"])]


def test_versions_that_have_a_session_of_their_own_are_the_later_ones():
    sessions = re.findall(r'name="tests-(3\.\d+)"', (ROOT / "noxfile.py").read_text("utf-8"))

    assert sessions == VERSIONS[1:]


def steps_of(workflow: str) -> list[str]:
    """Return the commands that a workflow runs."""
    return re.findall(r"^ +- run: (.*)$", workflow, re.MULTILINE)


def is_known(step: str) -> bool:
    """Tell whether a command is a target of the Makefile, a session of nox, or a script here."""
    targets, sessions = command_words()
    program, *words = step.split()
    if program == "make":
        return bool(words) and set(words) <= targets
    if program.endswith("nox"):
        return words[:1] == ["-s"] and set(words[1:]) <= sessions
    return (ROOT / program).is_file()
