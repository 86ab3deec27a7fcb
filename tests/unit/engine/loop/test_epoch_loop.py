"""The epoch loop: what a restart continues, what it refuses, and how much an epoch takes."""

import contextlib
import threading
from dataclasses import replace
from functools import partial

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.connectors.collect import CollectSink
from bicycle_runtime.connectors.collection import CollectionSource
from bicycle_runtime.connectors.errors import OUTPUT_UNWRITABLE
from bicycle_runtime.contract import ChecksBeforeStart, MakesTargets, StartsBeforeSinks
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.engine.loop.services import LoopServices
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.recovery.errors import STATE_LOST, EpochTakenError
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.testing import bundle_of
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.connectors import file_sink
from tests.raising import raises
from tests.waiting import PATIENCE_S, until


class Driver:
    """A driver of a word count on a storage that outlives it."""

    def __init__(self, folder):
        self.storage = LocalStorage(str(folder), is_synced=False)
        self.stats, self.collected, self.clock, self.told = [], {}, ManualClock(1_000), []
        self.executor = LocalExecutor()

    @contextlib.contextmanager
    def loop(self, build, *, parallelism=None, change=lambda setup: setup, **options):
        env = StreamEnvironment()
        build(env)
        setup = prepare_job(
            bundle_of(env), job_id="job", storage=self.storage, parallelism=parallelism
        )
        services = LoopServices(
            clock=self.clock, console=self.told.append, on_epoch=self.stats.append,
            collected=self.collected,
        )  # fmt: skip
        setup = change(setup)
        engine = EngineOptions(**options)
        with EpochLoop(
            setup, self.executor, options=engine, run_id="run", services=services
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
    assert [stats.unread.lag.record_count for stats in driver.stats[:3]] == [15, 5, 0]
    assert [set(stats.full_sources) for stats in driver.stats[:2]] == [{"words"}] * 2
    assert set(driver.stats[3].full_sources) == set()
    assert len(driver.collected["out"]) == 25


class SlowToStart(LocalExecutor):
    """Takes a minute for the first tasks, as workers do that come up, and none for others."""

    def __init__(self, clock):
        super().__init__()
        self._clock, self._start_ms = clock, 60_000

    def run(self, orders):
        self._clock.advance(self._start_ms)
        self._start_ms = 0
        return super().run(orders)


def test_workers_that_take_long_to_come_up_make_no_epoch_smaller(tmp_path):
    driver = Driver(tmp_path)
    driver.executor = SlowToStart(driver.clock)
    driver.run(counting(list(range(30_000))), epoch_target_ms=10_000)

    first, second, *_ = [stats.record_count for stats in driver.stats]
    assert second > first


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


def test_two_drivers_cannot_both_advance_a_job(tmp_path):
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


def test_an_epoch_whose_state_a_task_finds_damaged_is_not_gone_on_from_again(tmp_path):
    driver = Driver(tmp_path)
    with driver.loop(counting(WORDS), max_records_per_epoch=2) as loop:
        loop.step()
        loop.step()
        loop.settle()
    with driver.loop(counting(WORDS), max_records_per_epoch=2) as loop:
        [path] = [p for p in driver.storage.list("state") if "/000000000002-" in p][:1]
        driver.storage.write(path, driver.storage.read(path)[:-1])
        with pytest.raises(StateFileError) as caught:
            loop.step()
    assert caught.value.facts["path"] == path
    assert driver.storage.exists("epochs/000000000002.manifest.damaged")

    with driver.loop(counting(WORDS), max_records_per_epoch=2) as loop:
        assert loop.epoch == 1
        while not loop.step().is_finished:
            pass
        loop.finish(is_finished=True)
    assert sorted(set(driver.collected["out"])) == [
        ("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)
    ]  # fmt: skip


@pytest.mark.parametrize("is_published", [True, False])
def test_a_graph_without_the_sink_of_output_that_waits_is_refused(tmp_path, is_published):
    def build(env, *names):
        words = env.from_collection(WORDS).uid("words")
        for name in names:
            words.collect(name).uid(name)

    driver = Driver(tmp_path)
    with driver.loop(lambda env: build(env, "out", "old")) as loop:
        loop.step()
    if not is_published:
        driver.storage.delete("epochs/000000000001.published")

    refused = raises(STATE_LOST, match=r"'old' \(with unpublished output\)")
    with contextlib.nullcontext() if is_published else refused:
        driver.run(lambda env: build(env, "out"))


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_graph_without_the_sink_that_holds_back_output_is_refused(tmp_path, is_closed):
    def build(env, *, has_files):
        words = env.from_collection(WORDS).uid("words")
        words.collect("out")
        if has_files:
            words.sink_to(file_sink(str(tmp_path / "files"), format="jsonl")).uid("files")

    driver = Driver(tmp_path / "checkpoint")
    with driver.loop(partial(build, has_files=True)) as loop:
        loop.step()
        if is_closed:
            loop.finish(is_finished=False)

    refused = raises(STATE_LOST, match=r"'files' \(with unpublished output\)")
    with contextlib.nullcontext() if is_closed else refused:
        driver.run(partial(build, has_files=False))
    driver.run(partial(build, has_files=False), change=losing)


@pytest.mark.parametrize(
    "changed",
    [counting(WORDS, uid="renamed"), counting(WORDS, groups=64)],
    ids=["uid", "key groups"],
)
def test_a_graph_that_would_lose_state_is_refused(tmp_path, changed):
    driver = Driver(tmp_path)
    driver.run(counting(WORDS))
    before = driver.storage.list("")

    with raises(STATE_LOST) as caught:
        driver.run(changed)
    assert "'count'" in caught.value.facts["lost"]
    if "renamed" in caught.value.facts["instead"]:
        assert "'renamed' (Reduce, " in caught.value.facts["instead"]
    assert driver.storage.list("") == before


def losing(setup):
    return replace(setup, allows_dropped_state=True)


def test_state_that_is_divided_otherwise_may_be_given_up(tmp_path):
    driver = Driver(tmp_path)
    driver.run(counting(WORDS))
    driver.run(counting([*WORDS, "a"], groups=64), change=losing)

    assert driver.collected["out"][-1] == ("a", 1)


def test_records_on_a_loop_that_is_gone_are_refused_before_sinks_start_or_given_up(tmp_path):
    def build(env, *, is_looping):
        numbers = env.from_collection([3]).uid("numbers")
        head = numbers.iterate() if is_looping else numbers
        lower = head.map(lambda number: number - 1).uid("lower")
        if is_looping:
            head.feedback(lower.filter(lambda number: number > 0))
        lower.collect("out")

    driver = Driver(tmp_path)
    with driver.loop(partial(build, is_looping=True)) as loop:
        loop.step()
    straight = partial(build, is_looping=False)
    with raises(STATE_LOST, match="records on the loop"):
        driver.run(straight, change=told())
    assert driver.told == []

    driver.run(straight, change=losing)
    assert driver.collected["out"] == [2]


def test_an_epoch_interval_is_kept_between_epochs(tmp_path):
    driver = Driver(tmp_path)
    build = counting(list(range(30)))
    with driver.loop(build, max_records_per_epoch=10, epoch_interval_ms=500) as loop:
        assert loop.step().has_run
        step = loop.step()
        assert (step.has_run, step.wait_ms) == (False, 500)
        driver.clock.advance(step.wait_ms)
        assert loop.step().has_run


def test_a_long_interval_is_waited_for_in_short_pieces_that_keep_workers(tmp_path):
    driver = Driver(tmp_path)
    build = counting(list(range(30)))
    with driver.loop(build, max_records_per_epoch=10, epoch_interval_ms=3_600_000) as loop:
        assert loop.step().has_run
        waited_ms = 0
        while not (step := loop.step()).has_run:
            assert 0 < step.wait_ms <= 1_000
            driver.clock.advance(step.wait_ms)
            waited_ms += step.wait_ms
        assert waited_ms == 3_600_000


def test_a_publication_that_fails_is_told_while_the_next_epoch_waits(tmp_path):
    class Failing(CollectSink):
        def publish(self, epoch, state):
            raise OUTPUT_UNWRITABLE(vertex="out", path="x", reason="gone")

    def failing(setup):
        return replace(setup, sinks={uid: Failing(sink.spec) for uid, sink in setup.sinks.items()})

    driver = Driver(tmp_path)
    options = {"max_records_per_epoch": 10, "epoch_interval_ms": 3_600_000}
    with driver.loop(counting(list(range(30))), change=failing, **options) as loop:
        assert loop.step().has_run
        with raises(OUTPUT_UNWRITABLE):
            until(lambda: loop.step().has_run, "the end of the publication")


@pytest.mark.parametrize("moment", ["the next epoch", "a request"])
def test_workers_are_kept_while_a_publication_waits_for_another_system(tmp_path, moment):
    rested = threading.Event()

    class Resting(LocalExecutor):
        def rest(self):
            rested.set()

    class Waiting(CollectSink):
        def publish(self, epoch, state):
            assert rested.wait(PATIENCE_S), "workers were not kept"
            super().publish(epoch, state)

    def waiting(setup):
        return replace(setup, sinks={uid: Waiting(sink.spec) for uid, sink in setup.sinks.items()})

    driver = Driver(tmp_path)
    driver.executor = Resting()
    count = 20 if moment == "the next epoch" else 10
    build = counting(list(range(count)))
    with driver.loop(build, change=waiting, max_records_per_epoch=10) as loop:
        assert loop.step().has_run
        if moment == "a request":
            loop.settle()
        else:
            loop.step()
    assert len(driver.collected["out"]) == count


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_intervals_do_not_follow_a_wall_clock_that_is_set(tmp_path, jump_ms):
    driver = Driver(tmp_path)
    build = counting(list(range(60)))
    options = {"max_records_per_epoch": 10, "epoch_interval_ms": 500}
    with driver.loop(build, **options, checkpoint_interval_ms=10_000) as loop:
        assert loop.step().has_run
        driver.clock.set_wall(driver.clock.now_ms() + jump_ms)
        step = loop.step()
        assert (step.has_run, step.wait_ms) == (False, 500)
        driver.clock.advance(step.wait_ms)
        assert loop.step().has_run


# --- the order in which connectors start ---------------------------------------------------------


class ToldSource(StartsBeforeSinks, CollectionSource):
    """Tells of its start on the console; reads what sinks make when it is named so."""

    def start(self, services, offsets, state):
        services.console("source starts")
        super().start(services, offsets, state)

    def is_fed_by(self, made):
        return self.spec.vertex_id in made


class ToldSink(ChecksBeforeStart, MakesTargets, CollectSink):
    def makes(self):
        return ["made"]

    def check(self, services, state):
        services.console("sink is checked")

    def start(self, services, state):
        services.console("sink starts")
        self.console = services.console
        super().start(services, state)

    def publish(self, epoch, state):
        self.console("sink publishes")
        super().publish(epoch, state)


class BrokenSink(ToldSink):
    def publish(self, epoch, state):
        raise ConnectionError


def told(sink_class=ToldSink):
    def change(setup):
        sources = {uid: ToldSource(source.spec) for uid, source in setup.sources.items()}
        sinks = {uid: sink_class(sink.spec) for uid, sink in setup.sinks.items()}
        return replace(setup, sources=sources, sinks=sinks)

    return change


def passing_on(uid):
    return lambda env: env.from_collection(WORDS).uid(uid).collect("out")


@pytest.mark.parametrize(
    ("uid", "order"),
    [
        ("apart", ["source starts", "sink is checked", "sink starts"]),
        ("made", ["sink is checked", "sink starts", "source starts"]),
    ],
)
def test_a_source_begins_before_what_it_does_not_need_is_made(tmp_path, uid, order):
    driver = Driver(tmp_path)
    with driver.loop(passing_on(uid), change=told()):
        assert driver.told == order


def test_what_waits_to_be_published_comes_before_any_source(tmp_path):
    driver = Driver(tmp_path)
    with (
        pytest.raises(ConnectionError),
        driver.loop(passing_on("apart"), change=told(BrokenSink)) as loop,
    ):
        loop.step()
        loop.settle()
    driver.told.clear()

    with driver.loop(passing_on("apart"), change=told()):
        assert driver.told == [
            "sink is checked", "sink starts", "sink publishes", "source starts",
        ]  # fmt: skip


def test_all_sinks_are_checked_before_one_of_them_starts(tmp_path):
    def two_sinks(env):
        words = env.from_collection(WORDS).uid("made")
        words.collect("out")
        words.collect("other")

    driver = Driver(tmp_path)
    with driver.loop(two_sinks, change=told()):
        assert driver.told[:4] == 2 * ["sink is checked"] + 2 * ["sink starts"]
