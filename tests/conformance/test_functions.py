"""What each kind of function does to records, on the harness and on Spark alike."""

import asyncio
import functools
from datetime import timedelta

import pytest

from bicycle_runtime.testing import END, EPOCH, script_source
from bicycle_sdk import (
    AsyncFunction,
    AsyncIOFunction,
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    retry,
)

LONG = timedelta(seconds=30)
NUMBERS = [1, 2, 3, EPOCH, 4, 5, END]


class Doubler(MapFunction[int, int]):
    def map(self, value: int) -> int:
        return value * 2


class Repeater(FlatMapFunction[int, int]):
    def flat_map(self, value: int) -> list[int]:
        return [value] * value


class IsOdd(FilterFunction[int]):
    def filter(self, value: int) -> bool:
        return value % 2 == 1


async def doubled(value: int) -> int:
    await asyncio.sleep(0)
    return value * 2


async def repeated(value: int) -> list[int]:
    return [value] * value


async def is_odd(value: int) -> bool:
    return value % 2 == 1


def counted_down(value: int):
    while value:
        yield value
        value -= 1


@pytest.mark.parametrize(
    "function",
    [
        lambda n: n * 2,
        Doubler(),
        doubled,
        lambda n: doubled(n),  # noqa: PLW0108  # a plain function that returns an awaitable
        functools.partial(doubled),
    ],
    ids=["plain", "object", "async", "returns-awaitable", "partial"],
)
def test_map_replaces_each_record(runner, function):
    job = runner(lambda stream: stream.map(function), NUMBERS)

    assert job.published == [2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    "function", [lambda n: (n,) * n, Repeater(), repeated], ids=["plain", "object", "async"]
)
def test_flat_map_gives_any_number_of_records(runner, function):
    job = runner(lambda stream: stream.flat_map(function), [0, 1, 3, 2, END])

    assert job.published == [1, 3, 3, 3, 2, 2]


def test_flat_map_takes_generators(runner):
    job = runner(lambda stream: stream.flat_map(counted_down), [3, 0, 2, END])

    assert job.published == [3, 2, 1, 2, 1]


@pytest.mark.parametrize(
    "function",
    [lambda n: n % 2, IsOdd(), is_odd, lambda n: is_odd(n)],  # noqa: PLW0108  # as above
    ids=["plain", "object", "async", "returns-awaitable"],
)
def test_filter_keeps_the_records_for_which_it_is_true(runner, function):
    job = runner(lambda stream: stream.filter(function), NUMBERS)

    assert job.published == [1, 3, 5]


def test_map_batches_sees_lists_and_every_record_once(runner):
    job = runner(lambda s: s.map_batches(lambda b: [type(b) is list, *b]), [1, 2, EPOCH, 3, END])

    assert job.published == [True, 1, 2, True, 3]


class Exclaim(AsyncFunction[str, str]):
    def __init__(self, mark: str = "!") -> None:
        self.mark = mark

    async def process(self, value, ctx):
        await asyncio.sleep(0)
        return [value + self.mark]


class PlainExclaim(AsyncFunction[str, str]):
    def process(self, value, ctx):
        return [value + "!"]


class YieldingExclaim(AsyncFunction[str, str]):
    async def process(self, value, ctx):
        yield value + "!"
        await asyncio.sleep(0)
        yield value + "?"


@pytest.mark.core
def test_process_calls_an_async_function(runner):
    assert runner(lambda s: s.process(Exclaim()), ["a", "b", END]).published == ["a!", "b!"]


def test_process_calls_a_plain_method(runner):
    assert runner(lambda s: s.process(PlainExclaim()), ["a", "b", END]).published == ["a!", "b!"]


def test_process_takes_async_generators(runner):
    job = runner(lambda s: s.process(YieldingExclaim()), ["a", "b", END])

    assert job.published == ["a!", "a?", "b!", "b?"]


class Lifecycle(AsyncFunction[str, str]):
    """Tells in its output whether it was opened."""

    async def open(self, ctx):
        self.opened_by = ctx.task_info.subtask_index

    def process(self, value, ctx):
        return [f"{value} {self.opened_by}"]


class Labelled(AsyncFunction[str, str]):
    def process(self, value, ctx):
        return [f"{ctx.task_info.properties['team']}: {value}"]


