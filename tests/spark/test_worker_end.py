"""Functions are closed where they were opened, however Spark's Python workers come to their end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.plugin_zoo.zoo import install, whole
from tests.spark.jobsite import JobSite, expected_counts, visible_counts
from tests.waiting import until

pytestmark = pytest.mark.spark

OPENING = whole(
    "opening",
    """
    import asyncio
    import os
    from dataclasses import dataclass
    from datetime import timedelta
    from pathlib import Path

    from bicycle_sdk import AsyncFunction, Context, StreamEnvironment, bicycle_plugin, file_sink


    @dataclass(frozen=True, kw_only=True)
    class Params:
        input: str
        output: str
        diary: str
        waits: str = "no"


    class Opener(AsyncFunction[str, str]):
        def __init__(self, diary: str, *, waits: bool) -> None:
            self.diary, self.waits = Path(diary), waits

        async def open(self, ctx: Context) -> None:
            self.place = f"{os.getpid()}-{ctx.task_info.subtask_index}"
            (self.diary / f"{self.place}.opened").touch()

        async def process(self, value: str, ctx: Context) -> list[str]:
            if self.waits:
                (self.diary / f"{self.place}.waiting").touch()
                try:
                    await asyncio.sleep(3_600)
                except asyncio.CancelledError:
                    (self.diary / f"{self.place}.cancelled").touch()
                    raise
            return [value]

        async def close(self) -> None:
            (self.diary / f"{self.place}.closed").touch()


    @bicycle_plugin(name="opening", version="1.0")
    def job(env: StreamEnvironment, params: Params) -> None:
        lines = env.read_text(params.input).uid("lines")
        opener = Opener(params.diary, waits=params.waits == "yes")
        limit = timedelta(hours=2)
        opened = lines.process_unordered(opener, timeout=limit, capacity=10).uid("opener")
        opened.sink_to(file_sink(params.output)).uid("out")
    """,
)


@pytest.fixture
def diary(site: JobSite) -> Path:
    folder = site.root / "diary"
    folder.mkdir()
    site.plugin = "opening"
    site.params["diary"] = str(folder)
    install(site.plugins, OPENING)
    for number in range(5):  # Calls over several batches are in flight together.
        (site.input / f"in-{number}.txt").write_text("line\n" * 100)
    return folder


def test_calls_in_flight_are_cancelled_when_a_stop_cannot_wait_for_them(site: JobSite, diary: Path):
    site.params["waits"] = "yes"
    life = site.start("--parallelism", "2", "--stop-timeout-ms", "1000")
    until(lambda: len(_names(diary, "waiting")) == 2, "calls in flight in both tasks")
    life.process.send_signal(signal.SIGTERM)
    life.wait()
    site.wait_for_no_process()

    assert _names(diary, "cancelled") == _names(diary, "waiting")
    assert _names(diary, "closed") == _names(diary, "opened")


def _names(diary: Path, suffix: str) -> set[str]:
    return {path.stem for path in diary.glob(f"*.{suffix}")}


def test_functions_are_closed_when_the_input_ends(site: JobSite, diary: Path):
    site.finish("--parallelism", "2", "--max-records-per-epoch", "50")

    assert _names(diary, "opened")
    assert _names(diary, "closed") == _names(diary, "opened")


def test_functions_are_closed_when_the_driver_is_killed(site: JobSite, diary: Path):
    fault = "after_seal@4=kill"
    life = site.start("--parallelism", "2", "--max-records-per-epoch", "50", faults=fault)
    assert life.wait() == -signal.SIGKILL
    site.wait_for_no_process()

    assert _names(diary, "opened")
    until(lambda: _names(diary, "closed") == _names(diary, "opened"), "close")


def test_a_killed_worker_is_in_log_and_status_of_a_job_that_goes_on(site: JobSite):
    (site.input / "in.txt").write_text("ada bob\n" * 1_000)
    hold = "before_publish@2=hold"
    life = site.start("--parallelism", "2", "--max-records-per-epoch", "400", "--json", faults=hold)
    life.wait_for_fault(hold)
    killed = {found.pid for found in site.workers()}
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    life.release()

    assert life.wait() == 0, life.stderr
    ends = [event for event in life.log_events if event["event"] == "worker_ended"]
    assert {end["pid"] for end in ends} == killed
    assert {end["how"] for end in ends} == {"signal 9 (SIGKILL)"}
    assert all(end["peak_bytes"] > 10_000_000 for end in ends)
    status = site.status()
    assert status["ended_worker_count"] == len(status["ended_workers"]) == len(killed) > 0
    assert visible_counts(site.output) == expected_counts(["ada", "bob"] * 1_000)
