"""The driver of a job: how it waits, what it starts again, and what ends it."""

import errno
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.base.errors import StorageUnreachableError
from bicycle_runtime.base.remote_storage import file_system
from bicycle_runtime.engine.errors import EpochFailedError, SparkStartError, SparkStartKilledError
from bicycle_runtime.jobs.control.requests import ask_job
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from bicycle_runtime.operators.errors import FunctionFailedError, FunctionHookError
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError, ParameterError
from tests.plugin_zoo.zoo import install, whole
from tests.unit.jobs.running.light_jobs import LightJob
from tests.waiting import PATIENCE_S, until

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


FRAGILE = whole(
    "fragile",
    """
    from dataclasses import dataclass
    from pathlib import Path

    from bicycle_sdk import KeyedProcessFunction, RestartStrategy, ValueStateDescriptor
    from bicycle_sdk import bicycle_plugin, file_sink


    @dataclass(frozen=True, kw_only=True)
    class Params:
        input: str
        output: str
        fails: str


    def take(path: Path) -> bool:
        left = int(path.read_text())
        path.write_text(str(left - 1))
        return left > 0


    class Count(KeyedProcessFunction[str, str, str]):
        kept = ValueStateDescriptor("count", int)

        def __init__(self, fails: str) -> None:
            self.fails = Path(fails)

        def open(self, ctx) -> None:
            if (self.fails / "open").exists() and take(self.fails / "open"):
                raise ConnectionError("no database")

        def process_element(self, value, ctx):
            if (self.fails / value).exists() and take(self.fails / value):
                raise ValueError(f"no {value}")
            state = ctx.get_value_state(self.kept)
            count = (state.value() or 0) + 1
            state.update(count)
            return [f"{value} {count}"]


    @bicycle_plugin(name="fragile", version="1.0")
    def job(env, params: Params):
        env.set_restart_strategy(RestartStrategy.fixed_delay(max_attempts=3, delay_ms=1))
        lines = env.read_text(params.input).uid("in")
        counts = lines.key_by(str).process(Count(params.fails)).uid("count")
        counts.sink_to(file_sink(params.output, format="text")).uid("out")
    """,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    install(site, COPYING)
    install(site, FRAGILE)
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


@pytest.mark.extended
def test_waits_on_purpose_that_are_longer_than_the_limits_of_the_watchdog_end_nothing(light):
    """The waits are real: 12 s of an interval, and before a restart, where 10 s are allowed."""
    limits = {"watchdog_timeout_ms": 10_000, "epoch_stall_timeout_ms": 10_000}
    job = light(
        engine={"epoch_interval_ms": 12_000, "max_records_per_epoch": 1}, **limits,
        restart_attempts=3, restart_delay_ms=12_000,
    )  # fmt: skip
    job.fails += [killed(), killed()]  # The delays are 0 and 12 s.
    running = job.start()
    status = job.wait_until(lambda status: status.epoch == 2, "the second epoch")
    summary = job.end(running)

    assert (summary.state, summary.record_count) == ("STOPPED", 2)
    assert [(note.code, note.delay_ms) for note in status.restarts] == [
        ("BIC-1807", 0), ("BIC-1807", 12_000),
    ]  # fmt: skip


def test_what_is_asked_while_the_job_restarts_is_answered_when_it_runs_again(light):
    job = light(restart_attempts=3, restart_delay_ms=2_000, parallelism=1)
    job.fails += [killed(), killed()]
    running = job.start()
    job.wait_until(lambda status: len(status.restarts) == 2, "the second restart")
    assert job.status.state is JobState.RESTARTING
    timeout_ms = round(PATIENCE_S * 1_000)
    with ThreadPoolExecutor(2) as pool:
        saved, rescaled = (
            pool.submit(
                ask_job, job.home, "job", kind, facts, clock=SystemClock(), timeout_ms=timeout_ms
            )
            for kind, facts in (
                ("savepoint", {"name": "saved", "to": None}),
                ("rescale", {"parallelism": 3, "operators": {}}),
            )
        )
        assert saved.result()["epoch"] >= 1
        assert set(rescaled.result()["new"].values()) == {3}
    assert job.end(running).state == "STOPPED"


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


@pytest.fixture(params=["memory", "rocksdb"])
def fragile(request, light, tmp_path):
    """Make a job whose functions fail as often as is said: in ``open``, or on a word."""

    def make(text, *, fails, **options):
        engine = {"state_backend": request.param, "max_records_per_epoch": 2}
        job = light("fragile", engine=engine, parallelism=2, **options)
        (tmp_path / "in.txt").write_text(text)
        (tmp_path / "fails").mkdir()
        for name, count in fails.items():
            (tmp_path / "fails" / name).write_text(str(count))
        job.params["fails"] = str(tmp_path / "fails")
        return LightJob(job.root, job.plugin, job.params, job.engine, job.options)

    return make


def lines_in(folder):
    return sorted(line for part in folder.glob("part-*") for line in part.read_text().splitlines())


def test_functions_that_fail_for_a_while_are_opened_again_and_nothing_is_counted_twice(
    fragile, tmp_path
):
    job = fragile("a\nb\na\nc\nb\na\n", fails={"open": 1, "a": 2, "c": 1})
    summary = job.run()

    assert (summary.state, summary.record_count) == ("FINISHED", 6)
    assert lines_in(tmp_path / "out") == ["a 1", "a 2", "a 3", "b 1", "b 2", "c 1"]
    codes = [note.code for note in job.status.restarts]
    assert codes == ["BIC-1402", "BIC-1401", "BIC-1401", "BIC-1401"]
    assert [note.delay_ms for note in job.status.restarts] == [0, 1, 1, 0]
    assert job.executor_count == 1
    assert job.seen.count("RESTARTING") == 4


def test_a_poison_record_ends_the_job_once_its_attempts_are_used_up_and_is_named(fragile, tmp_path):
    job = fragile("a\nb\npoison\nc\n", fails={"poison": 99}, restart_attempts=2)
    with pytest.raises(FunctionFailedError) as caught:
        job.run()

    assert "line 3" in caught.value.facts["position"]
    status = job.status
    assert (status.state, status.error["code"]) == (JobState.FAILED, "BIC-1401")
    assert [note.delay_ms for note in status.restarts] == [0, 1, None]
    assert (tmp_path / "fails" / "poison").read_text() == "96"


def test_without_attempts_the_first_failure_of_a_function_ends_the_job(fragile):
    job = fragile("a\n", fails={"open": 9}, restart_attempts=0)
    with pytest.raises(FunctionHookError):
        job.run()

    assert [note.delay_ms for note in job.status.restarts] == [None]


class Cloud:
    """The storage of this process, reached as clouds are; it can be away."""

    def __init__(self, monkeypatch):
        self.is_away, self.refused_count = False, 0
        system = file_system("memory://")
        for name in ("cat_file", "pipe_file", "find", "isfile", "open", "size", "rm_file", "info"):
            monkeypatch.setattr(system, name, self._guarded(getattr(system, name)))

    def _guarded(self, call):
        def ask(*arguments, **options):
            if self.is_away:
                self.refused_count += 1
                raise ConnectionRefusedError("nobody is there")
            return call(*arguments, **options)

        return ask


@pytest.fixture
def in_cloud(light, monkeypatch, tmp_path):
    """Make a job with its checkpoints in the cloud."""
    cloud = Cloud(monkeypatch)

    def make(**options):
        url = f"memory://{tmp_path}"
        return light(checkpoint_dir=url, storage_timeout_ms=0, **options)

    return cloud, make


def test_an_outage_of_the_storage_is_waited_for_shown_and_counts_as_no_attempt(in_cloud, tmp_path):
    cloud, make = in_cloud
    job = make(restart_attempts=0)
    running = job.start()
    job.wait_until(lambda status: status.epoch == 1, "the first epoch")
    for number in (2, 3):
        cloud.is_away, before = True, cloud.refused_count
        with (tmp_path / "in.txt").open("a") as stream:
            stream.write(f"line {number}\n")
        away = job.wait_until(lambda status: status.silent_storage_ms, "the outage")
        until(lambda n=before: cloud.refused_count > n + 3, "looks at the storage")
        cloud.is_away = False
        status = job.wait_until(lambda status, n=number: status.epoch >= n, "the next epoch")
        assert away.silent_storage_ms <= away.updated_ms
        assert status.silent_storage_ms is None
    summary = job.end(running)

    assert (summary.state, summary.record_count) == ("STOPPED", 4)
    assert (job.status.restarts, job.executor_count) == ([], 1)
    assert lines_in(tmp_path / "out") == ['"a"', '"b"', '"line 2"', '"line 3"']


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_lack_of_file_descriptors_is_waited_for_and_counts_as_no_attempt(
    light, tmp_path, is_wrapped
):
    lack = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    error = lack
    if is_wrapped:
        error = EpochFailedError(epoch=1, job="job", reason="too many open files")
        error.__cause__ = lack
    job = light(restart_attempts=0)
    job.fails += [error, lack]
    running = job.start()
    status = job.wait_until(lambda status: status.epoch == 1, "the first epoch")
    summary = job.end(running)

    assert (status.restarts, status.restart_count) == ([], 0)
    assert (summary.state, summary.record_count) == ("STOPPED", 2)
    assert lines_in(tmp_path / "out") == ['"a"', '"b"']


def test_a_job_that_waits_for_its_storage_can_be_stopped(in_cloud, tmp_path):
    cloud, make = in_cloud
    job = make()
    running = job.start()
    job.wait_until(lambda status: status.epoch == 1, "the first epoch")
    cloud.is_away = True
    with (tmp_path / "in.txt").open("a") as stream:
        stream.write("c\n")
    job.wait_until(lambda status: status.state is JobState.RESTARTING, "the outage")
    summary = job.end(running)

    assert (summary.state, summary.record_count) == ("STOPPED", 2)
    cloud.is_away = False
    job.stop = StopRequest()
    again = job.start()
    job.wait_until(lambda status: status.event_count == 3, "what was not sealed")
    job.end(again)


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.STOPPED])
def test_a_storage_that_is_away_at_the_first_start_is_an_error_at_once(in_cloud, state):
    cloud, make = in_cloud
    cloud.is_away = True
    job = make()
    if state is JobState.STOPPED:
        job.stop.set()
    with pytest.raises(StorageUnreachableError):
        job.run()
    assert job.status.state is state


