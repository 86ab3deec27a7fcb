"""``tools/install.py`` shows the progress of pip."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.scripts import load

ROOT = Path(__file__).parents[2]
INSTALL = load("tools/install.py")
PACKAGES = ["pytest", "packaging", "never-installed"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "  fetching 0 of 3"),
        ("Collecting pytest==9.2.0 (from -r a.lock)\n", "  fetching 1 of 3: pytest"),
        ("Processing /a-1/pytest-9.2.0-py3-none-any.whl\n", "  fetching 1 of 3: pytest"),
        ("Collecting a==1\nInstalling collected packages: a\n", "  installed 2 of 3"),
    ],
    ids=["started", "index", "file", "unpacking"],
)
def test_a_line_shows_how_many_packages_are_fetched_or_installed(text, line):
    assert INSTALL.progress(text, PACKAGES) == line


def test_the_names_of_a_lock_file_are_found():
    alpha = "alpha-one==1.0 \\\n    --hash=sha256:00"
    text = f"# a comment==1\n{alpha}\nbeta==2 ; python_version < '3.12'\n"

    assert INSTALL.names_in(text) == ["alpha-one", "beta"]


def test_a_package_that_cannot_be_installed_ends_with_the_text_of_pip(tmp_path):
    lock = tmp_path / "a.lock"
    lock.write_text(f"never-installed==1.0 --hash=sha256:{'0' * 64}\n", "utf-8")
    command = [sys.executable, str(ROOT / "tools/install.py"), str(lock)]
    environment = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_CONFIG_FILE": "/dev/null",
    }

    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    assert done.returncode == 1
    assert "No matching distribution found for never-installed==1.0" in done.stdout
