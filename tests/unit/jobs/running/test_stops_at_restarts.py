"""A stop request that comes while a job starts again, or while it stalls."""

import pytest

from bicycle_runtime.engine.errors import SparkStartKilledError
from bicycle_runtime.jobs.errors import StalledError
from bicycle_runtime.jobs.status import JobState
from tests.unit.jobs.running.light_jobs import LETTERS, LightJob


@pytest.fixture
def light(tmp_path):
    """Make a job of a file."""
    file = tmp_path / "letters.py"
    file.write_text(LETTERS)
    return lambda **options: LightJob(tmp_path, str(file), options=options)


def killed():
    return SparkStartKilledError(master="local[*]", reason="java ended with signal 9")


def test_a_job_that_waits_for_a_restart_can_be_stopped(light):
    job = light(restart_attempts=3, restart_delay_ms=3_600_000)
    job.fails += [killed(), killed()]
    running = job.start()
    job.wait_until(lambda status: len(status.restarts) == 2, "the wait")

    assert job.end(running).state == "STOPPED"
    assert (job.status.state, job.status.error) == (JobState.STOPPED, None)


class FailsAfterStop(list):
    """Errors of starts, each of which follows a stop request."""

    def __init__(self, stop, errors):
        super().__init__(errors)
        self.stop = stop

    def pop(self, index):
        self.stop.set()
        return super().pop(index)


@pytest.mark.parametrize(("attempts", "is_stopped"), [(3, True), (0, False)])
def test_a_stall_while_the_job_stops_ends_it_as_stopped_if_it_may_start_again(
    light, attempts, is_stopped
):
    job = light(restart_attempts=attempts)
    stalled = StalledError(job="job", phase="recovery", target="epoch 1", waited_ms=5_000)
    job.fails = FailsAfterStop(job.stop, [stalled])
    if is_stopped:
        assert job.run().state == "STOPPED"
    else:
        with pytest.raises(StalledError):
            job.run()

    state = JobState.STOPPED if is_stopped else JobState.FAILED
    assert (job.status.state, job.executor_count) == (state, 1)
    assert [(note.code, note.delay_ms) for note in job.status.restarts] == [("BIC-1974", None)]
