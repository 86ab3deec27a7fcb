"""The end of a job's functions: all are closed, whichever of them fail."""

import re

import pytest

from bicycle_runtime.operators.errors import FunctionHookError
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import AsyncFunction, Context, WindowFunction

CLOSED: list[str] = []


class Client(AsyncFunction[str, str]):
    def __init__(self, name: str) -> None:
        self.client = name

    def process(self, value: str, ctx: Context) -> list[str]:
        return [value]

    def close(self) -> None:
        CLOSED.append(self.client)
        if self.client != "last":
            raise ConnectionError(self.client)


def build(env):
    stream = env.add_source(script_source(str))
    for name in ("first", "second", "last"):
        stream = stream.process(Client(name)).uid(name)
    stream.collect("out")


def test_a_function_that_fails_to_close_keeps_no_other_open_and_is_named():
    CLOSED.clear()
    with pytest.raises(FunctionHookError) as failed, Harness(build) as job:
        job.push(["a"])
        job.run_epoch()

    assert CLOSED == ["first", "second", "last"]
    error = failed.value
    assert (error.code, error.facts["operator"]) == ("BIC-1412", "first")
    assert error.summary.startswith("operator 'first': close() failed on the worker: Connection")
    assert re.search(r'test_closing.py", line \d+, in close\n +raise Connection', error.summary)
    [note] = error.__notes__
    assert note.startswith("then FunctionHookError: operator 'second': close() failed")


class Counted(WindowFunction):
    def process(self, elements, ctx):
        return [len(elements)]

    def close(self):
        raise ConnectionError("gone")


def test_a_window_function_that_fails_to_close_is_named():
    def build_windows(env):
        timed = env.add_source(script_source(str)).assign_timestamps(lambda _: 5)
        words = timed.key_by(str)
        words.tumbling_window(10).process(Counted()).uid("counted").collect("out")

    with (
        pytest.raises(FunctionHookError, match=r"operator 'counted': close\(\)"),
        Harness(build_windows) as job,
    ):
        job.push(["a"])
        job.advance_watermark(10)
