"""The driver of a job: how it waits, what it starts again, and what ends it."""

import pytest

from bicycle_runtime.base.clock import SystemClock
from bicycle_runtime.jobs.control.requests import ask_job
from tests.plugin_zoo.zoo import install, whole
from tests.unit.jobs.running.light_jobs import LightJob
from tests.waiting import PATIENCE_S

COPYING = whole(
    "copying",
    """
    from dataclasses import dataclass

    from bicycle_sdk import bicycle_plugin, file_sink


    @dataclass(frozen=True, kw_only=True)
    class Params:
        input: str
        output: str


    @bicycle_plugin(name="copying", version="1.0")
    def job(env, params: Params):
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
