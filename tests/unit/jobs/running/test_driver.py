"""The driver of a job: how it waits, what it starts again, and what ends it."""

import pytest

from bicycle_runtime.base.clock import SystemClock
from bicycle_runtime.engine.errors import SparkStartError, SparkStartKilledError
from bicycle_runtime.jobs.control.requests import ask_job
from bicycle_runtime.jobs.status import JobState
from tests.plugin_zoo.zoo import install, whole
from tests.unit.jobs.running.light_jobs import LightJob
from tests.waiting import PATIENCE_S

COPYING = whole(
    "copying",
    """
    from dataclasses import dataclass

    from bicycle_sdk import RestartStrategy, bicycle_plugin, file_sink


    @dataclass(frozen=True, kw_only=True)
    class Params:
        input: str
        output: str


    @bicycle_plugin(name="copying", version="1.0")
    def job(env, params: Params):
        env.set_restart_strategy(RestartStrategy.fixed_delay(max_attempts=3, delay_ms=1))
        lines = env.read_text(params.input, follow=True).uid("in")
        lines.sink_to(file_sink(params.output)).uid("out")
    """,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    install(site, COPYING)
    return site


@pytest.fixture
def light(site, tmp_path, monkeypatch):
    """Make a job of a plugin of this module."""
    monkeypatch.syspath_prepend(str(site))

    def make(plugin="copying", *, engine=None, **options):
        (tmp_path / "in.txt").write_text("a\nb\n")
        params = {"input": str(tmp_path / "in.txt"), "output": str(tmp_path / "out")}
        return LightJob(tmp_path, plugin, params, engine or {}, options)

    return make


def test_a_job_that_waits_for_its_next_epoch_answers_meanwhile(light):
    job = light(engine={"epoch_interval_ms": 3_600_000})
    running = job.start()
    job.wait_until(lambda status: status.epoch == 1, "the first epoch")
    facts = {"name": "saved", "to": None}
    timeout_ms = round(PATIENCE_S * 1_000)
    answer = ask_job(
        job.home, "job", "savepoint", facts, clock=SystemClock(), timeout_ms=timeout_ms
    )
    summary = job.end(running)

    assert answer["epoch"] == 2
    assert (summary.state, summary.record_count) == ("STOPPED", 2)


def killed():
    return SparkStartKilledError(master="local[*]", reason="java ended with signal 9")


def test_java_that_is_killed_while_it_starts_is_started_again(light, tmp_path):
    job = light(restart_attempts=2)
    job.fails += [killed(), killed()]
    running = job.start()
    status = job.wait_until(lambda status: status.epoch == 1, "the first epoch")
    job.end(running)

    assert [note.code for note in status.restarts] == ["BIC-1807", "BIC-1807"]
    assert job.executor_count == 3
    assert job.fails == []


def test_java_that_is_killed_at_every_start_ends_the_job(light):
    job = light(restart_attempts=1)
    job.fails += [killed(), killed(), killed()]
    with pytest.raises(SparkStartKilledError):
        job.run()

    assert (job.status.state, job.executor_count) == (JobState.FAILED, 2)


def test_java_that_does_not_start_at_all_is_not_started_again(light):
    job = light()
    job.fails.append(SparkStartError(master="local[*]", reason="java ended with exit code 1"))
    with pytest.raises(SparkStartError):
        job.run()

    assert (job.status.restarts, job.executor_count) == ([], 1)


def test_java_that_does_not_start_again_for_now_is_waited_for(light):
    job = light(restart_attempts=2)
    job.fails += [killed(), SparkStartError(master="local[*]", reason="no memory: exit code 1")]
    running = job.start()
    status = job.wait_until(lambda status: status.epoch == 1, "the first epoch")
    job.end(running)

    assert [note.code for note in status.restarts] == ["BIC-1807", "BIC-1802"]
