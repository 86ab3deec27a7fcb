"""How long a submitted job stands still when its driver is killed, until the next sealed epoch.

The job follows a file; a line is added right behind the kill, so that there is something to seal.
The log of the job tells where the time goes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from measuring import Report, Table, Target, WrongOutputError, arguments
from workloads import scratch

_BICYCLE = Path(sys.executable).with_name("bicycle")
_POLL_SECONDS = 0.01
_LIMIT_SECONDS = 180.0
_JOB = "restarted"
# Events of the log at which a part of the restart ends.
_PARTS = {
    "supervisor has noticed": "driver_died",
    "driver holds the lease": "lease_taken",
    "graph is extracted, Java comes up": 'phase="starting Spark and extracting the plugin"',
    "Spark runs, state is recovered": "job_started",
}
_SEALED = "first epoch is sealed"
_TIME = re.compile(r"^(\d\d:\d\d:\d\d\.\d{3}) ")


def main() -> None:
    """Kill the driver again and again and tell."""
    options = arguments(__doc__, repeats=5, add=lambda _: None)
    with scratch("restart") as place:
        found = _kills(place, options.repeats)
    totals = [each["in all"] for each in found]
    report = Report(
        name="restart",
        claim="A killed driver of a submitted job is restarted within six seconds.",
        payload="a word count that follows one file of few lines",
        method=f"{options.repeats} kills of one job by SIGKILL; the first kill does not "
               "count, because Java then stores its classes for later starts; after each "
               "kill, each line is read exactly once",
        tables=[_table(found)],
        targets=[
            Target(
                name="SIGKILL of the driver to the next sealed epoch",
                value=statistics.median(totals), best=min(totals), high=6.0, unit="s",
            )
        ],
    )  # fmt: skip
    report.tell(options)


def _kills(place: Path, count: int) -> list[dict[str, float]]:
    source = place / "in"
    source.mkdir()
    file = source / "words.txt"
    file.write_text("first\n")
    where = ("--checkpoint-dir", str(place / "checkpoints"), "--name", _JOB, "--follow")
    given = ("--set", f"input={source}", "--set", f"output={place / 'out'}")
    _run(place, "submit", "--plugin", "wordcount", *given, *where)
    try:
        found = [_kill(place, file, number) for number in range(count + 1)]
    finally:
        _run(place, "stop", _JOB)
    return found[1:]


def _kill(place: Path, file: Path, number: int) -> dict[str, float]:
    """Kill the driver once; return the seconds of each part."""
    before = _waited(place, lambda status: status["event_count"] == number + 1)
    size = len(_log(place))
    began, began_wall = time.perf_counter(), datetime.now().astimezone()
    os.kill(before["pid"], signal.SIGKILL)
    with file.open("a") as stream:
        stream.write(f"word{number}\n")
    _waited(place, lambda status: status["event_count"] == number + 2)
    total = time.perf_counter() - began
    parts = _parts(_log(place)[size:], began_wall)
    return {**parts, _SEALED: total - sum(parts.values()), "in all": total}


def _parts(log: str, began: datetime) -> dict[str, float]:
    found: dict[str, float] = {}
    last = 0.0
    for name, mark in _PARTS.items():
        line = next((line for line in log.splitlines() if mark in line), None)
        match = _TIME.match(line or "")
        if match is not None:
            at = datetime.strptime(match[1], "%H:%M:%S.%f").replace(
                year=began.year, month=began.month, day=began.day, tzinfo=began.tzinfo
            )
            now = (at - began).total_seconds()
            found[name], last = now - last, now
    return found


def _waited(place: Path, condition: Any) -> dict[str, Any]:
    file = _folder(place) / "status.json"
    ends = time.perf_counter() + _LIMIT_SECONDS
    while True:
        if file.is_file():
            status = json.loads(file.read_text())
            if condition(status):
                return dict(status)
        if time.perf_counter() > ends:
            raise WrongOutputError(f"no epoch within {_LIMIT_SECONDS:g} s: {_log(place)[-2000:]}")
        time.sleep(_POLL_SECONDS)


def _log(place: Path) -> str:
    return (_folder(place) / "log").read_text(errors="replace")


def _folder(place: Path) -> Path:
    return place / "home" / "jobs" / _JOB


def _run(place: Path, *words: str) -> None:
    environment = {**os.environ, "BICYCLE_HOME": str(place / "home")}
    done = subprocess.run(
        [str(_BICYCLE), *words], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise WrongOutputError(done.stdout + done.stderr)


def _table(found: list[dict[str, float]]) -> Table:
    names = [*_PARTS, _SEALED, "in all"]
    rows = [
        [name, *(f"{value:.2f}" for value in (statistics.median(times), min(times), max(times)))]
        for name in names
        if (times := [each[name] for each in found if name in each])
    ]
    columns = ["seconds, one after another", "median", "best", "worst"]
    return Table(title="From the kill to the next sealed epoch", columns=columns, rows=rows)


if __name__ == "__main__":
    main()
