"""Joins whose function fails when time has completed rows: the rows are gone, and come once."""

import asyncio
from datetime import timedelta
from operator import itemgetter

import pytest

from bicycle_runtime.testing import script_source
from bicycle_runtime.testing.errors import HarnessError
from bicycle_sdk import retry, skip
from bicycle_sdk.windows import session_windows, tumbling_windows

QUICK = timedelta(milliseconds=1)
JOINS = {
    "interval": lambda left, right, pair: left.interval_join(right, 40, 50, pair, how="full"),
    "as-of": lambda left, right, pair: left.as_of_join(right, pair, how="left"),
    "tumbling": lambda left, right, pair: left.window_join(
        right, tumbling_windows(10), pair, how="full"
    ),
    "sessions": lambda left, right, pair: left.window_join(
        right, session_windows(10), pair, how="full"
    ),
}


class Picky:
    """A pair; but for the left row at 5: that fails at first, or whenever it comes."""

    def __init__(self, *, heals):
        self.heals, self.has_failed = heals, False

    def __call__(self, left, right):
        if left == ("k", 5) and not (self.has_failed and self.heals):
            self.has_failed = True
            raise ValueError(left)
        return (left, right)


class PickyLater(Picky):
    async def __call__(self, left, right):
        await asyncio.sleep(0)
        return super().__call__(left, right)


def state_of(harness, uid):
    """Return the states of the key, by name."""
    try:
        return harness.state(uid, "k")
    except HarnessError:
        return {}


@pytest.mark.parametrize("heals", [False, True], ids=["left out", "tried again"])
@pytest.mark.parametrize("how", JOINS)
def test_complete_rows_come_once_and_are_gone_whatever_the_function_does(runner, how, heals):
    """A row that fails comes once or not at all, the next one of its key once, and none stays."""
    functions = {"plain": Picky(heals=heals), "async": PickyLater(heals=heals)}

    def job(env):
        left, right = (
            env.add_source(script_source()).uid(uid).key_by(itemgetter(0))
            for uid in ("left", "right")
        )  # fmt: skip
        policy = retry(1, backoff=QUICK) if heals else skip()
        for name, function in functions.items():
            JOINS[how](left, right, function).on_error(policy).uid(name).collect(name)

    with runner.harness(job) as harness:
        for source, times in (("left", (5, 30)), ("right", (3, 90))):
            harness.push([("k", time) for time in times], source=source, timestamp=times)
        for watermark in (25, 60, 150):
            harness.advance_watermark(watermark)

        for name in functions:
            found = [left for left, _ in harness.results(name) if left is not None]
            assert found == [("k", 5), ("k", 30)][not heals :]
            assert "left" not in state_of(harness, name)
