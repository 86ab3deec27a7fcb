"""How far the tasks of a long epoch are."""

from bicycle_runtime.base.clock import ManualClock
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.jobs.home import JobFolder
from bicycle_runtime.jobs.running.progress import Progress
from bicycle_runtime.jobs.running.reading import ReadingWatch
from bicycle_runtime.operators.tasks.read_heartbeat import (
    READING_FOLDER,
    ReadHeartbeat,
    read_so_far,
)
from bicycle_runtime.testing import Harness, script_source
from tests.unit.jobs.job_samples import stats_of, status_of


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
    assert storage.list(READING_FOLDER) == []

    for subtask in range(2):
        ReadHeartbeat(storage, 7, (0, subtask), now=Second(3))(4_096 * (subtask + 1))
    assert read_so_far(storage, 7) == 12_288
    assert read_so_far(storage, 8) == 0


def test_a_long_epoch_is_shown_with_what_it_has_read(tmp_path):
    clock, storage = ManualClock(10_000), LocalStorage(str(tmp_path / "cp"))
    status = status_of("job", epoch=6)
    progress = Progress(status, folder=JobFolder(tmp_path), clock=clock, listener=lambda _: None)
    watch = ReadingWatch(storage, progress, clock=clock)
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
    assert storage.list(READING_FOLDER) == []


def test_tasks_tell_how_far_they_are(monkeypatch):
    monkeypatch.setattr("bicycle_runtime.operators.tasks.read_heartbeat._INTERVAL_S", 0.0)

    def job(env):
        env.add_source(script_source(int)).uid("in").map(lambda n: n).collect("out")

    with Harness(job) as harness:
        harness.push(range(10_000))
        harness.run_epoch()
        assert read_so_far(harness._job.storage, 1) == 10_000
