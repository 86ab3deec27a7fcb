"""A process that may open too few files for Java: the job ends, and says what is missing."""

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.extended]


def test_a_run_with_too_few_open_files_ends_with_the_limit_in_its_error(tmp_path):
    (tmp_path / "in.txt").write_text("a b\n")
    words = ["run", "--plugin", "wordcount", "--checkpoint-dir", str(tmp_path / "checkpoint")]
    words += ["--set", f"input={tmp_path / 'in.txt'}", "--set", f"output={tmp_path / 'out'}"]
    program = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "from bicycle_runtime.cli import main\n"
        f"sys.argv = ['bicycle', *{words!r}]\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=300,
        env={**os.environ, "BICYCLE_HOME": str(tmp_path / "home")},
    )  # fmt: skip

    assert done.returncode == 6
    assert "BIC-1802" in done.stderr
    assert "ulimit -n" in done.stderr
