"""Jobs with windows on columns, and the same jobs record by record: processor time of a reading.

Each job is there twice: with plain functions, which the runtime reads, and with the same ones as
objects, which it must call. Both run in this process on the local engine, in turns, over the same
file, and must give the same. The judged figure is that of a whole run over the jobs: its
processor time, divided by readings. Small epochs stand beside, since what columns cost at least
shows there.
"""

from __future__ import annotations

import csv
import gc
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from measuring import BUILD, Report, Table, Target, WrongOutputError, arguments, in_turns
from window_jobs import Called
from workloads import scratch

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness
from bicycle_sdk import DataStream, StreamEnvironment, WatermarkStrategy, file_sink
from bicycle_sdk.windows import Average, Count, Distinct, Maximum, Minimum, Sum

WINDOW_MS = 10_000
READINGS_A_MS = 4
KEYS = 1_000
SMALL_EPOCHS = (200, 1_000, 2_000)
ENGINE = EngineOptions(mode="batch", max_records_per_epoch=100_000)
COLUMNS, RECORDS = "on columns", "record by record"


@dataclass(slots=True)
class Reading:
    """What a sensor saw."""

    sensor: str
    at: int
    value: float
    place: str


Way = Callable[[Callable[[Any], Any]], Any]  # A function as it is, or as an object to be called.


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One job: how it reads, and what it does with the timed readings."""

    text: str
    build: Callable[[DataStream, Way], DataStream]
    read: str = "jsonl"
    is_timed_by_source: bool = False


def _keyed(readings: DataStream, way: Way) -> Any:
    return readings.key_by(way(lambda reading: reading.sensor))


def _floats(readings: DataStream, way: Way) -> Any:
    value = way(lambda reading: reading.value)
    windows = _keyed(readings, way).tumbling_window(WINDOW_MS)
    return windows.aggregate(Count(), Sum(value), Average(value))


def _mapped(readings: DataStream, way: Way) -> Any:
    value = way(lambda reading: reading.value)
    windows = _keyed(readings, way).tumbling_window(1_000).aggregate(Count(), Sum(value))
    kept = windows.filter(way(lambda window: window.value[0] > 0))
    return kept.map(way(lambda window: {
        "sensor": window.key, "from": window.start, "count": window.value[0],
        "mean": round(window.value[1] / window.value[0], 3),
    }))  # fmt: skip


def _sliding(readings: DataStream, way: Way) -> Any:
    value = way(lambda reading: reading.value)
    return _keyed(readings, way).sliding_window(10_000, 4_000).aggregate(Count(), Sum(value))


def _sessions(readings: DataStream, way: Way) -> Any:
    value = way(lambda reading: reading.value)
    return _keyed(readings, way).session_window(1_000).aggregate(Count(), Sum(value))


def _distinct(readings: DataStream, way: Way) -> Any:
    place = way(lambda reading: reading.place)
    return _keyed(readings, way).tumbling_window(WINDOW_MS).aggregate(Distinct(place))


def _texts(readings: DataStream, way: Way) -> Any:
    place = way(lambda reading: reading.place)
    windows = _keyed(readings, way).tumbling_window(WINDOW_MS)
    return windows.aggregate(Minimum(place), Maximum(place))


def _of_csv(readings: DataStream, way: Way) -> Any:
    keyed = readings.key_by(way(lambda row: row["sensor"]))
    value = way(lambda row: float(row["value"]))
    return keyed.tumbling_window(WINDOW_MS).aggregate(Count(), Sum(value))


KINDS = {
    "floats": Kind(text="counts, sums, averages of floats", build=_floats),
    "mapped": Kind(text="many results, a filter and a map after the window", build=_mapped),
    "sliding": Kind(text="sliding windows of 10 s every 4 s", build=_sliding),
    "sessions": Kind(text="sessions", build=_sessions),
    "distinct": Kind(text="distinct texts", build=_distinct),
    "texts": Kind(text="least and greatest text", build=_texts),
    "csv": Kind(text="CSV without a type", build=_of_csv, read="csv"),
    "typed_csv": Kind(text="CSV with a type", build=_floats, read="typed csv"),
    "source": Kind(text="the source's own time", build=_floats, is_timed_by_source=True),
}


def main() -> None:
    """Measure and tell."""
    options = arguments(__doc__, repeats=3, add=lambda _: None)
    gc.set_threshold(1_000_000, 50, 100)  # As in a worker.
    count = 20_000 if options.quick else 200_000
    inputs = _inputs(count)
    contenders = {
        (name, way): partial(_run, kind, way, inputs)
        for name, kind in KINDS.items()
        for way in (COLUMNS, RECORDS)
    }
    for warm in contenders.values():  # Libraries are loaded, and their files are read.
        warm()
    found = in_turns(contenders, rounds=options.repeats)
    median = {each: statistics.median(seconds) / count * 1e6 for each, seconds in found.items()}
    together = {way: sum(median[name, way] for name in KINDS) for way in (COLUMNS, RECORDS)}
    small = {
        (size, way): _small(size, way, rounds=10 if options.quick else 40)
        for size in SMALL_EPOCHS
        for way in (COLUMNS, RECORDS)
    }
    report = Report(
        name="columns",
        claim="Jobs on columns need, in total, at most half of the processor time of the "
        "same jobs record by record.",
        payload=f"{count:,} readings of {KEYS:,} sensors, {READINGS_A_MS} a ms, in one file",
        method=f"{options.repeats} rounds in turns; the local engine, one subtask; processor "
        "time of the whole run; garbage collection as in a worker; both must return equal results",
        tables=[_table(median), _small_table(small)],
        targets=[
            Target(
                name="all of them, columns ÷ records",
                value=together[COLUMNS] / together[RECORDS],
                unit="x",
                high=0.5,
            )
        ],
    )
    report.tell(options)


def _table(median: dict[tuple[str, str], float]) -> Table:
    rows = [
        [
            kind.text,
            f"{median[name, COLUMNS]:.2f}",
            f"{median[name, RECORDS]:.2f}",
            f"{median[name, COLUMNS] / median[name, RECORDS]:.2f} x",
        ]
        for name, kind in KINDS.items()
    ]
    return Table(title="µs of a reading", columns=["job", COLUMNS, RECORDS, "ratio"], rows=rows)


def _small_table(small: dict[tuple[int, str], float]) -> Table:
    rows = [
        [f"{size:,} readings", f"{small[size, COLUMNS]:.1f}", f"{small[size, RECORDS]:.1f}"]
        for size in SMALL_EPOCHS
    ]
    return Table(title="ms of an epoch, floats", columns=["epoch", COLUMNS, RECORDS], rows=rows)


def _inputs(count: int) -> dict[str, Path]:
    """Return a file of readings in each format, made once."""
    folder = BUILD / "inputs" / f"columns-{count}"
    files = {"jsonl": folder / "readings.jsonl", "csv": folder / "readings.csv"}
    if not all(file.exists() for file in files.values()):
        folder.mkdir(parents=True, exist_ok=True)
        readings = list(_readings(count, first=0))
        lines = (f"{json.dumps(asdict(reading))}\n" for reading in readings)
        files["jsonl"].write_text("".join(lines))
        with files["csv"].open("w", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(["sensor", "at", "value", "place"])
            writer.writerows((r.sensor, r.at, r.value, r.place) for r in readings)
    return files


def _readings(count: int, *, first: int) -> list[Reading]:
    source = random.Random(first)
    return [
        Reading(
            f"sensor-{source.randrange(KEYS):04}", (first + number) // READINGS_A_MS,
            source.randrange(1_000) / 100, f"hall {source.randrange(40)}",
        )
        for number in range(count)
    ]  # fmt: skip


def _same(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return function


_WAYS: dict[str, Way] = {COLUMNS: _same, RECORDS: Called}
_outputs: dict[str, list[str]] = {}


def _job(kind: Kind, way: Way, file: Path, output: Path | None, env: StreamEnvironment) -> None:
    follow = output is None
    if kind.is_timed_by_source:
        readings = env.read_jsonl(file, type=Reading, timestamp_field="at", follow=follow)
    else:
        if kind.read == "jsonl":
            read = env.read_jsonl(file, type=Reading, follow=follow)
        else:
            typed = Reading if kind.read == "typed csv" else None
            read = env.read_csv(file, type=typed, follow=follow)
        strategy = WatermarkStrategy.bounded_out_of_orderness(100)
        at = (lambda row: int(row["at"])) if kind.read == "csv" else (lambda reading: reading.at)
        readings = read.assign_timestamps(strategy.with_timestamps(way(at)))
    results = kind.build(readings, way)
    if output is None:
        results.collect("out")
    else:
        results.sink_to(file_sink(output, format="jsonl")).uid("out")


def _run(kind: Kind, way: str, inputs: dict[str, Path]) -> float:
    file = inputs["jsonl" if kind.read == "jsonl" else "csv"]
    with scratch("columns") as place:
        job = partial(_job, kind, _WAYS[way], file, place / "out")
        with Harness(job, parallelism=1, real_sinks=["out"], engine=ENGINE) as harness:
            gc.collect()  # Garbage of another run does not count.
            began = time.process_time()
            harness.run()
            seconds = time.process_time() - began
        lines = sorted(line for path in (place / "out").glob("*.jsonl") for line in path.open())
    if not lines or lines != _outputs.setdefault(kind.text, lines):
        raise WrongOutputError(f"{kind.text}: both ways do not give the same")
    return seconds


def _small(size: int, way: str, *, rounds: int) -> float:
    """Return the median of the processor time of an epoch with so many readings, in ms."""
    with scratch("columns") as place:
        file = place / "readings.jsonl"
        file.touch()
        job = partial(_job, KINDS["floats"], _WAYS[way], place, None)
        found = []
        with Harness(job, parallelism=1) as harness:
            for number in range(rounds):
                readings = _readings(size, first=number * size * 8)
                with file.open("a") as out:
                    out.writelines(f"{json.dumps(asdict(reading))}\n" for reading in readings)
                began = time.process_time()
                harness.advance_time(60_000)  # The file is looked at again, and read.
                found.append((time.process_time() - began) * 1_000)
    return statistics.median(found[rounds // 5 :])


if __name__ == "__main__":
    main()
