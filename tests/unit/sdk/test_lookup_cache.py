"""The cache of lookup joins: how many answers, how long; who asks and who waits."""

import asyncio

import pytest

from bicycle_sdk import LookupCache
from bicycle_sdk.contexts import Context
from bicycle_sdk.joins.lookups import Answers, LookupJoin, LookupOptions


def test_answers_are_good_until_their_time_is_over():
    now = [0]
    answers = Answers(2, 10, clock=lambda: now[0])
    answers.keep("a", None)
    now[0] = 9
    assert answers.find("a") == (True, None)
    now[0] = 10
    assert answers.find("a") == (False, None)
    assert len(answers) == 0


def test_the_answer_that_was_not_used_for_longest_makes_room():
    answers = Answers(2, 10, clock=lambda: 0)
    answers.keep("a", 1)
    answers.keep("b", 2)
    answers.find("a")
    answers.keep("c", 3)

    assert [answers.find(key) for key in "abc"] == [(True, 1), (False, None), (True, 3)]


def test_a_cache_of_no_size_keeps_nothing():
    answers = Answers(0, 10, clock=lambda: 0)
    answers.keep("a", 1)

    assert answers.find("a") == (False, None)


class Desk:
    """Answers all questions at once, when the test says so; the first few it cannot answer."""

    def __init__(self, failure_count=0):
        self.failure_count = failure_count
        self.asked = []
        self.is_open = asyncio.Event()

    async def __call__(self, key):
        self.asked.append(key)
        number = len(self.asked)
        await self.is_open.wait()
        if number <= self.failure_count:
            raise LookupError(key)
        return f"answer {number}"


def answers_of(desk, keys, *, size):
    """Ask for all keys at one time; return what each row gets."""
    options = LookupOptions(
        key=str, lookup=desk, join=lambda row, answer: answer, keeps_left=False,
        cache=LookupCache(size=size),
    )  # fmt: skip

    async def ask():
        join = LookupJoin(options)
        join.open(Context.standalone())
        rows = [asyncio.ensure_future(join.async_invoke(key)) for key in keys]
        await asyncio.sleep(0)
        desk.asked_before_opening = list(desk.asked)
        desk.is_open.set()
        return await asyncio.gather(*rows, return_exceptions=True)

    return asyncio.run(ask())


def test_rows_that_wait_for_an_answer_get_it_even_when_another_took_its_room():
    desk = Desk()

    found = answers_of(desk, "abab", size=1)

    assert desk.asked == ["a", "b"]
    assert found == [["answer 1"], ["answer 2"], ["answer 1"], ["answer 2"]]


@pytest.mark.parametrize("size", [1, 9])
def test_a_row_that_waited_for_an_answer_that_failed_asks_itself(size):
    desk = Desk(failure_count=1)

    failed, *found = answers_of(desk, "aaa", size=size)

    assert isinstance(failed, LookupError)
    assert desk.asked == ["a", "a"]
    assert found == [["answer 2"], ["answer 2"]]


def test_without_a_cache_each_row_asks_and_none_waits():
    desk = Desk()

    found = answers_of(desk, "aba", size=0)

    assert desk.asked_before_opening == desk.asked == ["a", "b", "a"]
    assert found == [["answer 1"], ["answer 2"], ["answer 3"]]
