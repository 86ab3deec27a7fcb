"""A live rescale: what may be asked, what it changes, and what it leaves alone when it fails."""

from collections import Counter
from dataclasses import dataclass, field

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.epoch.watermarks import Timeline
from bicycle_runtime.engine.errors import (
    RESCALE_FAILED,
    WIDTH_OPERATOR_UNKNOWN,
    WIDTH_REFUSED,
)
from bicycle_runtime.engine.loop.publishing import Publisher
from bicycle_runtime.engine.loop.rescaling import RescaleRequest, Topology
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import prepare_job
from bicycle_runtime.layouts.manifest import PlanRecord
from bicycle_runtime.recovery.manifest import Manifest, decode_manifest
from bicycle_runtime.testing import Harness, bundle_of, script_source
from bicycle_sdk import KeyedProcessFunction, RichAsyncFunction, StreamEnvironment
from bicycle_sdk.clock import ManualClock
from tests.raising import raises

WORDS = [f"w{number}" for number in range(40)]


# --- what may be asked ---------------------------------------------------------------------------


def topology(tmp_path, build, parallelism=2):
    env = StreamEnvironment.builder().parallelism(parallelism).build()
    build(env)
    storage = LocalStorage(str(tmp_path), is_synced=False)
    setup = prepare_job(bundle_of(env), job_id="job", storage=storage)
    plan = PlanRecord(bundle_digest="", parallelism={}, now_ms=0)
    timeline = Timeline(setup.plan, ManualClock())
    return Topology(setup=setup, last=Manifest(epoch=0, plan=plan), timeline=timeline)


def socket_job(env):
    lines = env.socket_source().uid("lines").set_parallelism(1)
    lines.key_by(str).uid("keys").count().uid("count").set_max_parallelism(16).collect("o").uid("o")


def test_a_request_for_all_keeps_sources_that_cannot_be_divided(tmp_path):
    changed = topology(tmp_path, socket_job).rescaled_to(RescaleRequest(parallelism=8))

    assert changed.parallelisms == {"lines": 1, "keys": 8, "count": 8, "o": 8}
    assert [len(state.ranges) for state in changed.last.states.values()] == [8]


def test_a_named_operator_wins_and_the_others_keep_theirs(tmp_path):
    before = topology(tmp_path, socket_job)

    assert before.rescaled_to(RescaleRequest(operators={"count": 5})).parallelisms == {
        **before.parallelisms, "count": 5,
    }  # fmt: skip
    assert before.rescaled_to(RescaleRequest(parallelism=3, operators={"o": 1})).parallelisms == {
        "lines": 1, "keys": 3, "count": 3, "o": 1,
    }  # fmt: skip


def test_chains_that_were_cut_by_parallelism_are_whole_again_when_these_are_equal(tmp_path):
    before = topology(tmp_path, socket_job)
    cut = before.rescaled_to(RescaleRequest(operators={"o": 1}))
    whole = cut.rescaled_to(RescaleRequest(operators={"o": 2}))

    assert cut.setup.plan.level_count == before.setup.plan.level_count + 1
    assert whole.setup.plan == before.setup.plan


def test_an_operator_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    with raises(WIDTH_OPERATOR_UNKNOWN) as caught:
        topology(tmp_path, socket_job).rescaled_to(RescaleRequest(operators={"counts": 5}))
    assert caught.value.facts["operator"] == "counts"
    assert caught.value.facts["known_text"] == "count, keys, lines, o"


@pytest.mark.parametrize(
    ("rescale_request", "operator", "limit"),
    [
        (RescaleRequest(parallelism=17), "count", 16),
        (RescaleRequest(operators={"count": 17}), "count", 16),
        (RescaleRequest(operators={"count": 0}), "count", 16),
        (RescaleRequest(operators={"lines": 2}), "lines", 1),
        (RescaleRequest(operators={"o": 129}), "o", 128),
    ],
)
def test_a_parallelism_beyond_the_limit_of_an_operator_is_refused(
    tmp_path, rescale_request, operator, limit
):
    before = topology(tmp_path, socket_job)
    with raises(WIDTH_REFUSED) as caught:
        before.rescaled_to(rescale_request)
    facts = caught.value.facts
    assert (facts["operator"], facts["limit"]) == (operator, limit)
    assert facts["now"] == before.parallelisms[operator]


class Refusing:
    def publish(self, epoch, state):
        raise OSError("full")


class Book:
    def require_lease(self):
        """It is held."""


class Published:
    def publish(self, epoch, state):
        """It is visible."""


