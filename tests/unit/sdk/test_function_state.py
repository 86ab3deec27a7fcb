"""State attributes of functions in ``FunctionHarness``: which ones there are, and their hooks."""

from typing import ClassVar

import pytest

from bicycle_sdk import RichAsyncFunction, ValueStateDescriptor
from bicycle_sdk.testing import FunctionHarness


class Total(RichAsyncFunction[int, int]):
    unit: ClassVar[str] = "ms"
    kept = ValueStateDescriptor("kept", int)
    total: int = 0

    def process(self, value, ctx):
        self.total += value
        return [self.total]


class SlotTotal(Total):
    __slots__ = ("total",)

    def __init__(self):
        self.total = 0


class WaitingTotal(Total):
    async def open(self, ctx):
        self.total = 100

    async def snapshot_state(self):
        return {"sum": self.total}

    async def restore_state(self, state):
        self.total += state["sum"]


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [(Total, {"total": 3}), (SlotTotal, {"total": 3}), (WaitingTotal, {"sum": 103})],
)
def test_a_function_goes_on_from_its_snapshot(kind, attributes):
    with FunctionHarness(kind()) as harness:
        harness.process(1, 2)
        saved = harness.snapshot()
        before = harness.process(10)
        harness.restore(saved)

        assert saved.attributes == attributes
        assert harness.process(10) == before
    other = FunctionHarness(kind())
    other.restore(saved)
    assert other.process(10) == before
