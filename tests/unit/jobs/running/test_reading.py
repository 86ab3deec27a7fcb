"""How far the tasks of a long epoch are."""

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.jobs.home import JobFolder
from bicycle_runtime.jobs.running.epochs import ReadingWatch
from bicycle_runtime.jobs.running.progress import JobProgress
from bicycle_runtime.layouts.paths import READING
from bicycle_runtime.operators.heartbeats import ReadHeartbeat, read_so_far
from bicycle_runtime.operators.user_calls.waits import Waits
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk.clock import ManualClock
from tests.plugin_zoo.zoo import install, whole
from tests.unit.jobs.job_samples import stats_of, status_of
from tests.unit.jobs.running.light_jobs import LightJob

PAUSING = whole(
    "pausing",
    """
    from dataclasses import dataclass
    from datetime import timedelta

    from bicycle_sdk import bicycle_plugin, file_sink, retry

    tried = set()


    @dataclass(frozen=True, kw_only=True)
    class Params:
        input: str
        output: str


    def second_time(line: str) -> str:
        if line not in tried:
            tried.add(line)
            raise ConnectionError(line)
        return line


    @bicycle_plugin(name="pausing", version="1.0")
    def job(env, params: Params):
        lines = env.read_text(params.input).uid("in").rate_limit(0.2, burst=1).uid("held")
        lines.map(second_time).on_error(retry(1, backoff=timedelta(seconds=14))).uid("again") \\
            .sink_to(file_sink(params.output)).uid("out")
    """,
)


class Second:
    """A clock for tasks: each look is some seconds later."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def test_tasks_of_a_short_epoch_write_nothing_and_those_of_a_long_one_now_and_then(tmp_path):
    storage = LocalStorage(str(tmp_path))
    quick = ReadHeartbeat(storage, 1, (0, 0), now=Second(0.001))
    for count in range(100):
        quick(count)
    assert storage.list(READING) == []

    for subtask in range(2):
        ReadHeartbeat(storage, 7, (0, subtask), now=Second(3))(4_096 * (subtask + 1))
    assert read_so_far(storage, 7) == (12_288, 0)
    assert read_so_far(storage, 8) == (0, 0)


def test_a_long_epoch_is_shown_with_what_it_has_read(tmp_path):
    clock, storage = ManualClock(10_000), LocalStorage(str(tmp_path / "cp"))
    status = status_of("job", epoch=6)
    progress = JobProgress(status, folder=JobFolder(tmp_path), clock=clock, listener=lambda _: None)
    watch = ReadingWatch(storage, progress, clock=clock, on_wait=lambda _: None)
    ReadHeartbeat(storage, 7, (0, 0), now=Second(3))(500)
    with progress.epoch():
        watch.look()
        assert status.reading_count == 0
        clock.advance(2_000)
        watch.look()
        assert status.reading_count == 500
        progress.take_epoch(stats_of(7))
        assert (status.epoch, status.epoch_began_ms) == (7, None)  # What comes now is no epoch.
    assert status.epoch_began_ms is None
    with watch:
        pass
    assert storage.list(READING) == []


def test_tasks_tell_how_far_they_are(monkeypatch):
    monkeypatch.setattr("bicycle_runtime.operators.heartbeats._READ_INTERVAL_S", 0.0)

    def job(env):
        env.add_source(script_source(int)).uid("in").map(lambda n: n).collect("out")

    with Harness(job) as harness:
        harness.push(range(10_000))
        harness.run_epoch()
        assert read_so_far(harness._job.storage, 1) == (10_000, 0)


def test_a_long_wait_is_told_before_it_begins_and_short_ones_together(tmp_path):
    storage = LocalStorage(str(tmp_path))
    task = ReadHeartbeat(storage, 1, (1, 0), now=Second(0.0))
    task.wait(1.5)
    assert read_so_far(storage, 1) == (0, 0)
    task.wait(2.0)
    assert read_so_far(storage, 1) == (0, 2_000)
    task.wait(3.0)
    assert read_so_far(storage, 1) == (0, 2_000)
    task.wait(63.0)
    assert read_so_far(storage, 1) == (0, 63_000)


def test_tasks_of_a_level_wait_side_by_side_and_levels_one_after_the_other(tmp_path):
    clock, storage = ManualClock(10_000), LocalStorage(str(tmp_path / "cp"))
    status, waits = status_of("job", epoch=6), []
    progress = JobProgress(status, folder=JobFolder(tmp_path), clock=clock, listener=lambda _: None)
    watch = ReadingWatch(storage, progress, clock=clock, on_wait=waits.append)
    places = [(0, 0), (0, 1), (1, 0)]
    tasks = {task: ReadHeartbeat(storage, 7, task, now=Second(0.0)) for task in places}
    with progress.epoch():
        clock.advance(2_000)
        for task, waited_s in zip(tasks.values(), (60, 40, 5), strict=True):
            task.wait(waited_s)
        watch.look()
        watch.look()
        tasks[0, 1].wait(70)
        watch.look()
        ReadHeartbeat(storage, 6, (1, 0), now=Second(0.0)).wait(900)  # a zombie
        watch.look()
    assert waits == [65_000, 10_000]


def test_waits_at_the_same_time_count_once():
    now, told = [0.0], []
    waits = Waits(lambda: now[0])
    waits.begin(told.append)
    waits.tell(10)
    waits.tell(10)
    now[0] = 6.0
    waits.tell(10)
    now[0] = 100.0
    waits.tell(1)
    assert told == [10, 10, 16, 17]
    waits.begin(told.append)
    waits.tell(2)
    assert told[-1] == 2


@pytest.mark.extended
def test_waits_on_purpose_inside_an_epoch_do_not_count_as_a_stall(tmp_path, monkeypatch):
    """They are real: two pauses of 14 s and 5 s at the rate, where 10 s are allowed."""
    install(tmp_path / "site", PAUSING)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "in.txt").write_text("a\nb\n")
    params = {"input": str(tmp_path / "in.txt"), "output": str(tmp_path / "out")}
    job = LightJob(
        tmp_path, "pausing", params, {}, {"epoch_stall_timeout_ms": 10_000, "parallelism": 1}
    )
    summary = job.run()

    assert (summary.state, summary.record_count) == ("FINISHED", 2)
    assert job.status.restarts == []
