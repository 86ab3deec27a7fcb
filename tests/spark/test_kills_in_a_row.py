"""Kills that come faster than a job can start, and in its first epoch: exact, timers included."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.plugin_zoo.zoo import install, whole
from tests.spark.jobsite import JobSite, Process, visible_lines
from tests.waiting import until

pytestmark = pytest.mark.spark

# Counts each key, and rings once for each pair of key and hour, with the count of its rings.
RINGING = whole(
    "ringing",
    """
    from dataclasses import dataclass

    from bicycle_sdk import KeyedProcessFunction, StreamEnvironment, bicycle_plugin, file_sink

    HOUR_MS = 3_600_000


    @dataclass(frozen=True, kw_only=True)
    class Params:
        input: str
        output: str


    class Ring(KeyedProcessFunction[str, tuple[str, int], dict]):
        def open(self, ctx):
            self.count = ctx.get_value_state("count", int, default=0)
            self.rung = ctx.get_value_state("rung", int, default=0)

        def process_element(self, value, ctx):
            key, time_ms = value
            ctx.timer_service.register_event_time_timer((time_ms // HOUR_MS + 1) * HOUR_MS)
            self.count.update(self.count.value() + 1)
            return [{"kind": "count", "key": key, "number": self.count.value()}]

        def on_timer(self, timestamp_ms, ctx):
            self.rung.update(self.rung.value() + 1)
            hour, key = timestamp_ms // HOUR_MS, ctx.current_key()
            return [{"kind": "ring", "key": key, "hour": hour, "number": self.rung.value()}]


    def parse(line: str) -> tuple[str, int]:
        key, _, time_ms = line.partition(" ")
        return key, int(time_ms)


    def time_of(pair: tuple[str, int]) -> int:
        return pair[1]


    def key_of(pair: tuple[str, int]) -> str:
        return pair[0]


    @bicycle_plugin(name="ringing", version="1.0")
    def job(env: StreamEnvironment, params: Params) -> None:
        pairs = env.read_text(params.input).uid("in").map(parse).uid("parse")
        timed = pairs.assign_timestamps(time_of).uid("timed")
        rung = timed.key_by(key_of).process_fn(Ring()).uid("ring")
        rung.sink_to(file_sink(params.output)).uid("out")
    """,
)
_HOUR_MS = 3_600_000
_KEYS, _HOURS, _PER_HOUR = 20, 12, 60
_KILLS = 10


@pytest.fixture
def pairs(site: JobSite) -> list[tuple[str, int]]:
    """Write the input in the order of time, in files that are read one after the other."""
    site.plugin = "ringing"
    install(site.plugins, RINGING)
    source = random.Random("kills in a row")
    pairs = [
        (f"k{source.randrange(_KEYS)}", hour * _HOUR_MS + minute * 60_000)
        for hour in range(_HOURS)
        for minute in range(_PER_HOUR)
    ]
    (site.input / "in.txt").write_text("".join(f"{key} {at}\n" for key, at in pairs))
    return pairs


def test_ten_kills_within_seconds_lose_and_double_nothing(site: JobSite, pairs):
    """They hit drivers and workers, also while these start."""
    source = random.Random("victims")
    bicycle = str(Path(sys.executable).with_name("bicycle"))
    sets = [f"--set={name}={value}" for name, value in site.params.items()]
    submitted = site.launch([
        bicycle, "submit", "--plugin", site.plugin, *sets, "--checkpoint-dir",
        str(site.checkpoints), "--parallelism", "2", "--max-records-per-epoch", "4",
        "--restart-attempts", "50", "--restart-delay-ms", "100", "--json",
    ])  # fmt: skip
    assert submitted.wait() == 0, submitted.stdout
    until(lambda: site.newest_epoch() >= 2, "two epochs")
    killed = 0
    while killed < _KILLS:
        assert site.status()["state"] != "FINISHED", "the input was too short"
        victims = [each for each in site.processes() if _is_of_job(each)]
        if victims:
            os.kill(source.choice(victims).pid, signal.SIGKILL)
            killed += 1
        time.sleep(source.uniform(0.1, 0.5))
    until(lambda: site.status()["state"] in ("FINISHED", "FAILED"), site.status)

    assert site.status()["state"] == "FINISHED", site.status()["error"]
    assert _records(site) == _expected(pairs)


@pytest.mark.parametrize("fault", ["read@1=hold", "operator@1=hold", "before_seal@1=kill"])
def test_kills_in_the_first_epoch_and_another_parallelism_behind_them(
    site: JobSite, pairs, fault: str
):
    for parallelism in ("3", "1"):
        words = ("--parallelism", parallelism, "--max-records-per-epoch", "60")
        life = site.start(*words, "--restart-attempts", "0", faults=fault)
        pid = life.wait_for_fault(fault)
        if fault.endswith("hold"):  # A worker is in the middle of the epoch.
            os.kill(pid, signal.SIGKILL)
            life.process.kill()
        assert life.wait() == -signal.SIGKILL
        site.wait_for_no_process()
        assert site.newest_epoch() == 0
    site.finish("--parallelism", "2", "--max-records-per-epoch", "50")

    assert _records(site) == _expected(pairs)


def _is_of_job(process: Process) -> bool:
    """Leave out the supervisor, which is to start drivers again, and what comes and goes."""
    words = process.command.split(b"\0")
    is_driver = b"bicycle_runtime.jobs.running.submission" in words
    return is_driver or process.is_java or process.is_python_of_spark


def _records(site: JobSite) -> Counter[str]:
    return Counter(
        json.dumps(json.loads(line), sort_keys=True) for line in visible_lines(site.output)
    )


def _expected(pairs: list[tuple[str, int]]) -> Counter[str]:
    """Return the records of a run without kills: numbers rise by one, each is there once."""
    counts: Counter[str] = Counter()
    records = []
    for key, _ in pairs:
        counts[key] += 1
        records.append({"kind": "count", "key": key, "number": counts[key]})
    hours = sorted({(at // _HOUR_MS + 1, key) for key, at in pairs})
    rung: Counter[str] = Counter()
    for hour, key in hours:
        rung[key] += 1
        records.append({"kind": "ring", "key": key, "hour": hour, "number": rung[key]})
    return Counter(json.dumps(record, sort_keys=True) for record in records)
