"""A job without Spark in a separate process.

``python -m tests.unit.service_process.light_process ROOT`` starts it.

It counts the words of ``ROOT/in.txt`` and waits for more; SIGTERM stops it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from tests.unit.jobs.running.light_jobs import LightJob


def start(root: Path, words: str) -> subprocess.Popen[bytes]:
    """Start the job; its home is ``root/home``, its id ``job``."""
    (root / "in.txt").write_text(words)
    with (root / "job.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.unit.service_process.light_process", str(root)],
            stdout=log, stderr=log, env=environment_for_python(),
        )  # fmt: skip


def main(root: Path) -> None:
    params = {"input": str(root / "in.txt"), "output": str(root / "out")}
    job = LightJob(root, "wordcount", params=params, options={"follow": True})
    job.home.folder("job").write_request(job._request)
    with StopRequest().on_signals() as stop:
        job.stop = stop
        job.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
