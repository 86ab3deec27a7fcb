"""Calls in flight, one record or many in a call, on the harness and on Spark alike."""

import asyncio
import os
import time
from datetime import timedelta

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.operators.errors import BATCH_RESULT_WRONG, FunctionFailedError
from bicycle_runtime.testing import CRASH, END, EPOCH, script_source
from bicycle_sdk import (
    AsyncFunction,
    AsyncIOBatchFunction,
    AsyncIOFunction,
    dead_letter,
    retry,
    skip,
)
from bicycle_sdk.errors import FunctionResultError
from tests.raising import raises

LONG = timedelta(seconds=30)
SHORT = timedelta(milliseconds=50)
QUICK = timedelta(milliseconds=1)
NUMBERS = [1, 2, 3, 4, 5, END]


class Inverses(AsyncIOBatchFunction[int, str]):
    """Gives 12 // n; a call with a zero in it fails as a whole."""

    async def async_invoke_batch(self, values):
        await asyncio.sleep(0)
        return [[f"{12 // value} of {len(values)}"] for value in values]


class PlainInverses(AsyncIOBatchFunction[int, str]):
    def async_invoke_batch(self, values):
        return ([f"{12 // value} of {len(values)}"] for value in values)


class Later(AsyncIOBatchFunction[int, str]):
    """A plain method that returns an awaitable."""

    def async_invoke_batch(self, values):
        return Inverses().async_invoke_batch(values)


@pytest.mark.parametrize(
    "function", [Inverses(), PlainInverses(), Later()], ids=["async", "plain", "awaitable"]
)
@pytest.mark.parametrize("ordered", [True, False])
def test_a_call_takes_at_most_so_many_records(runner, function, ordered):
    job = runner(
        lambda s: s.async_io_batches(function, max_size=2, timeout=LONG, ordered=ordered),
        [1, 2, 3, 4, 6, EPOCH, 12, END],
    )

    assert sorted(job.published) == sorted(
        ["12 of 2", "6 of 2", "4 of 2", "3 of 2", "2 of 1", "1 of 1"]
    )
    if ordered:
        assert job.published[:2] == ["12 of 2", "6 of 2"]


class Spread(AsyncIOBatchFunction[int, int]):
    async def async_invoke_batch(self, values):
        return [[value] * value for value in values]


def test_a_record_of_a_call_gives_any_number_of_records(runner):
    job = runner(
        lambda s: s.async_io_batches(Spread(), max_size=3, timeout=LONG), [0, 2, 1, 3, END]
    )

    assert job.published == [2, 2, 1, 3, 3, 3]


class FirstIsSlow(AsyncIOBatchFunction[int, int]):
    """The call with record 1 ends last."""

    def open(self, ctx):
        self.others = asyncio.Event()

    async def async_invoke_batch(self, values):
        if 1 in values:
            await self.others.wait()
        else:
            self.others.set()
        return [[value] for value in values]


@pytest.mark.parametrize(("ordered", "expected"), [(True, [1, 2, 3, 4]), (False, [3, 4, 1, 2])])
def test_unordered_calls_pass_on_what_is_done_and_keep_a_call_together(runner, ordered, expected):
    job = runner(
        lambda s: s.async_io_batches(FirstIsSlow(), max_size=2, timeout=LONG, ordered=ordered),
        [1, 2, 3, 4, END],
    )

    assert job.published == expected


def test_only_the_record_that_fails_by_itself_is_skipped(runner):
    job = runner(
        lambda s: s.async_io_batches(Inverses(), max_size=8, timeout=LONG).on_error(skip()),
        [1, 2, 0, 3, 4, END],
    )

    # Halves of five: (1 2) and (0 3 4), then (0) and (3 4).
    assert job.published == ["12 of 2", "6 of 2", "4 of 2", "3 of 2"]


def test_only_the_records_that_fail_by_themselves_are_dead_letters(runner):
    job = runner(
        lambda s: s.async_io_batches(
            Inverses(), max_size=4, timeout=LONG, retry=retry(2, backoff=QUICK)
        ).on_error(dead_letter()),
        [1, 0, 3, 0, 2, END],
    )

    assert [letter["exception"] for letter in job.dead_letters] == ["ZeroDivisionError"] * 2
    assert [letter["offset"] for letter in job.dead_letters] == [1, 3]
    assert [word.partition(" ")[0] for word in job.published] == ["12", "4", "6"]


