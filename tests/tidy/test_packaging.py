"""The distributions, the lock file and the code agree about names and versions."""

import ast
import importlib
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.lock_file import FOLDER, RUNTIME, lock_of, locked, locked_lines

ROOT = Path(__file__).parents[2]
STANDARD_LIBRARY = sys.stdlib_module_names | {"annotationlib"}  # Of 3.11, and of 3.14.
PROJECTS = [
    ROOT / "plugin_sdk/pyproject.toml",
    ROOT / "streams/pyproject.toml",
    ROOT / "runtime/pyproject.toml",
    ROOT / "deploy/operator/pyproject.toml",
    *sorted(ROOT.glob("plugins/*/pyproject.toml")),
]
DEMO_PROJECTS = [file for file in PROJECTS if file.parent.name != "operator"]
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
OURS = {"bicycle-sdk", "bicycle-streams"}
LOCKS = sorted(FOLDER.glob("*.lock"))


def project_of(file: Path) -> dict:
    return tomllib.loads(file.read_text(encoding="utf-8"))["project"]


def requirements_of(file: Path) -> list[Requirement]:
    project = project_of(file)
    extras = project.get("optional-dependencies", {}).values()
    texts = [*project.get("dependencies", []), *(text for extra in extras for text in extra)]
    return [Requirement(text) for text in texts]


def imported_modules(folder: Path) -> set[str]:
    """Return the top-level names that the code below a folder imports absolutely."""
    names = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names


def test_the_extra_all_has_every_extra_but_that_of_tests():
    extras = project_of(ROOT / "runtime/pyproject.toml")["optional-dependencies"]
    [everything] = map(Requirement, extras["all"])

    assert everything.name == "bicycle-runtime"
    assert everything.extras == set(extras) - {"all", "testing"}


def test_there_are_the_sdk_the_toolkit_the_runtime_and_the_word_counts():
    names = {project_of(file)["name"] for file in PROJECTS}

    plugins = {"bicycle-wordcount", "bicycle-wordcount-kafka"}

    assert {"bicycle-sdk", "bicycle-streams", "bicycle-runtime", *plugins} <= names


@pytest.mark.parametrize("file", PROJECTS, ids=lambda file: file.parent.name)
def test_what_a_distribution_asks_for_is_locked_in_a_version_that_fits(file):
    ours = {canonicalize_name(project_of(other)["name"]): other for other in PROJECTS}

    for requirement in requirements_of(file):
        name = canonicalize_name(requirement.name)
        version = project_of(ours[name])["version"] if name in ours else locked()[name]
        assert requirement.specifier.contains(version, prereleases=True), requirement


@pytest.mark.parametrize("group", GROUPS)
def test_every_tool_of_a_group_is_locked(group):
    tools = {Requirement(t).name for t in GROUPS[group] if isinstance(t, str)}

    assert {canonicalize_name(tool) for tool in tools} <= locked(lock_of(group)).keys()


@pytest.mark.parametrize("file", DEMO_PROJECTS, ids=lambda file: file.parent.name)
def test_the_lock_of_the_demo_has_what_a_distribution_needs_without_extras(file):
    names = {Requirement(text).name for text in project_of(file).get("dependencies", [])}

    assert {canonicalize_name(n) for n in names} - OURS <= locked(RUNTIME).keys()


def test_no_package_is_locked_twice():
    names = [line.partition("==")[0] for line in locked_lines(RUNTIME, lock_of("dev"))]

    assert len(names) == len(set(names))


def test_each_lock_file_belongs_to_a_group():
    files = {lock_of(group) for group in GROUPS}

    assert files == set(LOCKS)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_names_each_package_in_order(lock):
    names = [line.partition("==")[0] for line in locked_lines(lock)]

    assert names == sorted(names)
    assert all(canonicalize_name(name) == name for name in names)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_has_a_hash_for_each_package(lock):
    text = lock.read_text(encoding="utf-8")
    locks = re.findall(
        r"^\S+==\S+(?: ; .*)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+$", text, re.MULTILINE
    )

    assert len(locks) == len(locked_lines(lock))


@pytest.mark.parametrize(
    "module", ["bicycle_sdk", "bicycle_streams", "bicycle_runtime", "bicycle_operator"]
)
def test_the_version_in_code_is_that_of_the_distribution(module):
    [file] = [f for f in PROJECTS if project_of(f)["name"] == module.replace("_", "-")]

    assert importlib.import_module(module).__version__ == project_of(file)["version"]


def test_the_sdk_asks_for_nothing_and_imports_the_standard_library_only():
    imported = imported_modules(ROOT / "plugin_sdk/src")

    assert requirements_of(ROOT / "plugin_sdk/pyproject.toml") == []
    # The preview of a stream asks for the runtime when it is called, and says so when it is absent.
    assert imported - STANDARD_LIBRARY - {"bicycle_sdk", "bicycle_runtime"} == set()


@pytest.mark.parametrize("file", PROJECTS, ids=lambda file: file.parent.name)
def test_whatever_a_distribution_imports_it_declares(file):
    declared = {canonicalize_name(requirement.name) for requirement in requirements_of(file)}
    own = {folder.name for folder in (file.parent / "src").iterdir()}
    providers = packages_distributions()
    foreign = imported_modules(file.parent / "src") - STANDARD_LIBRARY - own
    if own == {"bicycle_sdk"}:
        foreign -= {"bicycle_runtime"}

    for name in foreign:
        assert declared & {canonicalize_name(d) for d in providers[name]}, name


def test_the_operator_has_at_most_600_lines():
    files = (ROOT / "deploy/operator/src").rglob("*.py")

    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) <= 600


@pytest.mark.parametrize("file", PROJECTS, ids=lambda file: file.parent.name)
def test_every_distribution_is_free_to_use_and_names_its_python(file):
    project = project_of(file)

    assert (project["license"], project["requires-python"]) == ("Apache-2.0", ">=3.11")


def test_the_section_of_a_release_in_the_changelog_is_short():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]

    assert re.match(r"0\.1\.0 \((unreleased|\d{4}-\d\d-\d\d)\)\n", sections[-1])
    assert [each.partition("\n")[0] for each in sections if each.count("\n") > 80] == []
