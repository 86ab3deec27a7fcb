"""``bicycle run`` for the soak test: the same driver, which also notes how long each epoch took.

``python soak_driver.py REQUEST TIMES``: a job request as JSON, and a file for one number per epoch,
the milliseconds since the epoch before.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.running.driver import run_job
from bicycle_runtime.jobs.running.services import DoorServices
from bicycle_runtime.jobs.running.spark_starts import spark_starts
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.random_source import system_random


def main(request_path: Path, times_path: Path) -> None:
    """Run the job to its end."""
    last = time.perf_counter()
    epoch = 0

    with times_path.open("w") as times, StopRequest().on_signals() as stop:

        def note(status: JobStatus) -> None:
            nonlocal last, epoch
            if status.epoch != epoch:
                now = time.perf_counter()
                times.write(f"{(now - last) * 1000:.2f}\n")
                last, epoch = now, status.epoch

        services = DoorServices(
            clock=SystemClock(), source=system_random(), console=sys.stdout.write,
            announce=sys.stdout.write, listener=note, stop=stop,
        )  # fmt: skip
        request = JobRequest.from_json(json.loads(request_path.read_text()))
        home = Home(Path(os.environ["BICYCLE_HOME"]))
        run_job(request, home, services, new_executor=spark_starts(services))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
