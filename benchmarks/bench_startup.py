"""How long things take to start: the SDK, ``bicycle plugins``, ``bicycle run``, the harness.

Everything is a process of its own, as for a user. ``bicycle run`` is measured to its first visible
output: cold with an empty home, then again as often as asked for; and whole, where the same command
finds nothing new. The import is what a whole process with it takes longer than one without. The
first epoch is that of W1 with 10,000 events, from its plan to its sealed manifest: as in a run,
where it starts the Python workers, and where they are up before, as with a Spark that waits.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from measuring import (
    Report,
    Table,
    Target,
    WrongOutputError,
    arguments,
    in_turns,
    percentile,
    run_program,
)
from workloads import Words, check_counts, scratch

PLUGIN_COUNT = 100
_POLL_SECONDS = 0.005
_LIMIT_SECONDS = 120.0
_BICYCLE = Path(sys.executable).with_name("bicycle")
_BARE, _IMPORT = "pass", "import bicycle_sdk"
JUDGED = (
    "medians: import bicycle_sdk over a bare interpreter ≤ 45 ms, first output of bicycle run "
    "≤ 4.5 s, a run with nothing new ≤ 1.5 s, first epoch, which starts the workers, ≤ 0.5 s"
)
_FIRST_EPOCH = Path(__file__).with_name("first_epoch.py")
_HARNESS = """
import time
began = time.perf_counter()
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import StreamEnvironment
env = StreamEnvironment.builder().build()
env.add_source(script_source(str)).map(str.upper).collect("out")
with Harness(env) as harness:
    harness.push(["ada", "bob"])
    harness.run_epoch()
    assert harness.results("out") == ["ADA", "BOB"], harness.results("out")
    print((time.perf_counter() - began) * 1000)
