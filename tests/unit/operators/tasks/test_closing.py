"""The end of a job's functions: all are closed, whichever of them fail."""

import pytest

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import AsyncFunction, Context

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
    with pytest.raises(ConnectionError) as failed, Harness(build) as job:
        job.push(["a"])
        job.run_epoch()

    assert CLOSED == ["first", "second", "last"]
    assert str(failed.value) == "first"
    assert failed.value.__notes__ == [
        "in close() of operator 'first'",
        "then ConnectionError: second",
        "in close() of operator 'second'",
    ]
