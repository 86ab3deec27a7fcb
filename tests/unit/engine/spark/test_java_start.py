"""How the end of Java on its way up is told: killed, or not able to start."""

import subprocess
import sys

import pytest

from bicycle_runtime.engine.errors import SparkStartError, SparkStartKilledError
from bicycle_runtime.engine.spark.java import StartingJava


@pytest.mark.parametrize(
    ("code", "kind", "how"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "BIC-1807", "signal 9"),
        ("raise SystemExit(1)", "BIC-1802", "exit code 1"),
    ],
)
def test_java_that_was_killed_is_told_from_java_that_can_not_start(tmp_path, code, kind, how):
    process = subprocess.Popen([sys.executable, "-c", code])
    starting = StartingJava(process, tmp_path / "info", tmp_path / "log", "local[*]")
    with pytest.raises(SparkStartError) as caught:
        starting.wait()

    assert (caught.value.code, isinstance(caught.value, SparkStartKilledError)) == (
        kind, kind == "BIC-1807",
    )  # fmt: skip
    assert how in caught.value.facts["reason"]
