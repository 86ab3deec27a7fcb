"""Calls over several batches that are in flight together, on the harness and on Spark alike."""

import asyncio
import os
from datetime import timedelta

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.operators.errors import FunctionFailedError
from bicycle_runtime.testing import CRASH, END, EPOCH, Harness
from bicycle_runtime.testing.runner import play
from bicycle_runtime.testing.script import SCRIPT_TYPE
from bicycle_sdk import (
    AsyncFunction,
    AsyncIOBatchFunction,
    AsyncIOFunction,
    KeyedProcessFunction,
    ProcessFunction,
    RichAsyncFunction,
    WatermarkStrategy,
    dead_letter,
)
from bicycle_sdk.connectors import SourceDescriptor
from tests.event_time import second

LONG = timedelta(seconds=20)


def script_source():
    """A source that gives two records at a time."""
    return SourceDescriptor(connector_type=SCRIPT_TYPE, properties={"batch_records": 2})


def play_small(runner, job, script, **settings):
    """Run a job on the stream of such a source, and return what was published."""

    def on_environment(env):
        job(env.add_source(script_source()).uid("script")).collect("published")

    with runner.harness(on_environment, **settings) as harness:
        play(harness, script)
        return harness.published


class Meeting:
    """A place where calls wait until so many have come."""

    def __init__(self, count):
        self.count, self.came, self.all_came = count, 0, asyncio.Event()

    async def wait(self):
        self.came += 1
        if self.came >= self.count:
            self.all_came.set()
        await self.all_came.wait()


class Together(AsyncFunction):
    """No call ends before so many are in flight."""

    def __init__(self, count):
        self.count = count

    def open(self, ctx):
        self.meeting = Meeting(self.count)

    async def process(self, value, ctx):
        await self.meeting.wait()
        return [value]


class TogetherIO(AsyncIOFunction):
    def __init__(self, count):
        self.count = count

    def open(self, ctx):
        self.meeting = Meeting(self.count)

    async def async_invoke(self, value):
        await self.meeting.wait()
        return [value]


class TogetherInBatches(AsyncIOBatchFunction):
    """Records of a call come from several batches of the input."""

    async def async_invoke_batch(self, values):
        await asyncio.sleep(0)
        return [[(value, len(values))] for value in values]


class Counting(RichAsyncFunction):
    """Counts by key, while the calls of all keys are in flight."""

    def __init__(self, count):
        self.count, self.seen = count, {}

    def open(self, ctx):
        self.meeting = Meeting(self.count)

    async def process(self, value, ctx):
        await self.meeting.wait()
        key = ctx.current_key()
        self.seen[key] = self.seen.get(key, 0) + 1
        return [(key, self.seen[key])]


FORMS = {
    "process_ordered": lambda s, n: s.process_ordered(Together(n), timeout=LONG, capacity=n),
    "process_unordered": lambda s, n: s.process_unordered(Together(n), timeout=LONG, capacity=n),
    "async_io_ordered": lambda s, n: s.async_io_ordered(TogetherIO(n), timeout=LONG, capacity=n),
}


@pytest.mark.parametrize("form", FORMS)
def test_calls_of_several_batches_are_in_flight_together(runner, form):
    script = [*range(7), EPOCH, *range(7), END]
    published = play_small(runner, lambda s: FORMS[form](s, 7), script)

    assert sorted(published) == sorted([*range(7)] * 2)
    if "unordered" not in form:
        assert published == [*range(7)] * 2


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.core
def test_calls_over_several_files_are_in_flight_together(runner, parallelism, tmp_path):
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"{number}a\n{number}b\n")
    waiting = 16 // parallelism

    def job(env):
        lines = env.read_text(str(tmp_path))
        lines.process_ordered(Together(waiting), timeout=LONG, capacity=100).collect("published")

    done = runner(job, parallelism=parallelism)

    assert sorted(done.published) == [f"{n}{end}" for n in range(8) for end in "ab"]


def test_a_call_takes_records_of_several_batches(runner):
    published = play_small(
        runner,
        lambda s: s.async_io_batches(TogetherInBatches(), max_size=5, timeout=LONG, capacity=2),
        [*range(11), END],
    )

    assert published == [(n, 5 if n < 10 else 1) for n in range(11)]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_state_by_key_goes_through_all_batches_of_a_flight(runner, parallelism):
    keys = ["a", "b", "c", "a", "b", "a"]

    def job(env):
        keyed = env.add_source(script_source()).key_by(lambda key: key)
        keyed.process_ordered(Counting(1), timeout=LONG, capacity=10).collect("published")

    with runner.harness(job, parallelism=parallelism) as harness:
        harness.push(keys)
        harness.run_epoch()
        harness.push(keys)
        harness.end()
        harness.run()

        assert sorted(harness.published) == sorted(
            [("a", n) for n in range(1, 7)]
            + [("b", n) for n in range(1, 5)]
            + [("c", n) for n in range(1, 3)]
        )