class Marks(Book):
    def mark_published(self, epoch):
        """It is noted."""


def test_the_sink_that_publishes_is_told_and_the_end_of_all(tmp_path):
    told = []
    sinks = {"a": Published(), "b": Published()}
    publisher = Publisher(sinks, Marks(), rest=lambda: None, told=lambda *each: told.append(each))
    publisher.start(topology(tmp_path, socket_job).last, lambda: None)
    publisher.finish()
    publisher.close()

    assert told == [(0, "a"), (0, "b"), (0, None)]


def test_a_publication_that_failed_is_told_to_everybody_who_asks(tmp_path):
    """Else a request that waits for it, between two epochs, would keep it from the job."""
    publisher = Publisher({"out": Refusing()}, Book(), rest=lambda: None)
    publisher.start(topology(tmp_path, socket_job).last, lambda: None)
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            publisher.finish()
    publisher.close()


# --- what it does --------------------------------------------------------------------------------


def counting(env):
    env.add_source(script_source(str)).uid("words").key_by(str).count().uid("count").collect("out")


def counted(words):
    return Counter((w, n + 1) for w, count in Counter(words).items() for n in range(count))


def sealed_parallelisms(harness):
    path = f"epochs/{harness.epoch:012}.manifest"
    return decode_manifest(harness.storage.read(path), path=path).plan.parallelism


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_counts_go_on_up_and_down_and_no_input_is_read_again(backend):
    engine = EngineOptions(state_backend=backend)
    with Harness(counting, parallelism=2, engine=engine) as harness:
        for number, parallelism in enumerate((4, 8, 3, 1, 5), start=1):
            harness.push(WORDS)
            harness.run()
            done = harness.rescale_live(parallelism)

            assert (done.new["count"], done.epoch) == (parallelism, 2 * number)
            assert harness.setup.plan.level_parallelism == (parallelism, parallelism)
        harness.push(WORDS)
        harness.end()
        harness.run()

        assert Counter(harness.published) == counted(WORDS * 6)
        assert harness.read_count() == len(WORDS) * 6
        assert harness.state("count") == dict.fromkeys(WORDS, 6)


def test_the_epoch_of_a_rescale_says_how_wide_operators_are_from_then_on():
    with Harness(counting, parallelism=2) as harness:
        harness.push(WORDS)
        harness.run()
        done = harness.rescale_live(count=5)

        assert (done.old["count"], done.new["count"], done.new["words"]) == (2, 5, 2)
        assert sealed_parallelisms(harness) == done.new
        harness.crash()
        harness.push(WORDS)
        harness.run()
        assert sealed_parallelisms(harness) == done.new
        harness.rescale(1)
        assert set(harness.rescale_live(1).old.values()) == {1}


def test_a_job_that_has_these_parallelism_runs_no_epoch_for_them():
    with Harness(counting, parallelism=2) as harness:
        harness.push(WORDS)
        harness.run()
        done = harness.rescale_live(2, count=2)

        assert (done.old, done.pause_ms, done.epoch) == (done.new, 0, harness.epoch)
        assert harness.epoch == 1


def test_files_that_subtasks_share_count_once_in_the_size_of_the_state():
    with Harness(counting, parallelism=1) as harness:
        harness.push(WORDS)
        harness.run()
        size = harness.epochs[-1].state_bytes
        done = harness.rescale_live(8)

        assert done.state_bytes == harness.epochs[-1].state_bytes == size


def test_the_pause_begins_at_the_last_seal_while_there_was_work_and_else_when_it_was_asked():
    with Harness(counting, parallelism=2) as harness:
        harness.push(WORDS)
        harness.run_epoch()
        harness.clock.advance(700)
        assert harness.rescale_live(3).pause_ms == 700
        harness.run()
        harness.clock.advance(700)
        assert harness.rescale_live(2).pause_ms == 0


def loop(env):
    loop = env.add_source(script_source(int)).uid("in").iterate().uid("loop")
    less = loop.map(lambda n: n - 1).uid("less")
    loop.feedback(less.filter(lambda n: n > 0).rebalance())
    less.collect("out")


def test_records_on_their_way_round_a_loop_arrive_once():
    with Harness(loop, parallelism=3) as harness:
        harness.push([5, 4, 3, 2])
        parallelisms = iter((1, 4, 2, 5, 3))
        while (stats := harness.run_epoch()) is not None and stats.epoch < 20:
            if (parallelism := next(parallelisms, None)) is not None:
                harness.rescale_live(parallelism)
        harness.end()
        harness.run()

        assert Counter(harness.published) == Counter([4, 3, 2, 1, 0, 3, 2, 1, 0, 2, 1, 0, 1, 0])


