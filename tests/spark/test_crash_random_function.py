"""A job that draws lots: what was sealed is what is visible, though nobody can compute it again.

Each line gets a random number from Python's own ``random``, and goes to two sinks. Wherever the
driver, a worker or Java is killed, both sinks show each line once, with the same number, and with
the one that the manifest stood for at the time of the crash.
"""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.plugin_zoo.zoo import install, whole
from tests.spark.jobsite import (
    JobSite,
    leftovers,
    sealed_lines,
    visible_lines,
)

pytestmark = [pytest.mark.spark, pytest.mark.crash]

LOTTERY = whole(
    "lottery",
    """
    import random
    from dataclasses import dataclass

    from bicycle_sdk import StreamEnvironment, bicycle_plugin, file_sink


    @dataclass(frozen=True, kw_only=True)
    class Params:
        input: str
        output: str


    def draw(line: str) -> dict[str, str]:
        return {"line": line, "lot": random.randbytes(8).hex()}


    @bicycle_plugin(name="lottery", version="1.0")
    def job(env: StreamEnvironment, params: Params) -> None:
        drawn = env.read_text(params.input).uid("lines").map(draw).uid("draw")
        drawn.sink_to(file_sink(params.output + "/near")).uid("near")
        drawn.rebalance().filter(bool).uid("far-side").sink_to(
            file_sink(params.output + "/far")
        ).uid("far")
    """,
)
# The point, who is killed there, and the exit code of that life.
CRASHES = (
    ("after_seal", "driver", -signal.SIGKILL),
    ("half_published", "driver", -signal.SIGKILL),
    ("before_publish", "java", 6),
    ("half_published", "java", 6),
)
WORKER_KILLS = "read@3=kill,operator@4=kill,delta_written@2=kill"
LINES = [f"line {number}" for number in range(2_000)]


def test_what_a_crashed_epoch_drew_stays_drawn(site: JobSite, crash_round_count: int):
    site.plugin = "lottery"
    install(site.plugins, LOTTERY)
    for number in range(4):
        text = "".join(f"{line}\n" for line in LINES[number::4])
        (site.input / f"{number}.txt").write_text(text)

    known: dict[str, str] = {}
    for number, (point, victim, exit_code) in enumerate(CRASHES * crash_round_count):
        fault = f"{point}@{2 + number % 2}=hold"
        life = site.start(
            *("--max-records-per-epoch", str(60 // crash_round_count), "--json"),
            *("--parallelism", str(1 + number % 2), "--restart-attempts", "0"),
            faults=fault,
        )
        life.wait_for_fault(fault)
        _learn(site, known)
        os.kill(life.process.pid if victim == "driver" else site.java().pid, signal.SIGKILL)
        life.release()
        assert life.wait() == exit_code, life.stderr
        site.wait_for_no_process()
        _learn(site, known)
    assert len(known) >= 8

    last = site.finish("--max-records-per-epoch", "60", "--parallelism", "2", faults=WORKER_KILLS)
    assert [kill for kill in WORKER_KILLS.split(",") if not (last.folder / kill).exists()] == []
    near, far = (_visible(site, sink) for sink in ("near", "far"))
    assert sorted(near) == sorted(LINES)
    assert near == far
    assert known.items() <= near.items()
    site.finish()  # The next start removes what killed workers left; it draws nothing again.
    assert _visible(site, "near") == near
    assert leftovers(site) == []


def _learn(site: JobSite, known: dict[str, str]) -> None:
    """Add what is sealed and what is visible now; nothing known before may have changed."""
    for sink in ("near", "far"):
        for lots in (_lots(sealed_lines(site, sink)), _visible(site, sink)):
            assert {line: known.get(line, lot) for line, lot in lots.items()} == lots
            known |= lots


def _visible(site: JobSite, sink: str) -> dict[str, str]:
    return _lots(visible_lines(site.output / sink))


def _lots(lines: list[str]) -> dict[str, str]:
    """Return the lot of each line, which must be there once."""
    records = [json.loads(line) for line in lines]
    lots = {record["line"]: record["lot"] for record in records}
    assert len(lots) == len(records)
    return lots
