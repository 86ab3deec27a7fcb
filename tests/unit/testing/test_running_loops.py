"""Previews and harnesses inside a running event loop: a notebook, or an ``async`` test."""

import asyncio
import gc
import threading

import pytest

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import AsyncFunction, AsyncIOFunction, StreamEnvironment
from bicycle_sdk.call_threads import CallThread
from bicycle_sdk.testing import FunctionHarness
from tests.waiting import PATIENCE_S


async def double(value):
    await asyncio.sleep(0)
    return value * 2


async def double_at_once(value):
    return value * 2


def double_in_a_loop(value):
    return asyncio.run(double(value))


class Twice(AsyncIOFunction):
    async def async_invoke(self, value):
        return [await double(value)]


class Split(AsyncFunction):
    async def open(self, ctx):
        self.thread = threading.current_thread()
        self.loop = asyncio.get_running_loop()

    async def process(self, value, ctx):
        assert threading.current_thread() is self.thread
        assert asyncio.get_running_loop() is self.loop
        await asyncio.sleep(0)
        return value.split()

    async def close(self):
        assert threading.current_thread() is self.thread


async def key_of(value):
    return value


FUNCTIONS = [double, double_at_once, double_in_a_loop]


def in_a_loop(function):
    async def run():
        return function()

    return asyncio.run(run())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_preview_runs_inside_a_running_loop(function):
    def preview():
        return StreamEnvironment().from_collection([1, 2]).map(function).preview(5)

    assert in_a_loop(preview) == preview() == [2, 4]


def test_a_harness_runs_inside_a_running_loop():
    def job(env):
        words = env.add_source(script_source(str)).uid("words")
        words.process(Split()).key_by(key_of).map(double_at_once).collect("out")

    def run():
        with Harness(job, parallelism=2) as harness:
            harness.push(["a b", "c"])
            harness.run_epoch()
            harness.push(["d"])
            harness.run_epoch()
            return sorted(harness.published)

    assert in_a_loop(run) == ["aa", "bb", "cc", "dd"]


def test_a_function_harness_runs_inside_a_running_loop():
    def run():
        with FunctionHarness(Split()) as harness:
            first = harness.process("to be", "or")
        return first, FunctionHarness(Twice()).process(3)

    assert in_a_loop(run) == (["to", "be", "or"], [6])


def test_an_error_of_a_function_is_raised_in_the_loop():
    class Fails(AsyncFunction):
        async def process(self, value, ctx):
            raise ValueError(value)

    with pytest.raises(ValueError, match="bad"):
        in_a_loop(lambda: FunctionHarness(Fails()).process("bad"))


def test_calls_outside_of_loops_stay_in_their_thread():
    assert CallThread().call(threading.current_thread) is threading.current_thread()


def test_a_thread_ends_with_its_harness():
    def run():
        thread = CallThread()
        found = thread.call(threading.current_thread)
        thread.close()
        return found

    found = in_a_loop(run)
    found.join(timeout=PATIENCE_S)
    assert found is not threading.main_thread()
    assert not found.is_alive()


def test_an_abandoned_function_harness_that_is_collected_inside_a_loop_ends_its_loop():
    harnesses = [FunctionHarness(Split())]
    assert harnesses[0].process("a b") == ["a", "b"]
    closed = harnesses[0].function.loop.is_closed
    assert not closed()

    def collect():
        harnesses.clear()
        gc.collect()

    in_a_loop(collect)
    assert closed()