class Waiting(KeyedProcessFunction[str, str, tuple]):
    """Says a minute later, in each of both times, that a key was there."""

    def process_element(self, value, ctx):
        ctx.timer_service.register_event_time_timer(ctx.timestamp + 60_000)
        ctx.timer_service.register_processing_time_timer(ctx.processing_time + 60_000)
        return []

    def on_timer(self, timestamp_ms, ctx):
        return [(ctx.time_domain, ctx.current_key(), timestamp_ms)]


def waiting(env):
    words = env.add_source(script_source(str)).uid("words").rebalance()
    timed = words.assign_timestamps(lambda word: int(word[1:]) * 1_000).uid("times")
    timed.key_by(str).process_fn(Waiting()).uid("waiting").collect("out")


def test_timers_fire_at_their_time_and_no_watermark_moves():
    with Harness(waiting, parallelism=2, start_ms=0) as harness:
        harness.push(WORDS)
        harness.run()
        before = harness.watermark("waiting")
        for parallelism in (5, 1, 3):
            harness.rescale_live(parallelism)
            assert harness.watermark("waiting") == before
        assert harness.published == []
        harness.advance_time(60_000)
        processing = [fired for fired in harness.published if fired[0] == "processing"]
        assert sorted(key for _, key, _ in processing) == sorted(WORDS)
        harness.end()
        harness.run()

        event = [fired for fired in harness.published if fired[0] == "event"]
        assert sorted(event) == sorted(("event", w, int(w[1:]) * 1_000 + 60_000) for w in WORDS)


# --- state without keys, and what fails ----------------------------------------------------------


@dataclass
class Numbers(RichAsyncFunction[int, int]):
    """Keeps all numbers that its subtask has seen."""

    numbers: list[int] = field(default_factory=list)

    def process(self, value, ctx):
        self.numbers.append(value)
        return [value]


class Mergeable(Numbers):
    def merge_state(self, states):
        return {"numbers": sorted(n for state in states for n in state["numbers"])}


def keeping(function):
    def job(env):
        numbers = env.add_source(script_source(int)).uid("numbers").rebalance()
        numbers.process(function).uid("kept").collect("out")

    return job


def kept(harness):
    return sorted(n for state in harness.state("kept").values() for n in state["numbers"])


def test_states_of_subtasks_are_merged_and_none_counts_twice():
    with Harness(keeping(Mergeable()), parallelism=4) as harness:
        harness.push(range(100))
        harness.run()
        for parallelism in (3, 8, 5, 1, 6):
            assert harness.rescale_live(parallelism).new["kept"] == parallelism
            assert kept(harness) == list(range(100))


def test_what_would_lose_state_is_refused_and_changes_nothing():
    with Harness(keeping(Numbers()), parallelism=4) as harness:
        harness.push(range(100))
        harness.run()
        state = harness.state("kept")
        with raises(RESCALE_FAILED) as caught:
            harness.rescale_live(2)
        assert caught.value.facts["cause"] == "BIC-1303"
        assert (harness.epoch, harness.state("kept")) == (1, state)

        harness.push(range(100, 200))
        harness.run()
        assert harness.setup.plan.level_parallelism[-1] == 4
        assert harness.read_count() == 200
        assert kept(harness) == list(range(200))


class Narrow(RichAsyncFunction[int, int]):
    """A function that cannot be opened in a third subtask."""

    async def open(self, ctx):
        if ctx.task_info.subtask_index > 1:
            raise OSError("no third connection")

    def process(self, value, ctx):
        return [value]


def test_a_function_that_does_not_open_at_the_new_parallelism_leaves_the_job_at_the_old_one():
    with Harness(keeping(Narrow()), parallelism=2) as harness:
        harness.push([1])
        harness.run()
        with raises(RESCALE_FAILED):
            harness.rescale_live(3)
        harness.push([2])
        harness.end()
        harness.run()

        assert sorted(harness.published) == [1, 2]


@pytest.mark.parametrize("point", ["delta_written", "before_seal", "after_seal", "half_published"])
def test_a_crash_in_the_middle_leaves_one_parallelism_or_the_other(point):
    with Harness(counting, parallelism=2) as harness:
        harness.push(WORDS)
        harness.run()
        harness.fail_at(point)
        harness.rescale_live(5)
        harness.push(WORDS)
        harness.end()
        harness.run()

        assert harness.crash_count == 1
        assert Counter(harness.published) == counted(WORDS * 2)
        assert harness.read_count() == len(WORDS) * 2
