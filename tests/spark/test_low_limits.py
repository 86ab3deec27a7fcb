"""Process limits that are too low for Java: the job ends with the limit in its error."""

import os
import subprocess
import sys

import pytest

from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.extended]


@pytest.mark.parametrize(
    ("limit", "value", "option"),
    [
        ("RLIMIT_NOFILE", 100, "ulimit -n"),
        ("RLIMIT_AS", 1_000_000_000, "ulimit -v"),
        ("RLIMIT_AS", 2_500_000_000, "ulimit -v"),
    ],
)
def test_a_run_ends_with_the_limit_in_its_error(tmp_path, limit, value, option):
    (tmp_path / "in.txt").write_text("a b\n")
    words = ["run", "--plugin", "wordcount", "--checkpoint-dir", str(tmp_path / "checkpoint")]
    words += ["--set", f"input={tmp_path / 'in.txt'}", "--set", f"output={tmp_path / 'out'}"]
    program = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.{limit}, ({value}, {value}))\n"
        "from bicycle_runtime.cli import main\n"
        f"sys.argv = ['bicycle', *{words!r}]\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True,
        timeout=PATIENCE_S,
        cwd=tmp_path, env={**os.environ, "BICYCLE_HOME": str(tmp_path / "home")},
    )  # fmt: skip

    assert done.returncode == 6
    assert "BIC-1802" in done.stderr
    assert option in done.stderr