def test_properties_of_the_job_are_there_in_functions(runner):
    def job(env):
        words = env.set_property("team", "ada").add_source(script_source(str))
        words.process(Labelled()).collect("out")

    with runner.harness(job) as harness:
        harness.push(["a"])
        harness.run()

        assert harness.published == ["ada: a"]


@pytest.mark.core
def test_open_runs_before_the_first_record(runner):
    job = runner(lambda s: s.process(Lifecycle()), ["a", EPOCH, "b", END])

    assert job.published == ["a 0", "b 0"]


class Slow(AsyncFunction[tuple[str, int], str]):
    async def process(self, value, ctx):
        name, delay_ms = value
        await asyncio.sleep(delay_ms / 1000)
        return [name]


SLOW_FIRST = [("slow", 120), ("fast", 0), ("middle", 40), END]


@pytest.mark.core
def test_ordered_calls_keep_the_order_of_the_input(runner):
    job = runner(lambda s: s.process_ordered(Slow(), timeout=LONG, capacity=10), SLOW_FIRST)

    assert job.published == ["slow", "fast", "middle"]


def test_unordered_calls_pass_on_as_they_complete(runner):
    job = runner(lambda s: s.process_unordered(Slow(), timeout=LONG, capacity=10), SLOW_FIRST)

    assert job.published == ["fast", "middle", "slow"]


class InFlight(AsyncFunction[int, int]):
    """Gives the number of calls that were in flight."""

    def open(self, ctx):
        self.now = 0

    async def process(self, value, ctx):
        self.now += 1
        await asyncio.sleep(0.01)
        seen = self.now
        await asyncio.sleep(0.01)
        self.now -= 1
        return [seen]


@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_at_most_capacity_calls_are_in_flight(runner, capacity):
    job = runner(
        lambda s: s.process_unordered(InFlight(), timeout=LONG, capacity=capacity),
        [*range(12), END],
    )

    assert len(job.published) == 12
    assert max(job.published) == capacity


def test_a_call_that_takes_too_long_is_an_error_of_its_record(runner):
    job = runner(
        lambda s: s.process_ordered(
            Slow(), timeout=timedelta(milliseconds=100), capacity=2
        ).on_error("dead_letter"),
        [("a", 0), ("hangs", 60_000), ("b", 0), END],
    )

    assert job.published == ["a", "b"]
    assert [letter["exception"] for letter in job.dead_letters] == ["CallTimeout"]


class LookUp(AsyncIOFunction[str, str]):
    """Fails ``fails`` times per record, then takes its time."""

    def __init__(self, *, fails=0, delay_s=0.0, fallback=None):
        self.fails, self.delay_s, self.fallback = fails, delay_s, fallback

    def open(self, ctx):
        self.calls: dict[str, int] = {}

    async def async_invoke(self, value):
        self.calls[value] = self.calls.get(value, 0) + 1
        if self.calls[value] <= self.fails:
            raise ConnectionError("try again")
        await asyncio.sleep(self.delay_s)
        return [f"{value} after {self.calls[value]}"]

    def timeout(self, value):
        return [] if self.fallback is None else [f"{value} {self.fallback}"]


def test_async_io_retries_with_back_off(runner):
    job = runner(
        lambda s: s.async_io_ordered(
            LookUp(fails=2), timeout=LONG, retry=retry(3, backoff=timedelta(milliseconds=1))
        ),
        ["a", "b", END],
    )

    assert job.published == ["a after 3", "b after 3"]


def test_async_io_without_a_fallback_drops_what_timed_out(runner):
    job = runner(
        lambda s: s.async_io_unordered(LookUp(delay_s=60), timeout=timedelta(milliseconds=50)),
        ["a", "b", END],
    )

    assert job.published == []


def test_async_io_gives_the_fallback_of_what_timed_out(runner):
    job = runner(
        lambda s: s.async_io_ordered(
            LookUp(delay_s=60, fallback="unknown"), timeout=timedelta(milliseconds=50)
        ),
        ["a", "b", END],
    )

    assert job.published == ["a unknown", "b unknown"]


def test_the_time_limit_of_async_io_covers_all_attempts(runner):
    job = runner(
        lambda s: s.async_io_ordered(
            LookUp(fails=1_000, fallback="gave up"),
            timeout=timedelta(milliseconds=100),
            retry=retry(1_000, backoff=timedelta(milliseconds=30)),
        ),
        ["a", "b", END],
    )

    assert job.published == ["a gave up", "b gave up"]
