"""Files, folders, modules and rooms that a page names are there, and pages name what is there."""

import pkgutil
import re
import warnings
from pathlib import Path

import pytest

from tests.docs.scripts import DOCS, ROOT, faults_of_pages

RUNTIME = ROOT / "runtime/src/bicycle_runtime"
PATH = re.compile(r"`([A-Za-z_.][\w./-]*/[\w./*-]*)`")
MODULE = re.compile(r"`(bicycle_(?:sdk|streams|runtime)(?:\.\w+)+)`")
IMPORT = re.compile(
    r"^from (bicycle_(?:sdk|streams|runtime)[\w.]*) import \(?([\w, \n]+)\)?$", re.M
)
FOLDERS = (
    ".ci",
    "benchmarks",
    "changelog.d",
    "deploy",
    "docs",
    "plugin_sdk",
    "plugins",
    "runtime",
    "streams",
    "tests",
)
MADE_ON_DEMAND = {"benchmarks/released.json"}
# Rooms whose own rooms the page of the architecture tells.
HOUSES = ("", "engine", "jobs", "operators", "state")


def rooms_of(folder: Path) -> set[str]:
    """Return the packages right below a folder."""
    return {file.parent.name for file in folder.glob("*/__init__.py")}


def missing_places(text: str) -> set[str]:
    """Return the paths in code spans that look like ours and lead nowhere."""
    roots = dict.fromkeys(FOLDERS, ROOT) | dict.fromkeys(rooms_of(RUNTIME), RUNTIME)
    paths = set(PATH.findall(text)) - MADE_ON_DEMAND
    ours = {path: roots[first] for path in paths if (first := path.partition("/")[0]) in roots}
    return {path for path, root in ours.items() if not list(root.glob(path.rstrip("/")))}


def missing_names(text: str) -> set[str]:
    """Return the modules, and what is imported from modules, that are not there."""
    names = set(MODULE.findall(text))
    for module, imported in IMPORT.findall(text):
        names |= {f"{module}.{name}" for name in re.findall(r"\w+", imported)}
    return {name for name in names if not is_there(name)}


def is_there(name: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # A page may name a former path.
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            return False
    return True


def test_pages_name_only_files_and_folders_that_exist():
    assert faults_of_pages(missing_places) == {}


def test_pages_name_only_modules_that_exist_and_import_what_is_in_them():
    assert faults_of_pages(missing_names) == {}


def test_what_is_gone_is_noticed():
    text = "`tests/nowhere`, `tests/docs`, `benchmarks/bench_*.py`, `engine/gone.py`, `a/b`"
    code = "`bicycle_sdk.time`, `bicycle_sdk.gone`\nfrom bicycle_sdk.windows import Window, Wall\n"

    assert missing_places(text) == {"tests/nowhere", "engine/gone.py"}
    assert missing_names(code) == {"bicycle_sdk.gone", "bicycle_sdk.windows.Wall"}


@pytest.mark.parametrize("house", HOUSES)
def test_the_architecture_tells_every_room(house):
    text = (DOCS / "architecture.md").read_text("utf-8")
    rows = [row.partition("|")[2].partition("|")[0] for row in text.splitlines() if "|" in row]
    told = set(re.findall(r"`(\w+)`", " ".join(rows)))

    assert rooms_of(RUNTIME / house) <= told


def test_the_architecture_lists_each_decision_record_once():
    text = (DOCS / "architecture.md").read_text("utf-8")
    listed = re.findall(r"^\| \[(\d{4})\]\(adr/(\1[^)]*)\)", text, re.MULTILINE)

    assert [name for _, name in listed] == [path.name for path in sorted((DOCS / "adr").iterdir())]


def test_the_contents_lead_to_every_page():
    links = set(re.findall(r"\]\(([^)#]+)", (DOCS / "contents.md").read_text("utf-8")))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}

    assert {page for page in pages - links if not page.startswith("adr/")} == {
        "contents.md",
        "index.md",
    }


def test_the_page_of_benchmarks_tells_each_claim():
    rows = re.findall(r"^\| `(bench_\w+\.py)`", (DOCS / "benchmarks.md").read_text("utf-8"), re.M)

    assert sorted(rows) == [path.name for path in sorted((ROOT / "benchmarks").glob("bench_*.py"))]
