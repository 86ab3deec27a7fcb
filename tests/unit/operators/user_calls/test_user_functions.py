"""User functions of any kind: plain, async, generators."""

import functools

import pytest

from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.operators.user_calls.user_functions import eager, resolve, run


async def coroutine(value):
    return value


def generator(value):
    yield value
    yield value


async def async_generator(value):
    yield value


class Callable:
    async def __call__(self, value):
        return value


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (coroutine, True),
        (functools.partial(coroutine), True),
        (functools.partial(functools.partial(coroutine)), True),
        (Callable(), True),
        (generator, False),
        (len, False),
        (lambda value: value, False),
    ],
)
def test_async_functions_are_known_in_every_dress(function, expected):
    assert is_async(function) is expected


def test_generators_run_to_their_end_at_the_call():
    assert eager(generator)("a") == ["a", "a"]
    assert run(eager(async_generator)("a")) == ["a"]
    assert eager(len) is len


def test_an_async_hook_can_be_resolved_inside_a_running_loop():
    async def outer():
        return resolve(coroutine, "a")

    assert run(outer()) == "a"
    assert resolve(coroutine, "b") == "b"