def test_a_failing_call_names_the_record_at_fault(runner):
    with pytest.raises(FunctionFailedError) as caught:
        runner(
            lambda s: s.async_io_batches(Inverses(), max_size=8, timeout=LONG), [1, 2, 0, 3, END]
        )

    assert caught.value.facts["offset"] == 2
    assert caught.value.facts["exception"] == "ZeroDivisionError"


class Recovering(AsyncIOBatchFunction[int, str]):
    """The first calls fail, whatever they hold."""

    def __init__(self, fails):
        self.fails = fails

    def open(self, ctx):
        self.calls = 0

    async def async_invoke_batch(self, values):
        self.calls += 1
        if self.calls <= self.fails:
            raise ConnectionError("try again")
        return [[f"{value} after {self.calls}"] for value in values]


def test_a_failed_call_is_repeated_as_a_whole(runner):
    job = runner(
        lambda s: s.async_io_batches(
            Recovering(2), max_size=8, timeout=LONG, retry=retry(2, backoff=QUICK)
        ),
        [1, 2, END],
    )

    assert job.published == ["1 after 3", "2 after 3"]


@pytest.mark.parametrize("max_size", [None, 8])
def test_retries_of_on_error_count_where_the_call_names_none(runner, max_size):
    def job_of(stream):
        if max_size is None:
            return stream.async_io_ordered(FlakyLookUp(), timeout=LONG)
        return stream.async_io_batches(Recovering(1), max_size=max_size, timeout=LONG)

    job = runner(lambda s: job_of(s).on_error(retry(1, backoff=QUICK)), [7, END])

    assert job.published == ["7 after 2"]


class FlakyLookUp(AsyncIOFunction[int, str]):
    def open(self, ctx):
        self.calls = 0

    async def async_invoke(self, value):
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError("try again")
        return [f"{value} after {self.calls}"]


class Stuck(AsyncIOBatchFunction[int, str]):
    """A call with a 3 never ends."""

    async def async_invoke_batch(self, values):
        if 3 in values:
            await asyncio.sleep(3_600)
        return [[f"{value} done"] for value in values]

    async def timeout(self, value):
        return [] if value % 2 else [f"{value} gave up"]


def test_every_record_of_a_call_that_timed_out_gets_the_fallback(runner):
    job = runner(lambda s: s.async_io_batches(Stuck(), max_size=2, timeout=SHORT), NUMBERS)

    assert job.published == ["1 done", "2 done", "4 gave up", "5 done"]


class StuckWithout(AsyncIOFunction[int, int]):
    async def async_invoke(self, value):
        await asyncio.sleep(3_600 if value > 3 else 0)
        return [value]


class StuckWithoutInBatches(AsyncIOBatchFunction[int, int]):
    async def async_invoke_batch(self, values):
        await asyncio.sleep(3_600 if max(values) > 3 else 0)
        return [[value] for value in values]


class StuckWithNothing(StuckWithout):
    def timeout(self, value):
        return []


@pytest.mark.parametrize(
    ("call", "count"),
    [
        (lambda s: s.async_io_ordered(StuckWithout(), timeout=SHORT), 2),
        (lambda s: s.async_io_batches(StuckWithoutInBatches(), max_size=3, timeout=SHORT), 2),
        (lambda s: s.async_io_ordered(StuckWithNothing(), timeout=SHORT), 0),
    ],
    ids=["one", "batch", "on-purpose"],
)
def test_records_that_timed_out_without_a_fallback_are_counted(runner, call, count):
    def job(env):
        call(env.add_source(script_source())).uid("lookup").collect("out")

    with runner.harness(job) as harness:
        harness.push([1, 2, 3, 4, 5])

        assert harness.run_epoch().counts["lookup"].timed_out == count
        assert harness.published == [1, 2, 3]


class StuckAndBroken(Stuck):
    async def timeout(self, value):
        raise ValueError("no fallback")


def test_a_failing_fallback_is_an_error_of_its_record(runner):
    job = runner(
        lambda s: s.async_io_batches(StuckAndBroken(), max_size=2, timeout=SHORT).on_error(
            dead_letter()
        ),
        NUMBERS,
    )

    assert job.published == ["1 done", "2 done", "5 done"]
    assert [letter["message"] for letter in job.dead_letters] == ["no fallback"] * 2


