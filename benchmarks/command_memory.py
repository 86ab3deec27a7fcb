"""The memory of ``bicycle run``: what driver, Java and workers hold at most while a job runs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from measuring import Table, Target, WrongOutputError
from processor_time import DRIVER, KINDS, WORKERS, memory_mb
from workloads import scratch

__all__ = ["BICYCLE", "memory_table", "memory_target", "peaks_of"]

BICYCLE = Path(sys.executable).with_name("bicycle")
TOGETHER, ALL = f"{DRIVER} and {WORKERS}", "all, Java included"
_LOOK_S = 0.2


def peaks_of(
    words: Sequence[str], source: Path, *, check: Callable[[Path], object]
) -> dict[str, float]:
    """Run a job by the command and return the most that each kind of process held, in MB.

    Args:
        words: What follows ``bicycle run``.
        source: Parameter ``input`` of the job.
        check: Raises when the output is wrong.

    Raises:
        WrongOutputError: the command failed; with the end of what it said.
    """
    with scratch("memory") as place:
        output = place / "output"
        command = [
            *(str(BICYCLE), "run", *words, "--set", f"input={source}"),
            *("--set", f"output={output}", "--checkpoint-dir", str(place / "checkpoints")),
        ]
        environment = {**os.environ, "BICYCLE_HOME": str(place / "home")}
        with (place / "log").open("w") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        peaks: Counter[str] = Counter()
        while process.poll() is None:
            peaks |= _with_sum(memory_mb(process.pid))
            time.sleep(_LOOK_S)
        if process.returncode:
            raise WrongOutputError((place / "log").read_text()[-2000:])
        check(output)
    return dict(peaks)


def _with_sum(found: Counter[str]) -> Counter[str]:
    return found + Counter({TOGETHER: found[DRIVER] + found[WORKERS], ALL: found.total()})


def memory_table(title: str, peaks: Sequence[dict[str, float]]) -> Table:
    """Return the table of the peaks of some runs."""
    rows = []
    for kind in (*KINDS, TOGETHER, ALL):
        found = [each.get(kind, 0.0) for each in peaks]
        rows.append([kind, f"{statistics.median(found):,.0f}", f"{max(found):,.0f}"])
    return Table(title=title, columns=["MB at most", "median", "most"], rows=rows)


def memory_target(name: str, peaks: Sequence[dict[str, float]], *, high: float) -> Target:
    """Judge what driver and workers hold together; Java, which is Spark, is told beside it."""
    found = [each[TOGETHER] for each in peaks]
    return Target(name=name, value=statistics.median(found), best=min(found), high=high, unit="MB")
