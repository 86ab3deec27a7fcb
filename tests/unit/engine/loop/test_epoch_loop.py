"""The epoch loop: what a restart continues, what it refuses, and how much an epoch takes."""

import contextlib

import pytest

from bicycle_runtime.base.clock import ManualClock
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop, LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.recovery.errors import EpochTakenError, StateLostError
from bicycle_runtime.testing import bundle_of
from bicycle_sdk import StreamEnvironment


class Driver:
    """A driver of a word count on a storage that outlives it."""

    def __init__(self, folder):
        self.storage = LocalStorage(str(folder), is_synced=False)
        self.stats, self.collected, self.clock = [], {}, ManualClock(1_000)

    @contextlib.contextmanager
    def loop(self, build, *, parallelism=None, **options):
        env = StreamEnvironment()
        build(env)
        setup = prepare_job(
            bundle_of(env), job_id="job", storage=self.storage, parallelism=parallelism
        )
        services = LoopServices(
            clock=self.clock, console=print, on_epoch=self.stats.append, collected=self.collected
        )
        engine = EngineOptions(**options)
        with EpochLoop(
            setup, LocalExecutor(), options=engine, run_id="run", services=services
        ) as loop:
            yield loop

    def run(self, build, **settings):
        with self.loop(build, **settings) as loop:
            while not loop.step().is_finished:
                pass
            loop.finish(is_finished=True)


def counting(items, *, uid="count", groups=128):
    def build(env):
        env.set_max_parallelism(groups)
        words = env.from_collection(items).uid("words")
        words.key_by(lambda w: w).count().uid(uid).collect("out")

    return build


WORDS = ["a", "b", "a", "c", "a", "b"]


def test_a_backlog_is_read_in_epochs_of_bounded_size(tmp_path):
    driver = Driver(tmp_path)
    driver.run(counting(list(range(25))), max_records_per_epoch=10)

    assert [stats.record_count for stats in driver.stats] == [10, 10, 5, 0]
    assert [stats.event_count for stats in driver.stats] == [10, 20, 25, 25]
    assert len(driver.collected["out"]) == 25


def test_a_finished_job_that_is_run_again_reads_and_writes_nothing(tmp_path):
    driver = Driver(tmp_path)
    driver.run(counting(WORDS))
    before = {path: driver.storage.read(path) for path in driver.storage.list("")}
    driver.stats.clear()
    driver.run(counting(WORDS))

    assert driver.stats == []
    assert {path: driver.storage.read(path) for path in driver.storage.list("")} == before
    assert len(driver.collected["out"]) == len(WORDS)


def test_a_stopped_job_continues_where_it_was(tmp_path):
    driver = Driver(tmp_path)
    with driver.loop(counting(WORDS), max_records_per_epoch=4) as loop:
        loop.step()
        loop.finish(is_finished=False)
    driver.run(counting(WORDS), parallelism=3)

    assert sorted(driver.collected["out"]) == [
        ("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)
    ]  # fmt: skip
    assert sum(stats.record_count for stats in driver.stats) == len(WORDS)


def test_two_drivers_can_not_both_advance_a_job(tmp_path):
    driver, rival = Driver(tmp_path), Driver(tmp_path)
    with driver.loop(counting(WORDS), max_records_per_epoch=2) as first:
        with rival.loop(counting(WORDS), max_records_per_epoch=2) as second:
            second.step()
            second.settle()
        with pytest.raises(EpochTakenError) as caught:
            first.step()

    assert caught.value.facts["epoch"] == 1
    assert rival.collected["out"] == [("a", 1), ("b", 1)]
    assert driver.collected["out"] == []


@pytest.mark.parametrize(
    "changed",
    [counting(WORDS, uid="renamed"), counting(WORDS, groups=64)],
    ids=["uid", "key groups"],
)
def test_a_graph_that_would_lose_state_is_refused(tmp_path, changed):
    driver = Driver(tmp_path)
    driver.run(counting(WORDS))
    before = driver.storage.list("")

    with pytest.raises(StateLostError) as caught:
        driver.run(changed)
    assert "'count'" in caught.value.facts["lost"]
    assert driver.storage.list("") == before


def test_an_epoch_interval_is_kept_between_epochs(tmp_path):
    driver = Driver(tmp_path)
    build = counting(list(range(30)))
    with driver.loop(build, max_records_per_epoch=10, epoch_interval_ms=500) as loop:
        assert loop.step().has_run
        step = loop.step()
        assert (step.has_run, step.wait_ms) == (False, 500)
        driver.clock.advance(step.wait_ms)
        assert loop.step().has_run