class TooFew(AsyncIOBatchFunction[int, int]):
    async def async_invoke_batch(self, values):
        return [[value] for value in values[1:]]


class Flat(AsyncIOBatchFunction[int, int]):
    async def async_invoke_batch(self, values):
        return values


class Word(AsyncIOBatchFunction[int, str]):
    async def async_invoke_batch(self, values):
        return "x" * len(values)


@pytest.mark.parametrize(
    ("function", "error"),
    [(TooFew(), BATCH_RESULT_WRONG), (Word(), BATCH_RESULT_WRONG), (Flat(), FunctionResultError)],
    ids=["too-few", "a-text", "flat"],
)
def test_a_result_that_does_not_fit_the_records_is_refused(runner, function, error):
    with raises(error):
        runner(
            lambda s: s.async_io_batches(function, max_size=4, timeout=LONG).on_error(skip()),
            NUMBERS,
        )


class Waiting(AsyncFunction[int, int]):
    """Gives its numbers in reverse: the last one wakes the others."""

    def open(self, ctx):
        self.last = asyncio.Event()

    async def process(self, value, ctx):
        if value == 5:
            self.last.set()
        await self.last.wait()
        return [value]


@pytest.mark.core
def test_a_crash_loses_no_call_in_flight_and_publishes_none_twice(runner):
    job = runner(
        lambda s: s.process_unordered(Waiting(), timeout=LONG, capacity=10),
        [1, 2, 5, EPOCH, 3, 5, CRASH, 4, 5, END],
    )

    assert sorted(job.published) == [1, 2, 3, 4, 5, 5, 5]
    assert job.crash_count == 1


class CancelledCalls(AsyncFunction[int, int]):
    """Record 3 fails once the others wait; they tell a file that they were cancelled."""

    def __init__(self, path):
        self.path = path

    def open(self, ctx):
        self.waiting = 0
        self.all_wait = asyncio.Event()

    async def process(self, value, ctx):
        if value == 3:
            await self.all_wait.wait()
            raise ValueError("the end")
        self.waiting += 1
        if self.waiting == 2:
            self.all_wait.set()
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            descriptor = os.open(self.path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
            os.write(descriptor, f"{value}\n".encode())
            os.close(descriptor)
            raise
        return [value]


def test_when_a_call_ends_the_epoch_the_others_are_cancelled(runner, tmp_path):
    path = tmp_path / "cancelled"
    with pytest.raises(FunctionFailedError):
        runner(
            lambda s: s.process_ordered(CancelledCalls(str(path)), timeout=LONG, capacity=10),
            [1, 2, 3, END],
        )

    assert sorted(path.read_text().split()) == ["1", "2"]


class Blocking(AsyncFunction[str, str]):
    async def process(self, value, ctx):
        time.sleep(0.5)
        return [value]


class BlockingIO(AsyncIOFunction[str, str]):
    async def async_invoke(self, value):
        time.sleep(0.5)
        return [value]


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.process(Blocking()),
        lambda s: s.process_unordered(Blocking(), timeout=LONG),
        lambda s: s.async_io_ordered(BlockingIO(), timeout=LONG),
    ],
    ids=["one-by-one", "in-flight", "async-io"],
)
def test_a_blocking_call_in_an_async_function_is_named(runner, call):
    def job(env):
        call(env.add_source(script_source())).uid("lookup").collect("out")

    with runner.harness(job, engine=EngineOptions(blocking_call_ms=100)) as harness:
        harness.push(["a"])
        counts = harness.run_epoch().counts["lookup"]

    assert counts.blocked == 1
    assert counts.blocked_ms >= 100
    assert f"{__file__}:" in counts.blocked_at
    assert harness.published == ["a"]


def test_a_plain_function_may_take_its_time(runner):
    def job(env):
        env.add_source(script_source()).map(lambda n: time.sleep(0.5)).uid("slow").collect("out")

    with runner.harness(job, engine=EngineOptions(blocking_call_ms=100)) as harness:
        harness.push(["a"])
        assert harness.run_epoch().counts["slow"].blocked == 0
