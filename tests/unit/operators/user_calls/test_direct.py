"""Async functions that await nothing are called without coroutines; all others as they are."""

import asyncio
import functools
import inspect
import traceback
from collections import defaultdict
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from bicycle_runtime.operators.user_calls.batches import call_all
from bicycle_runtime.operators.user_calls.calls import Calls, CallSettings
from bicycle_runtime.operators.user_calls.direct import direct
from bicycle_runtime.operators.user_calls.user_functions import run


class Counter:
    def __init__(self):
        self.seen = []

    async def process(self, value, ctx=None, *, factor=2):
        self.seen.append(value)
        return [value * factor]

    async def waits(self, value, ctx):
        await asyncio.sleep(0)
        return [value]


async def with_everything_plain_functions_have(value, ctx=None, /, *more, key=3, **others):
    def inner():
        return value + key

    try:
        found = [inner() + one for one in (1, 2) if one]
    except ValueError:
        found = []
    else:
        found.append(len(more) + len(others))
    return found


def closed_over(amount):
    async def add(value, ctx):
        nonlocal amount
        amount += value
        return [amount]

    return add


async def enters(value, ctx):
    async with asyncio.Lock():
        return [value]


async def collects(value, ctx):
    return [one async for one in numbers(value)]


async def loops(value, ctx):
    async for one in numbers(value):
        return [one]


async def numbers(value):
    yield value


def gives_a_coroutine(value, ctx):
    return Counter().process(value)


@pytest.mark.parametrize(
    "function",
    [
        Counter().waits,
        enters,
        collects,
        loops,
        numbers,
        gives_a_coroutine,
        len,
        functools.partial(Counter().process),
        SimpleNamespace(),
        nullcontext,
    ],
)
def test_what_awaits_or_is_no_async_function_is_left_alone(function):
    assert direct(function) is None


def test_the_result_is_that_of_the_function():
    counter = Counter()

    assert direct(counter.process)("a") == ["aa"]
    assert direct(counter.process)("b", factor=3) == ["bbb"]
    assert counter.seen == ["a", "b"]
    found = direct(with_everything_plain_functions_have)(5, None, "x", key=1, other=0)
    assert found == run(with_everything_plain_functions_have(5, None, "x", key=1, other=0))
    assert found == [7, 8, 2]


def test_what_a_function_closes_over_stays_shared():
    add = closed_over(10)

    assert [direct(add)(1, None), run(add(2, None)), direct(add)(3, None)] == [[11], [13], [16]]


def test_the_original_stays_a_coroutine_function():
    counter = Counter()
    direct(counter.process)

    assert run(counter.process("a")) == ["aa"]
    assert inspect.iscoroutinefunction(counter.process)


def test_a_failure_names_the_line_of_the_function():
    async def divides(value):
        return 1 / value

    try:
        direct(divides)(0)
    except ZeroDivisionError as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        assert (last.name, last.line) == ("divides", "return 1 / value")
    else:
        pytest.fail("no error")


class Context:
    """What a call gets besides the value."""

    def follow(self, results):
        self.results = results

    def hold(self, index):
        pass


async def asks_for_the_loop(value, ctx):
    assert asyncio.get_running_loop().is_running()
    if value == 2:
        raise KeyError(value)
    if value == 3:
        next(iter(()))
    return [value]


@pytest.mark.parametrize("is_keyed", [False, True])
@pytest.mark.parametrize("capacity", [1, 10])
@pytest.mark.parametrize("make", [direct, lambda function: function])
def test_it_runs_in_the_loop_and_fails_record_by_record(make, capacity, is_keyed):
    async def settled(error, index, call):
        return [f"{type(error).__name__} at {index}"]

    function, values = make(asks_for_the_loop), [0, 1, 2, 3, 4]
    calls = Calls(
        defaultdict(lambda: function) if is_keyed else function,
        values,
        [7] * len(values) if is_keyed else None,
        Context(),
        is_direct=make is direct,
    )

    outcome = call_all(calls, CallSettings(capacity=capacity), settled, awaits=True)

    assert outcome.results == [[0], [1], ["KeyError at 2"], ["RuntimeError at 3"], [4]]
