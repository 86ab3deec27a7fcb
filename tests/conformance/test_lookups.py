"""Lookup joins, on the harness and on Spark."""

import asyncio
from datetime import timedelta

import pytest

from bicycle_runtime.operators.errors import FunctionFailedError
from bicycle_runtime.testing import END
from bicycle_sdk import LookupCache


class Countries:
    """Answers slowly, and says how often it was asked."""

    def open(self, ctx):
        self.asked = 0

    async def __call__(self, user):
        self.asked = number = self.asked + 1
        await asyncio.sleep(0.001)
        return None if user == "eve" else (f"land of {user}", number)


def first(row):
    return row[0]


def completed(row, answer):
    return (*row, answer)


@pytest.mark.core
def test_rows_that_ask_for_the_same_ask_once_and_keep_their_order(runner):
    rows = [("ada", 1), ("bob", 2), ("ada", 3), ("eve", 4), ("ada", 5)]
    finished = runner(
        lambda s: s.lookup_join(first, Countries(), completed, how="left"), [*rows, END]
    )

    land = ("land of ada", 1)
    assert [row[:2] for row in finished.published] == rows
    assert [row[2] for row in finished.published if row[0] == "ada"] == [land] * 3
    assert finished.published[3] == ("eve", 4, None)


def test_an_inner_lookup_leaves_out_what_nobody_knows_and_may_keep_no_answers(runner):
    rows = [("ada", 1), ("eve", 2), ("ada", 3)]
    finished = runner(
        lambda s: s.lookup_join(first, Countries(), completed, cache=LookupCache(size=0)),
        [*rows, END],
    )

    assert [row[:2] for row in finished.published] == [("ada", 1), ("ada", 3)]
    assert len({row[2] for row in finished.published}) == 2


async def never(user):
    await asyncio.sleep(60)


def test_an_answer_that_does_not_come_in_time_is_a_failure_of_the_row(runner):
    limit = timedelta(milliseconds=50)
    with pytest.raises(FunctionFailedError) as caught:
        runner(lambda s: s.lookup_join(first, never, completed, timeout=limit), [("ada", 1), END])

    assert caught.value.facts["exception"] == "TimeoutError"
