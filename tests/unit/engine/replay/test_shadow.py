"""A shadow of a job: the same input, the same time, state of its own, and one hand-over."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

import pytest

from bicycle_runtime.engine.errors import REPLAY_GRAPH_CHANGED, SHADOW_ASTRAY, SHADOW_OUTRUN
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.replay.rereading import rereaders
from bicycle_runtime.engine.replay.shadow_loop import ShadowLoop
from bicycle_runtime.jobs.checkpoints.sealed_queries import Selection, diff_operator
from bicycle_runtime.jobs.checkpoints.sealed_states import SealedEpoch
from bicycle_runtime.operators.errors import FunctionFailedError
from bicycle_runtime.recovery.adoption import fork
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_sdk import KeyedProcessFunction, WatermarkStrategy
from bicycle_sdk.windows import Sum
from tests.raising import raises
from tests.unit.engine.replay.pairs import Pair

EVENTS = [(name, second) for second in range(40) for name in ("ada", "bob", "cid")]
BACKENDS = pytest.mark.parametrize("backend", ["memory", "rocksdb"])


class Late(KeyedProcessFunction[str, str, str]):
    """Answers by timers of processing time."""

    def process_element(self, value, ctx):
        ctx.timer_service.register_processing_time_timer(ctx.now() + 1_500)
        return []

    def on_timer(self, timestamp_ms, ctx):
        return [f"{ctx.current_key()} at {timestamp_ms}"]


def everything(env, *, by="1", bound_s=2):
    events = env.from_collection(EVENTS).uid("events")
    bound = timedelta(seconds=bound_s)
    strategy = WatermarkStrategy.bounded_out_of_orderness(bound).with_timestamps(
        lambda event: event[1] * 1_000
    )
    timed = events.assign_timestamps(strategy).uid("timed").key_by(lambda event: event[0])
    shown = partial(tell, by)
    timed.count().uid("count").map(shown).uid("shown").collect("counts")
    five = timedelta(seconds=5)
    sums = timed.tumbling_window(five).aggregate(Sum(lambda event: event[1])).uid("sums")
    sums.map(shown).uid("shown sums").collect("sums")
    timed.process_fn(Late()).uid("late").map(shown).uid("shown late").collect("late")


def tell(by, value):
    return by, str(value)


def alone(folder, build, **options):
    """Return what a job gives that runs without a shadow, and stops where another one does."""
    pair = Pair(folder, build, **options)
    with pair.loop() as loop:
        pair.run(10, loop)
        loop.finish(is_finished=False)
    pair.finish(build)
    return pair.collected


@BACKENDS
@pytest.mark.parametrize("parallelisms", [{}, {"count": 3, "sums": 2, "late": 2, "timed": 2}])
def test_each_result_is_given_once_by_one_of_two_versions(tmp_path, backend, parallelisms):
    options = {"state_backend": backend}
    wanted = alone(tmp_path / "alone", everything, **options)
    pair = Pair(
        tmp_path / "two", everything, partial(everything, by="2"), parallelisms=parallelisms,
        **options,
    )  # fmt: skip

    pair.upgraded()

    for name, records in wanted.items():
        assert sorted(text for _, text in pair.collected[name]) == sorted(t for _, t in records)
        assert {by for by, _ in pair.collected[name]} == {"1", "2"}


@pytest.mark.parametrize("bound_s", [0, 9])
def test_a_version_that_waits_for_longer_or_less_gives_no_window_again_and_misses_none(
    tmp_path, bound_s
):
    wanted = alone(tmp_path / "alone", everything)
    pair = Pair(tmp_path / "two", everything, partial(everything, by="2", bound_s=bound_s))

    pair.upgraded()

    assert sorted(text for _, text in pair.collected["sums"]) == sorted(
        text for _, text in wanted["sums"]
    )
    assert {by for by, _ in pair.collected["sums"]} == {"1", "2"}


@BACKENDS
def test_the_same_code_has_the_same_state_as_the_job_after_each_epoch(tmp_path, backend):
    pair = Pair(tmp_path, everything, state_backend=backend, checkpoint_interval_ms=1)
    with pair.loop() as loop:
        pair.run(2, loop)
        shadow = pair.shadow()
        for _ in range(12):
            pair.run(1, loop)
            pair.catch_up(shadow)
            assert shadow.epoch == loop.epoch
            job = SealedEpoch(pair.storage, EpochHistory(pair.storage).manifest())
            own = SealedEpoch(pair.place, EpochHistory(pair.place).manifest())
            for uid in job.operators():
                found = diff_operator(job, own, uid, selection=Selection(), limit=5)
                assert not any(found.counts.values()), found
            assert job.manifest.time == own.manifest.time
    pair.executor.stop()


def looping(env, *, by="1"):
    numbers = env.from_collection(list(range(40))).uid("numbers")
    loop = numbers.iterate()
    step = loop.map(lambda n: n - 7).uid("less")
    loop.feedback(step.filter(lambda n: n > 0).uid("again"))
    step.filter(lambda n: n <= 0).uid("done").map(partial(tell, by)).uid("shown").collect("out")


def test_records_in_a_loop_go_on_going_round(tmp_path):
    wanted = alone(tmp_path / "alone", looping)
    pair = Pair(tmp_path / "two", looping, partial(looping, by="2"))

    pair.upgraded()

    assert sorted(t for _, t in pair.collected["out"]) == sorted(t for _, t in wanted["out"])


def test_a_version_with_other_state_goes_on_with_what_it_has_made_itself(tmp_path):
    def counting(env, *, factor):
        numbers = env.from_collection(EVENTS).uid("events")
        keyed = numbers.key_by(lambda event: event[0])
        amount = keyed.map(lambda event: (event[0], factor)).uid("weighed")
        sums = amount.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
        sums.uid("sums").collect("out")

    pair = Pair(tmp_path, partial(counting, factor=1), partial(counting, factor=10))

    pair.upgraded()

    last = dict(pair.collected["out"][-3:])
    # 40 events each: 7 by the job before the fork (21 records of 3 keys), the rest by the shadow.
    assert last == dict.fromkeys(("ada", "bob", "cid"), 7 + 33 * 10)


def test_what_was_not_followed_to_the_last_epoch_is_not_taken(tmp_path):
    pair = Pair(tmp_path, everything, partial(everything, by="2"))
    with pair.loop() as loop:
        pair.run(3, loop)
        shadow = pair.shadow()
        pair.run(2, loop)
        shadow.step()
        loop.finish(is_finished=False)
    pair.executor.stop()

    assert pair.take_over() is None
    assert pair.take_over() is None
    pair.finish(partial(everything, by="2"))
    assert sum(len(records) for records in pair.collected.values()) > 120


def test_output_that_is_not_visible_yet_is_published_by_the_job_and_nothing_is_taken(tmp_path):
    pair = Pair(tmp_path, everything)
    with pair.loop() as loop:
        pair.run(3, loop)
        shadow = pair.shadow()
        pair.run(1, loop)
    pair.catch_up(shadow)
    pair.executor.stop()
    pair.storage.delete(f"epochs/{shadow.epoch:012}.published")

    assert pair.take_over() is None


def test_epochs_that_the_job_keeps_no_more_are_told(tmp_path):
    pair = Pair(tmp_path, everything, retained_epochs=2)
    with pair.loop() as loop:
        pair.run(2, loop)
        shadow = pair.shadow()
        pair.followed = shadow.epoch
        pair.run(6, loop)
        assert shadow.step()  # They were kept while it was told that somebody follows.
        pair.followed = None
        pair.run(2, loop)
        with raises(SHADOW_OUTRUN):
            shadow.step()
    pair.executor.stop()


def test_an_epoch_that_the_job_has_run_again_is_told(tmp_path):
    pair = Pair(tmp_path, everything)
    with pair.loop() as loop:
        pair.run(2, loop)
        shadow = pair.shadow()
        pair.run(1, loop)
        assert shadow.step()
    newest = f"epochs/{shadow.epoch:012}"
    for ending in ("manifest", "published"):
        pair.storage.delete(f"{newest}.{ending}")
    pair.options = replace(pair.options, max_records_per_epoch=5)
    with pair.loop(run_id="again") as loop:
        pair.run(2, loop)

    with raises(SHADOW_ASTRAY):
        shadow.step()
    pair.executor.stop()


def test_a_version_without_a_source_of_the_job_cannot_follow_it(tmp_path):
    def other(env):
        numbers = env.from_collection(EVENTS).uid("others")
        numbers.key_by(lambda event: event[0]).count().uid("count").collect("counts")

    pair = Pair(tmp_path, everything, other)
    with pair.loop() as loop:
        pair.run(1, loop)
        fork(pair.storage, pair.place, job="job")
        setup = replace(pair.setup(other, pair.place), allows_dropped_state=True)
        executor = LocalExecutor()
        shadow = ShadowLoop(
            setup, pair.storage, rereaders(setup), executor, options=pair.options,
            run_id="green", clock=pair.clock,
        )  # fmt: skip
        pair.run(1, loop)
        with raises(REPLAY_GRAPH_CHANGED):
            shadow.step()
        executor.stop()


@dataclass
class Breaking:
    """Fails from a number of records on."""

    left: int
    seen: list = field(default_factory=list)

    def __call__(self, event):
        self.left -= 1
        if self.left < 0:
            raise ValueError(event)
        return event


def test_a_version_that_fails_leaves_the_job_as_it_is(tmp_path):
    def broken(env):
        events = env.from_collection(EVENTS).uid("events").map(Breaking(10)).uid("breaks")
        events.key_by(lambda event: event[0]).count().uid("count").collect("counts")

    def sound(env):
        events = env.from_collection(EVENTS).uid("events").map(tuple).uid("breaks")
        events.key_by(lambda event: event[0]).count().uid("count").collect("counts")

    pair = Pair(tmp_path, sound, broken)
    with pair.loop() as loop:
        pair.run(1, loop)
        shadow = pair.shadow()
        pair.run(4, loop)
        with pytest.raises(FunctionFailedError):
            pair.catch_up(shadow)
    pair.executor.stop()

    assert pair.take_over() is None
    pair.finish(sound)
    assert len(pair.collected["counts"]) == len(EVENTS)
