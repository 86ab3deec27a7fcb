"""Calling functions over a batch: order, capacity, key groups, time limits."""

import asyncio
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.operators.user_calls.batches import call_all
from bicycle_runtime.operators.user_calls.calls import Calls, CallSettings, CallTimeout
from bicycle_runtime.operators.user_calls.user_functions import run


class Context(SimpleNamespace):
    """What a call gets besides the value: it knows the position of the record in hand."""

    results = ()
    held = None

    def follow(self, results):
        self.results, self.held = results, None

    def hold(self, index):
        self.held = index

    @property
    def index(self):
        return len(self.results) if self.held is None else self.held

    @property
    def record(self):
        return self.values[self.index]

    def clone(self):
        return Context(**vars(self))


async def no_errors(error, index, call):
    raise error


def call(function, values, *, groups=None, settle=no_errors, awaits=True, **settings_of_calls):
    methods = function if groups is None else defaultdict(lambda: function)
    calls = Calls(methods, values, groups, Context(values=values))
    return call_all(calls, CallSettings(**settings_of_calls), settle, awaits=awaits)


def outputs(outcome):
    order = range(len(outcome.results)) if outcome.order is None else outcome.order
    return [outcome.results[index] for index in order]


async def waits(value, ctx):
    name, ticks = value
    for _ in range(ticks):
        await asyncio.sleep(0)
    return [name]


WAITS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 4)), max_size=25)


@settings(deadline=None)
@given(WAITS, st.integers(1, 6))
def test_ordered_results_stand_in_the_order_of_the_input(values, capacity):
    outcome = call(waits, values, capacity=capacity, timeout_ms=60_000)

    assert outputs(outcome) == [[name] for name, _ in values]


@settings(deadline=None)
@given(WAITS, st.integers(1, 6))
def test_unordered_results_are_complete_and_traceable(values, capacity):
    outcome = call(waits, values, capacity=capacity, timeout_ms=60_000, is_ordered=False)

    assert outcome.results == [[name] for name, _ in values]
    if outcome.order is not None:
        assert sorted(outcome.order) == list(range(len(values)))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30), st.integers(1, 6))
def test_calls_of_one_group_never_overlap_and_keep_their_order(values, capacity):
    active, seen, most = Counter(), defaultdict(list), 0

    async def exclusive(value, ctx):
        nonlocal most
        (group, ticks), position = value
        active[group] += 1
        most = max(most, sum(active.values()))
        assert active[group] == 1
        assert ctx.record == value
        for _ in range(ticks):
            await asyncio.sleep(0)
        assert ctx.record == value
        active[group] -= 1
        seen[group].append(position)
        return [position]

    groups = [group for group, _ in values]
    numbered = [(value, position) for position, value in enumerate(values)]
    call(exclusive, numbered, groups=groups, capacity=capacity, timeout_ms=60_000)

    assert most <= capacity
    for group, positions in seen.items():
        assert positions == [i for i, found in enumerate(groups) if found == group]


def test_many_waiting_calls_cost_one_pause():
    async def slow(value, ctx):
        await asyncio.sleep(0.05)
        return [value]

    async def timed():
        return asyncio.get_running_loop().time()

    before = run(timed())
    outcome = call(slow, list(range(200)), capacity=200, timeout_ms=60_000)

    assert outputs(outcome) == [[value] for value in range(200)]
    assert run(timed()) - before < 2


async def hangs(value, ctx):
    if value == "hangs":
        await asyncio.sleep(3_600)
    return [value]


@pytest.mark.parametrize("capacity", [1, 2, 10])
@pytest.mark.parametrize("groups", [None, [0, 0, 1, 0]])
def test_a_call_that_takes_too_long_is_cancelled_and_settled(capacity, groups):
    settled = []

    async def settle(error, index, call):
        settled.append((type(error), index))
        return ["late"]

    values = ["a", "hangs", "b", "hangs"]
    outcome = call(hangs, values, groups=groups, settle=settle, capacity=capacity, timeout_ms=40)

    assert outputs(outcome) == [["a"], ["late"], ["b"], ["late"]]
    assert sorted(settled, key=lambda s: s[1]) == [(CallTimeout, 1), (CallTimeout, 3)]


@pytest.mark.parametrize("capacity", [1, 3])
def test_an_attempt_that_hangs_again_times_out_again(capacity):
    attempts = []

    async def settle(error, index, call):
        attempts.append(type(error))
        if len(attempts) == 3:
            return ["gave up"]
        try:
            return await call()
        except CallTimeout as again:
            return await settle(again, index, call)

    outcome = call(hangs, ["hangs"], settle=settle, capacity=capacity, timeout_ms=30)

    assert outputs(outcome) == [["gave up"]]
    assert attempts == [CallTimeout] * 3


def test_a_limit_on_all_attempts_ends_the_settling_too():
    kinds = []

    async def settle(error, index, call):
        kinds.append(type(error))
        if isinstance(error, CallTimeout):
            return ["fallback"]
        await asyncio.sleep(3_600)
        return ["never"]

    async def fails(value, ctx):
        await asyncio.sleep(0)
        raise ConnectionError

    outcome = call(
        fails, [1, 2], settle=settle, capacity=2, timeout_ms=40, limits_all_attempts=True
    )

    assert outputs(outcome) == [["fallback"]] * 2
    assert sorted(kinds, key=str) == sorted([ConnectionError, CallTimeout] * 2, key=str)


def test_an_error_that_is_not_settled_cancels_the_other_calls():
    cancelled = []

    async def function(value, ctx):
        if value == "fails":
            await asyncio.sleep(0.01)
            raise ValueError(value)
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            cancelled.append(value)
            raise
        return []

    with pytest.raises(ValueError, match="fails"):
        call(function, ["a", "fails", "b"], capacity=3, timeout_ms=60_000)
    assert sorted(cancelled) == ["a", "b"]


@pytest.mark.parametrize("groups", [None, [0, 1, 0]])
@pytest.mark.parametrize("awaits", [True, False])
def test_what_was_done_before_a_failure_is_not_done_again(groups, awaits):
    calls = []

    def plain(value, ctx):
        calls.append(value)
        if value == "bad":
            raise ValueError
        return [value]

    async def coroutine(value, ctx):
        return plain(value, ctx)

    async def settle(error, index, call):
        return [f"settled {index}"]

    outcome = call(
        coroutine if awaits else plain, ["a", "bad", "b"], groups=groups, settle=settle,
        awaits=awaits,
    )  # fmt: skip

    assert outputs(outcome) == [["a"], ["settled 1"], ["b"]]
    assert calls == ["a", "bad", "b"]


def test_a_stop_iteration_does_not_end_the_batch():
    def function(value, ctx):
        if value == "stop":
            raise StopIteration
        return [value]

    async def settle(error, index, call):
        return ["settled"]

    outcome = call(function, ["a", "stop", "b"], settle=settle, awaits=False)

    assert outputs(outcome) == [["a"], ["settled"], ["b"]]