def test_what_is_sealed_and_not_visible_is_known_after_an_epoch_and_after_a_recovery(
    fragile, tmp_path
):
    job = fragile("a\na\nb\n", fails={"b": 2}, restart_attempts=0)
    for _ in range(2):  # The second run seals nothing, and knows it from the first.
        with pytest.raises(FunctionFailedError):
            job.run()
        assert (job.status.epoch, job.status.waiting["out"].records) == (1, 2)
        assert not lines_in(tmp_path / "out")
    summary = job.run()

    assert (summary.waiting, job.status.waiting) == ({}, {})
    assert lines_in(tmp_path / "out") == ["a 1", "a 2", "b 1"]


def test_a_start_that_is_refused_leaves_what_is_known_of_the_former_run(light):
    job = light()
    running = job.start()
    job.wait_until(lambda status: status.epoch == 1, "the first epoch")
    job.end(running)
    folder = job.home.folder("job")
    before = folder.status_path.read_bytes(), folder.request_path.read_bytes()

    wrong = LightJob(job.root, job.plugin, {**job.params, "inptu": "x"}, job.engine, job.options)
    with pytest.raises(ParameterError):
        wrong.run()
    assert (folder.status_path.read_bytes(), folder.request_path.read_bytes()) == before
    assert job.status.state is JobState.STOPPED