"""


def main() -> None:
    """Measure each start and tell."""
    options = arguments(__doc__, repeats=15, add=_add_options, judged=JUDGED)
    warm_runs = 1 if options.quick else options.runs
    starts = {name: partial(_whole_ms, name) for name in (_BARE, _IMPORT)}
    wholes = in_turns(starts, rounds=options.repeats)
    sdk = [more - bare for more, bare in zip(wholes[_IMPORT], wholes[_BARE], strict=True)]
    listing = _plugin_listings(options.repeats)
    harness = [_printed(_HARNESS) for _ in range(options.repeats)]
    cold, warm, again = _first_outputs(warm_runs)
    times = {
        "import bicycle_sdk, over a bare interpreter": sdk,
        f"bicycle plugins, {PLUGIN_COUNT} installed": listing,
        "harness: import, first epoch done": harness,
        "bicycle run, first output, empty home": [cold],
        "bicycle run, first output, later": warm,
        "bicycle run, nothing new to read": again,
        "first epoch, start of the workers included": [_first_epoch() for _ in range(warm_runs)],
        "first epoch, workers up before": [_first_epoch("--workers") for _ in range(warm_runs)],
    }
    bounds = dict(zip(times, (45, 500, 300, 12_000, 4_500, 1_500, 500, None), strict=True))
    report = Report(
        name="startup",
        claim="The waiting times of a user until the first result.",
        payload=f"{PLUGIN_COUNT} plugins as installed distributions; a text of 1,000 words",
        method=f"each start is a new process; {options.repeats} starts, {warm_runs} later "
        "runs; the listing, the counts and the records are checked",
        tables=[_table(times)],
        targets=[
            Target(
                name=name,
                value=statistics.median(found),
                best=min(found),
                high=bounds[name],
                unit="ms",
            )
            for name, found in times.items()
        ],
    )
    report.tell(options)


def _whole_ms(program: str) -> float:
    began = time.perf_counter()
    run_program([sys.executable, "-c", program])
    return (time.perf_counter() - began) * 1000


def _first_epoch(*options: str) -> float:
    return float(run_program([sys.executable, _FIRST_EPOCH, *options]).splitlines()[-1])


def _printed(program: str) -> float:
    return float(run_program([sys.executable, "-c", program]))


def _plugin_listings(repeats: int) -> list[float]:
    with scratch("plugins") as place:
        names = [f"benched{number:03}" for number in range(PLUGIN_COUNT)]
        for name in names:
            _install(place, name)
        return [_plugin_listing(place, names) for _ in range(repeats)]


def _plugin_listing(place: Path, names: list[str]) -> float:
    began = time.perf_counter()
    told = run_program([_BICYCLE, "plugins", "--json"], PYTHONPATH=str(place))
    spent = (time.perf_counter() - began) * 1000
    missing = [name for name in names if name not in told]
    if missing:
        raise WrongOutputError(f"bicycle plugins does not list {missing[:3]}")
    return spent


def _install(place: Path, name: str) -> None:
    """Install a plugin as pip would; its module raises, since the listing must not import it."""
    (place / f"{name}.py").write_text("raise RuntimeError('a listing imports no plugin')\n")
    info = place / f"{name}-1.0.dist-info"
    info.mkdir()
    metadata = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: bicycle-sdk>=0.1\n"
    )
    (info / "METADATA").write_text(metadata)
    (info / "entry_points.txt").write_text(f"[bicycle.plugins]\n{name} = {name}:job\n")
    (info / "RECORD").write_text(f"{name}.py,,\n")


def _first_outputs(warm_runs: int) -> tuple[float, list[float], list[float]]:
    """Return milliseconds to the first output, cold and later, and those of runs behind these."""
    with scratch("run") as home:
        cold, _ = _first_output(home)
        warm, again = [], []
        for _ in range(warm_runs):
            _wait_for_java(home)
            first, second = _first_output(home)
            warm.append(first)
            again.append(second)
        _wait_for_java(home)
    return cold, warm, again


def _wait_for_java(home: Path) -> None:
    """Wait until no Java process of this home is left; the first ends with its class archive."""
    ends = time.perf_counter() + _LIMIT_SECONDS
    while any(_mentions(file, str(home)) for file in Path("/proc").glob("[0-9]*/cmdline")):
        if time.perf_counter() > ends:
            raise WrongOutputError(f"a Java process still runs after {_LIMIT_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)


def _mentions(cmdline: Path, text: str) -> bool:
    try:
        return text.encode() in cmdline.read_bytes()
    except OSError:  # The process has just ended.
        return False


def _first_output(home: Path) -> tuple[float, float]:
    """Run the word count on little input, twice.

    Returns:
        Milliseconds to the first visible file, and those of the second run, which finds nothing
        new.
    """
    words = Words(count=1_000, distinct=100, files=1)
    with scratch("first") as place:
        output = place / "output"
        command = [
            *(str(_BICYCLE), "run", "--plugin", "wordcount"),
            *("--set", f"input={words.folder()}", "--set", f"output={output}"),
            *("--checkpoint-dir", str(place / "checkpoints")),
        ]
        environment = {**os.environ, "BICYCLE_HOME": str(home)}
        began = time.perf_counter()
        with (place / "log").open("w") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            spent = _wait_for_output(output, process, began)
            if process.wait(_LIMIT_SECONDS):
                raise WrongOutputError((place / "log").read_text()[-2000:])
        finally:
            if process.poll() is None:
                process.kill()
        began = time.perf_counter()
        run_program(command, BICYCLE_HOME=str(home))
        again = time.perf_counter() - began
        check_counts(output, words)
    return spent * 1000, again * 1000


def _wait_for_output(output: Path, process: subprocess.Popen, began: float) -> float:
    while not any(file.stat().st_size for file in output.glob("*.jsonl")):
        if process.poll() is not None and not any(output.glob("*.jsonl")):
            break
        if time.perf_counter() - began > _LIMIT_SECONDS:
            raise WrongOutputError(f"no output within {_LIMIT_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
    return time.perf_counter() - began


def _table(times: dict[str, list[float]]) -> Table:
    rows = [
        [name, str(len(found)), *(f"{value:.0f}" for value in _spread(found))]
        for name, found in times.items()
    ]
    columns = ["milliseconds", "starts", "median", "best", "p95"]
    return Table(title="Starts", columns=columns, rows=rows)


def _spread(found: list[float]) -> tuple[float, float, float]:
    return statistics.median(found), min(found), percentile(found, 0.95)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=5, help="runs of bicycle run after the first")


if __name__ == "__main__":
    main()
