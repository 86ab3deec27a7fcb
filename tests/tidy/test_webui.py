"""Pages keep their promises: no script or style within them, no other host, files as published."""

import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WEBUI = ROOT / "runtime/src/bicycle_runtime/webui"
VENDOR = WEBUI / "static/vendor"
TEMPLATES = sorted((WEBUI / "templates").rglob("*.html"))
OWN = [*TEMPLATES, *sorted((WEBUI / "static").glob("*.*"))]
# What the content security policy forbids, and what makes a browser ask somebody else.
FORBIDDEN = {
    "script within the page": r"<script(?![^>]*\bsrc=)",
    "style within the page": r"<style|\sstyle\s*=",
    "handler within the page": r"\son[a-z]+\s*=\s*[\"']|hx-on|javascript:|\bjs:",
    "text that is not escaped": r"\|\s*safe\b|autoescape",
    "another host": r"(?:https?:)?//(?!www\.w3\.org/2000/svg\b)[a-z0-9-]+\.[a-z]",
}


def findings(text: str) -> set[str]:
    return {name for name, words in FORBIDDEN.items() if re.search(words, text, re.IGNORECASE)}


@pytest.mark.parametrize("file", OWN, ids=lambda file: file.relative_to(WEBUI).as_posix())
def test_a_page_holds_nothing_that_the_policy_forbids(file):
    assert findings(file.read_text("utf-8")) == set()


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("<script>x()</script>", "script within the page"),
        ('<p style="color: red">', "style within the page"),
        ("<style>", "style within the page"),
        ('<a onclick="x()">', "handler within the page"),
        ("{{ name|safe }}", "text that is not escaped"),
        ('<img src="//cdn.example.com/x.png">', "another host"),
    ],
)
def test_each_finding_is_found(text, finding):
    assert findings(text) == {finding}
    assert findings('<script src="{{ static(\'app.js\') }}"></script><a href="/jobs">') == set()


def test_files_of_others_are_as_they_were_published():
    lines = (VENDOR / "vendor.lock").read_text("utf-8").splitlines()
    rows = [line.split("  ") for line in lines if not line.startswith("#")]
    found = {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*.*")}
    found |= {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("LICENSE")}
    found -= {path.relative_to(VENDOR).as_posix() for path in VENDOR.iterdir()}

    assert {row[0] for row in rows} == found
    for path, package, licence, digest in rows:
        folder = VENDOR / path.partition("/")[0]
        assert hashlib.sha256((VENDOR / path).read_bytes()).hexdigest() == digest, path
        assert folder.name.rpartition("-")[2] == package.rpartition("@")[2], path
        assert licence in ("0BSD", "MIT")
        assert (folder / "LICENSE").is_file()


def test_every_file_of_the_pages_is_among_the_data_of_the_package():
    project = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["bicycle_runtime.webui"]
    shipped = {path for pattern in patterns for path in WEBUI.glob(pattern) if path.is_file()}

    assert {*OWN, *(path for path in VENDOR.rglob("*") if path.is_file())} <= shipped


@pytest.mark.extended
def test_the_wheel_brings_templates_and_files(tmp_path):
    copy = tmp_path / "runtime"
    words = ("cp", "-r", str(ROOT / "runtime"), str(copy))
    subprocess.run(words, check=True)
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    subprocess.run((*build, "--wheel-dir", str(tmp_path), str(copy)), check=True)
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())

    for file in (*OWN, *(path for path in VENDOR.rglob("*") if path.is_file())):
        assert f"bicycle_runtime/webui/{file.relative_to(WEBUI).as_posix()}" in names