class Refusing(Together):
    """Refuses 4 once all calls are in flight."""

    async def process(self, value, ctx):
        await self.meeting.wait()
        return [12 // (value - 4)]


def test_an_error_in_one_batch_of_a_flight_is_a_dead_letter_with_its_own_position(runner):
    def job(env):
        numbers = env.add_source(script_source()).process_ordered(
            Refusing(6), timeout=LONG, capacity=6
        )
        numbers.on_error(dead_letter()).collect("published")

    with runner.harness(job) as harness:
        harness.push([1, 2, 3], timestamp=[10, 20, 30])
        harness.push([4, 5, 6], timestamp=[40, 50, 60])
        harness.run_epoch()

        assert harness.published == [-4, -6, -12, 12, 6]
        (letter,) = harness.dead_letters
        assert (letter["offset"], letter["event_time_ms"]) == (3, 40)
        assert letter["source_message"]["timestamp_ms"] == 40


def test_an_error_of_a_record_is_one_of_its_own_file(runner, tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("1\n2\n4\n" if name == "b" else "1\n2\n")

    def job(env):
        numbers = env.read_text(str(tmp_path)).map(int)
        found = numbers.process_unordered(Refusing(7), timeout=LONG, capacity=10)
        found.on_error(dead_letter()).collect("published")

    done = runner(job)

    assert sorted(done.published) == sorted([-4, -6] * 3)
    (letter,) = done.dead_letters
    assert (letter["shard"], letter["offset"]) == (str(tmp_path / "b.txt"), 4)


class CancelledCalls(AsyncFunction):
    """Record 3 fails once the others wait, which tell a file that they were canceled."""

    def __init__(self, path):
        self.path = path

    def open(self, ctx):
        self.meeting = Meeting(5)

    async def process(self, value, ctx):
        await self.meeting.wait()
        if value == 3:
            raise ValueError("the end")
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            descriptor = os.open(self.path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
            os.write(descriptor, f"{value}\n".encode())
            os.close(descriptor)
            raise


def test_an_error_that_ends_the_epoch_cancels_the_calls_of_all_batches(runner, tmp_path):
    path = tmp_path / "canceled"
    with pytest.raises(FunctionFailedError) as caught:
        play_small(
            runner,
            lambda s: s.process_ordered(CancelledCalls(str(path)), timeout=LONG, capacity=10),
            [1, 2, 3, 4, 5, END],
        )

    assert caught.value.facts["offset"] == 2
    assert sorted(path.read_text().split()) == ["1", "2", "4", "5"]


def test_a_crash_loses_no_batch_of_a_flight_and_publishes_none_twice(runner):
    published = play_small(
        runner,
        lambda s: s.process_ordered(Together(3), timeout=LONG, capacity=10),
        [1, 2, 3, EPOCH, 4, 5, 6, CRASH, 7, 8, 9, END],
    )

    assert published == [*range(1, 10)]


def test_two_branches_and_an_operator_below_both_get_all_batches(runner):
    def job(env):
        numbers = env.add_source(script_source())
        left = numbers.process_ordered(Together(7), timeout=LONG, capacity=10)
        right = numbers.map(lambda n: n + 100).process_unordered(
            Together(7), timeout=LONG, capacity=10
        )
        both = left.union(right).process_ordered(Together(14), timeout=LONG, capacity=20)
        both.collect("both")
        left.collect("left")

    with runner.harness(job) as harness:
        harness.push(range(7))
        harness.end()
        harness.run()

        assert sorted(harness.results("both")) == [*range(7), *range(100, 107)]
        assert harness.results("left") == [*range(7)]


class Times(ProcessFunction):
    def process_element(self, value, ctx):
        return [(value[0], ctx.timestamp)]


def test_records_keep_event_times_and_shards_their_watermarks(runner):
    strategy = WatermarkStrategy.ascending().with_timestamps(second)

    def job(env):
        merged = (
            env.add_source(script_source()).uid("a").union(env.add_source(script_source()).uid("b"))
        )
        found = merged.process_ordered(Together(4), timeout=LONG, capacity=10)
        timed = found.assign_timestamps(strategy)
        timed.process_fn(Times()).uid("times").collect("published")

    with runner.harness(job) as harness:
        harness.push([("a1", 10), ("a2", 50), ("a3", 60)], source="a")
        harness.push([("b1", 20)], source="b")
        harness.run_epoch()

        assert sorted(harness.published) == [("a1", 10), ("a2", 50), ("a3", 60), ("b1", 20)]
        assert harness.watermark("times") == 19


class Sending(Together):
    async def process(self, value, ctx):
        await self.meeting.wait()
        ctx.side_output("odd" if value % 2 else "even", value)
        return []


def test_side_outputs_keep_event_times_and_positions(runner):
    def job(env):
        sent = env.add_source(script_source()).process_ordered(
            Sending(5), timeout=LONG, capacity=10
        )
        odd = sent.side_output("odd")
        odd.map(lambda n: 1 // (n - 3)).on_error(dead_letter()).collect("published")

    with runner.harness(job) as harness:
        harness.push([1, 2, 3, 4, 5], timestamp=[10, 20, 30, 40, 50])
        harness.run_epoch()

        (letter,) = harness.dead_letters
        assert (letter["event_time_ms"], letter["offset"], letter["end_offset"]) == (30, 2, 4)


class Ringing(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service.register_event_time_timer(ctx.timestamp)
        return [value]

    def on_timer(self, timestamp_ms, ctx):
        return [timestamp_ms]


def test_what_timers_emit_is_in_flight_in_the_same_epoch(runner):
    def job(env):
        stream = env.add_source(script_source()).assign_timestamps(second)
        rung = stream.key_by(lambda pair: pair[0]).process_fn(Ringing())
        rung.process_ordered(Together(1), timeout=LONG, capacity=5).collect("published")

    with runner.harness(job) as harness:
        harness.push([("a", 1), ("b", 2), ("c", 3)])
        harness.end()
        harness.run()

        assert harness.published[:3] == [("a", 1), ("b", 2), ("c", 3)]
        assert sorted(harness.published[3:]) == [1, 2, 3]


class Refused(AsyncFunction):
    def __init__(self, path):
        self.path = path

    async def process(self, value, ctx):
        await asyncio.sleep(0)
        if value == 2:
            raise ValueError("no")
        return [value]


def test_a_replayed_letter_has_a_flight_of_its_own(runner, tmp_path):
    def job(env):
        found = env.add_source(script_source()).process_ordered(
            Refused(""), timeout=LONG, capacity=10
        )
        found.uid("refused").on_error(dead_letter()).collect("published")

    with runner.harness(job) as harness:
        harness.push([1, 2, 3])
        harness.run_epoch()
        harness.push([4, 2, 5])
        harness.replay_letters(harness.dead_letters)

        assert [bool(letter["replay_of"]) for letter in harness.dead_letters].count(True) == 1
        assert sorted(harness.published)[:2] == [1, 3]


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_rate_limit_in_front_of_calls_holds_for_calls(is_ordered):
    began = []

    class Begins(AsyncFunction):
        async def process(self, value, ctx):
            began.append(clock.now_ms())
            await asyncio.sleep(0)
            return [value]

    def job(env):
        numbers = env.add_source(script_source()).rate_limit(10, burst=4)
        process = numbers.process_ordered if is_ordered else numbers.process_unordered
        process(Begins(), timeout=LONG, capacity=100).collect("published")

    with Harness(job) as harness:
        clock = harness.clock
        harness.push(range(10))
        start_ms = clock.now_ms()
        harness.end()
        harness.run()

        assert sorted(harness.published) == list(range(10))
        after_ms = [ms - start_ms for ms in began]
        assert after_ms == pytest.approx([0] * 4 + [100 * n for n in range(1, 7)], abs=10)


class Noted(AsyncFunction):
    notes: list[tuple[str, int]] = []  # noqa: RUF012  # shared with the test, in one process

    async def process(self, value, ctx):
        await asyncio.sleep(0)
        Noted.notes.append(("call", value[0]))
        return [value]


@pytest.mark.parametrize(("size", "records"), [(1, 32), (20 << 20, 4)])
def test_few_waves_and_few_bytes_wait_for_others(size, records):
    """Of small records 16 waves are in flight in one go, of large ones 64 MiB."""

    def job(env):
        found = env.add_source(script_source()).map(lambda n: (n, "x" * size))
        passed = found.process_ordered(Noted(), timeout=LONG, capacity=2)
        passed.map(lambda pair: Noted.notes.append(("next", pair[0]))).collect("published")

    Noted.notes.clear()
    with Harness(job, engine=EngineOptions(mode="batch")) as harness:
        harness.push(range(2 * records))
        harness.run_epoch()

    calls = [("call", n) for n in range(2 * records)]
    passed = [("next", n) for n in range(2 * records)]
    expected = calls[:records] + passed[:records] + calls[records:] + passed[records:]
    assert Noted.notes == expected
