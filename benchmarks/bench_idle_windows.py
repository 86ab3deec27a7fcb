"""What a job costs that only waits: windows are open, their time has not come, no input arrives.

The job runs as a user runs it, by ``bicycle run --follow`` on embedded Spark. Measured is the
processor time of its driver, of Java and of the Python workers together. Then one reading ends all
windows: their results show that they were open, and that the job was awake.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from measuring import BUILD, Report, Target, WrongOutputError, arguments
from processor_time import shares, shares_table
from workloads import FAR_READING, Readings, check_windows, scratch

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobStatus

PLUGIN = "readings_by_window"
READINGS = Readings(count=10_000, keys=1_000, window_ms=3_600_000)
_BICYCLE = Path(sys.executable).with_name("bicycle")
_PATIENCE_S = 120.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that has read all there is."""

    place: Path
    process: subprocess.Popen[bytes]

    @property
    def input(self) -> Path:
        return self.place / "input"

    @property
    def output(self) -> Path:
        return self.place / "output"

    def event_count(self) -> int:
        """Return how many readings are sealed."""
        status = self._status()
        return status.event_count if status else 0

    def result_count(self) -> int:
        """Return how many windows have given their result."""
        status = self._status()
        return status.operators["windows"].records_out if status else 0

    def _status(self) -> JobStatus | None:
        return Home(self.place / "home").folder(PLUGIN).status()

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something that the job does.

        Raises:
            WrongOutputError: the job has ended, or it takes too long.
        """
        ends = time.monotonic() + _PATIENCE_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > ends:
                log = (self.place / "log").read_text()
                raise WrongOutputError(f"the job did not come to {what}: {log[-2000:]}")
            time.sleep(_POLL_S)

    def complete(self) -> None:
        """Bring time behind the windows, end the job, and see that all results are right."""
        if self.result_count():
            raise WrongOutputError("windows were complete before their time")
        (self.input / "readings-last.jsonl").write_text(FAR_READING)
        count = len(READINGS.truth())
        self.wait_until(lambda: self.result_count() >= count, f"the results of {count} windows")
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(_PATIENCE_S):
            raise WrongOutputError((self.place / "log").read_text()[-2000:])
        check_windows(self.output, READINGS)


def main() -> None:
    """Measure intervals of waiting and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options)
    settle_s, seconds = (1.0, 1.0) if options.quick else (options.settle, options.seconds)
    with _waiting_job() as job:
        time.sleep(settle_s)
        found = [shares(job.process.pid, seconds) for _ in range(options.repeats)]
        job.complete()
    totals = [each.total() for each in found]
    report = Report(
        name="idle-windows",
        claim="A job with open windows and no input takes at most 2 % of a core.",
        payload=f"{len(READINGS.truth()):,} open windows of {READINGS.keys:,} sensors",
        method=f"{options.repeats} intervals of {seconds:g} s after {settle_s:g} s for "
        "settling; processor time of all processes of the job; the windows are "
        "completed and compared with the expected results at the end",
        tables=[shares_table("While nothing happens", found)],
        targets=[
            Target(
                name="processor time of a waiting job",
                value=statistics.median(totals),
                best=min(totals),
                high=2,
                unit="% of a core",
            )
        ],
    )
    report.tell(options)


@contextmanager
def _waiting_job() -> Iterator[WaitingJob]:
    """Give a job that has read its input, and see that it is gone afterwards."""
    with scratch("idle") as place:
        shutil.copytree(READINGS.folder(), place / "input")
        (place / "home").mkdir()
        (BUILD / "cache").mkdir(exist_ok=True)
        (place / "home" / "cache").symlink_to(BUILD / "cache")
        job = WaitingJob(place, _start(place))
        try:
            job.wait_until(lambda: job.event_count() >= READINGS.count, "the end of its input")
            yield job
        finally:
            if job.process.poll() is None:
                job.process.terminate()
                job.process.wait(_PATIENCE_S)


def _start(place: Path) -> subprocess.Popen[bytes]:
    jobs = Path(__file__).parent
    environment = {
        **os.environ,
        "BICYCLE_HOME": str(place / "home"),
        "PYTHONPATH": os.pathsep.join(map(str, [_installed(place / "site"), jobs])),
    }
    command = [
        *(_BICYCLE, "run", "--plugin", PLUGIN, "--follow", "--checkpoint-dir", place / "state"),
        *("--set", f"input={place / 'input'}", "--set", f"output={place / 'output'}"),
        *("--set", f"window_ms={READINGS.window_ms}"),
    ]
    with (place / "log").open("wb") as log:
        return subprocess.Popen(list(map(str, command)), env=environment, stdout=log, stderr=log)


def _installed(site: Path) -> Path:
    """Install the jobs of the benchmarks as pip would, except for their code; return the folder."""
    info = site / "bicycle_benchmarks-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: bicycle-benchmarks\nVersion: 1\nRequires-Dist: bicycle-sdk\n"
    )
    (info / "entry_points.txt").write_text(
        f"[bicycle.plugins]\n{PLUGIN} = benchmark_jobs:{PLUGIN}\n"
    )
    return site


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=20.0, help="length of an interval")
    parser.add_argument(
        "--settle", type=float, default=15.0,
        help="seconds before the first; silent shards count as idle after 10",
    )  # fmt: skip


if __name__ == "__main__":
    main()