@pytest.mark.parametrize("how", ["state", "output"])
def test_a_start_that_is_refused_later_leaves_the_former_run_too(light, fragile, tmp_path, how):
    job = fragile("a\nb\n", fails={})
    assert job.run().state == "FINISHED"
    folder = job.home.folder("job")
    before = folder.status_path.read_bytes(), folder.request_path.read_bytes()
    params, engine = job.params, job.engine
    plugin = "copying" if how == "state" else job.plugin
    if how == "state":
        params = {name: params[name] for name in ("input", "output")}
    if how == "output":
        params = {**params, "output": str(tmp_path / "in.txt")}  # A file in place of a directory.
    with pytest.raises(BicycleError) as caught:
        LightJob(job.root, plugin, params, engine, job.options).run()

    codes = {"state": "BIC-1505", "output": "BIC-1720"}
    assert caught.value.code == codes[how]
    assert (folder.status_path.read_bytes(), folder.request_path.read_bytes()) == before
    assert job.status.record_count == 2


def test_a_job_that_never_ran_before_tells_why_its_start_was_refused(light):
    job = light()
    wrong = LightJob(job.root, job.plugin, {**job.params, "inptu": "x"})
    with pytest.raises(ParameterError):
        wrong.run()
    assert (job.status.state, job.status.error["code"]) == (JobState.FAILED, "BIC-1003")


