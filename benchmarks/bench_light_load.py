"""What a light load costs: a word count that follows a file which grows by 80 lines a second.

The job runs as a user runs it, by ``bicycle run --follow`` on embedded Spark with default options.
Measured is the processor time of its driver, of Java and of the Python workers together. At the end
the counts are compared with the lines that were written.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from measuring import BUILD, Report, Target, WrongOutputError, arguments
from processor_time import shares, shares_table
from workloads import scratch

from bicycle_runtime.jobs.home import Home

_BICYCLE = Path(sys.executable).with_name("bicycle")
_PLUGIN = "wordcount"
_WORDS = ("ada", "bob", "cyd", "dan", "eve")
_PATIENCE_S = 120.0
_POLL_S = 0.05


@dataclass
class Writer:
    """Appends lines of one word to a file at an even pace until it is stopped."""

    file: Path
    rate: int
    count: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Write until ``stop``; a writer that was held up catches up."""
        began = time.monotonic()
        with self.file.open("a", buffering=1) as stream:
            while not self._stop.wait(max(began + self.count / self.rate - time.monotonic(), 0)):
                stream.write(f"{_WORDS[self.count % len(_WORDS)]}\n")
                self.count += 1

    def stop(self) -> None:
        """Let ``run`` return."""
        self._stop.set()


@dataclass(frozen=True, slots=True)
class LightJob:
    """A job that follows the file of a writer."""

    place: Path
    process: subprocess.Popen[bytes]

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

    def progress(self) -> tuple[int, int]:
        """Return how many lines are sealed, and in how many epochs."""
        status = Home(self.place / "home").folder(_PLUGIN).status()
        return (status.event_count, status.epoch) if status else (0, 0)

    def end(self, writer: Writer) -> None:
        """End the job behind the last line, and see that each word has all its counts."""
        self.wait_until(lambda: self.progress()[0] >= writer.count, f"line {writer.count}")
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(_PATIENCE_S):
            raise WrongOutputError((self.place / "log").read_text()[-2000:])
        found = Counter(
            json.loads(line)["word"]
            for part in (self.place / "output").rglob("*.jsonl")
            for line in part.read_text().splitlines()
        )
        wanted = Counter(_WORDS[number % len(_WORDS)] for number in range(writer.count))
        if found != wanted:
            raise WrongOutputError(f"found {found}, expected {wanted}")


def main() -> None:
    """Measure intervals of light load and tell."""
    options = arguments(__doc__, repeats=3, add=_add_options)
    settle_s, seconds = (1.0, 1.0) if options.quick else (options.settle, options.seconds)
    with _light_job(options.rate) as (job, writer):
        time.sleep(settle_s)
        first_epoch, began = job.progress()[1], time.monotonic()
        found = [shares(job.process.pid, seconds) for _ in range(options.repeats)]
        pace = (job.progress()[1] - first_epoch) / (time.monotonic() - began)
        writer.stop()
        job.end(writer)
    totals = [each.total() for each in found]
    report = Report(
        name="light-load",
        claim="A job with 80 records a second takes at most 0.3 of a core.",
        payload=f"a word count that follows a file, {options.rate} lines a second",
        method=f"{options.repeats} intervals of {seconds:g} s after {settle_s:g} s for "
               "settling; default options; processor time of all processes of the job; "
               f"{pace:.1f} epochs a second; all counts are compared with the lines at the end",
        tables=[shares_table("At a light load", found)],
        targets=[
            Target(
                name="processor time of a job with little to do",
                value=statistics.median(totals), best=min(totals), high=30, unit="% of a core",
            )
        ],
    )  # fmt: skip
    report.tell(options)


@contextmanager
def _light_job(rate: int) -> Iterator[tuple[LightJob, Writer]]:
    """Give a job that reads what its writer writes, and see that both are gone afterwards."""
    with scratch("light") as place:
        (place / "input").mkdir()
        (place / "home").mkdir()
        (BUILD / "cache").mkdir(exist_ok=True)
        (place / "home" / "cache").symlink_to(BUILD / "cache")
        writer = Writer(place / "input" / "words.txt", rate)
        writing = threading.Thread(target=writer.run, name="writer")
        job = LightJob(place, _start(place))
        writing.start()
        try:
            job.wait_until(lambda: job.progress()[0] > 0, "its first lines")
            yield job, writer
        finally:
            writer.stop()
            writing.join()
            if job.process.poll() is None:
                job.process.terminate()
                job.process.wait(_PATIENCE_S)


def _start(place: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "BICYCLE_HOME": str(place / "home")}
    command = [
        *(_BICYCLE, "run", "--plugin", _PLUGIN, "--follow", "--checkpoint-dir", place / "state"),
        *("--set", f"input={place / 'input'}", "--set", f"output={place / 'output'}"),
    ]
    with (place / "log").open("wb") as log:
        return subprocess.Popen(list(map(str, command)), env=environment, stdout=log, stderr=log)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", type=int, default=80, help="lines a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of an interval")
    parser.add_argument("--settle", type=float, default=15.0, help="seconds before the first")


if __name__ == "__main__":
    main()
