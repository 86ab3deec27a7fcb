"""Reports say when they were measured, and that their code has changed when it has."""

import io
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/benchmarks.md").read_text("utf-8")
TOLD = re.compile(
    r"<!-- begin ([\w-]+) -->\n(?:(?!<!-- end).)*?"
    r"^- measured: [\d-]+ on commit (\w+(?: and changes)?) \(code (\w+)\)",
    re.MULTILINE | re.DOTALL,
)
CHANGED = "; **the code has changed since**"


@pytest.fixture(scope="module")
def report_age(load):
    return load("report_age")


@pytest.fixture
def place(report_age, tmp_path):
    """A repository with one file in each room that the report of async calls measures."""
    for folder in report_age.MEASURED["async-call"]:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "room.py").write_text("one = 1\n")
    return tmp_path


def page(digest: str, mark: str = "") -> str:
    line = f"- measured: 2026-11-23 on commit 0a1b2c3 and changes (code {digest}){mark}"
    return f"<!-- begin async-call -->\n{line}\n- machine: two cores\n<!-- end async-call -->"


def test_a_report_is_marked_when_its_code_changes_and_no_more_when_it_is_back(report_age, place):
    fresh = page(report_age.code_digest("async-call", root=place))
    file = place / report_age.MEASURED["async-call"][0] / "room.py"

    assert report_age.with_ages(fresh, root=place) == fresh
    file.write_text("one = 2\n")
    stale = report_age.with_ages(fresh, root=place)
    assert stale == fresh.replace(")\n- machine", f"){CHANGED}\n- machine")
    assert report_age.with_ages(stale, root=place) == stale
    file.write_text("one = 1\n")
    assert report_age.with_ages(stale, root=place) == fresh


def test_code_that_a_report_does_not_measure_may_change(report_age, place):
    fresh = page(report_age.code_digest("async-call", root=place))
    other = place / "runtime/src/bicycle_runtime/cli"
    other.mkdir()
    (other / "room.py").write_text("one = 1\n")

    assert report_age.with_ages(fresh, root=place) == fresh


def test_a_file_that_moves_is_a_change(report_age, place):
    before = report_age.code_digest("async-call", root=place)
    file = place / report_age.MEASURED["async-call"][0] / "room.py"
    file.rename(file.with_name("hall.py"))

    assert report_age.code_digest("async-call", root=place) != before


def test_a_report_that_does_not_say_when_it_was_measured_is_refused(report_age):
    text = "<!-- begin async-call -->\n- machine: two cores\n<!-- end async-call -->"

    with pytest.raises(ValueError, match="async-call has 0 lines"):
        report_age.with_ages(text)


def test_a_report_of_now_says_so(report_age):
    line = report_age.measured_line("async-call")

    marked = report_age.with_ages(page("0").replace(page("0").splitlines()[1], line))
    assert re.fullmatch(
        r"- measured: 20\d\d-\d\d-\d\d on commit \w+( and changes)? \(code \w{12}\)", line
    )
    assert line in marked
    assert CHANGED not in marked


def test_each_report_of_the_page_measures_rooms_that_exist(report_age):
    sections = re.findall(r"<!-- begin ([\w-]+) -->", PAGE)

    assert set(sections) == report_age.MEASURED.keys()
    assert [name for name, _, _ in TOLD.findall(PAGE)] == sections
    folders = {folder for folders in report_age.MEASURED.values() for folder in folders}
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


def test_the_page_is_as_its_generator_makes_it(report_age):
    assert report_age.with_ages(PAGE) == PAGE, "run `make docs`"


def test_commits_that_the_page_names_have_the_code_whose_digest_it_tells(report_age):
    """Compare reports whose commit is known, without further changes, and has the same folders."""
    told = [
        (name, commit, digest, report_age.MEASURED[name])
        for name, commit, digest in TOLD.findall(PAGE)
        if " " not in commit
    ]
    compared = [found for found in told if all(is_known(found[1], path) for path in found[3])]

    wrong = [
        name
        for name, commit, digest, folders in compared
        if report_age.digest_of(files_at(commit, folders)) != digest
    ]
    assert wrong == []


def is_known(commit: str, folder: str) -> bool:
    """Return whether git is installed and has this folder of a commit; folders are renamed."""
    try:
        command = ["git", "cat-file", "-e", f"{commit}:{folder}"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def files_at(commit: str, folders: tuple[str, ...]) -> dict[str, bytes]:
    """Return the Python files of folders as of a commit."""
    command = ["git", "archive", commit, *folders]
    packed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [m for m in archive if m.isfile() and m.name.endswith(".py")]
        return {m.name: archive.extractfile(m).read() for m in members}