def test_the_status_tells_when_the_first_epoch_is_over_or_there_was_nothing_to_read(
    light, fragile, tmp_path
):
    job = light()
    (tmp_path / "in.txt").write_text("")
    running = job.start()
    job.wait_until(lambda status: status.has_begun, "the first look")
    assert job.end(running).record_count == 0

    failing = fragile("a\n", fails={"a": 99}, restart_attempts=1, name="other")
    with pytest.raises(FunctionFailedError):
        failing.run()
    assert not failing.home.folder("other").status().has_begun


def epochs_while(light, tmp_path, *, lines, **options):
    """Return how many epochs a job runs that gets a line every so often."""
    job = light(**options)
    running = job.start()
    job.wait_until(lambda status: status.has_begun, "the first epoch")
    before = job.status.epoch_count
    for number in range(lines):
        with (tmp_path / "in.txt").open("a") as stream:
            stream.write(f"{number}\n")
        threading.Event().wait(0.01)
    job.wait_until(lambda status: status.record_count == lines + 2, "all lines")
    return job.end(running).epoch_count - before


def test_a_job_that_keeps_up_rests_between_epochs_as_long_as_its_latency_allows(light, tmp_path):
    """A bound on epochs in the time that all took, which holds on any machine."""
    begun = time.monotonic()
    count = epochs_while(light, tmp_path, lines=60, latency_target_ms=400)
    passed_s = time.monotonic() - begun

    # An epoch and the rest behind it take the most where both are 133 ms: 266 ms to the next.
    assert count <= passed_s / 0.26 + 2


def test_no_backlog_waits_for_the_latency_target(light, tmp_path):
    job = light(engine={"max_records_per_epoch": 5}, latency_target_ms=30_000)
    (tmp_path / "in.txt").write_text("line\n" * 100)
    running = job.start()
    job.wait_until(lambda status: status.record_count == 100, "the backlog")
    assert job.end(running).epoch_count >= 20


def test_a_driver_that_has_nothing_to_run_loads_no_operators():
    program = (
        "import sys, bicycle_runtime.jobs.running.driver\n"
        "heavy = ('.tasks.program', '.spark.worker')\n"
        "print([name for name in sys.modules if name.endswith(heavy)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        timeout=PATIENCE_S, env=environment_for_python(),
    )  # fmt: skip

    assert done.stdout == "[]\n"
