"""The contracts about imports of the operator fire when a module breaks them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2] / "deploy/operator"


@pytest.mark.parametrize(
    ("line", "exit_code"),
    [("", 0), ("import bicycle_operator.handlers", 1), ("import bicycle_runtime.base.errors", 1)],
)
def test_an_import_that_the_operator_must_not_have_is_found(line, exit_code, tmp_path):
    package = tmp_path / "bicycle_operator"
    shutil.copytree(PROJECT / "src/bicycle_operator", package)
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    with (package / "service.py").open("a") as file:
        file.write(f"\n{line}\n")
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from importlinter.cli import lint_imports; "
         "sys.exit(lint_imports(config_filename='pyproject.toml', no_cache=True))"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip

    assert done.returncode == exit_code, done.stdout
