"""Records of classes that workers have no module of: those of ``__main__``, and of a function."""

import dataclasses
import enum
import sys
from typing import Any, NamedTuple

import pytest

from bicycle_runtime.testing import script_source
from bicycle_sdk import KeyedProcessFunction


def classes():
    class Colour(enum.Enum):
        RED = "red"

    class Size(NamedTuple):
        parallelism: int

    @dataclasses.dataclass
    class Record:
        number: int
        colour: Colour
        size: Size
        rest: Any = None

    return Colour, Size, Record


@pytest.mark.parametrize("module", [None, "__main__"])
def test_records_of_such_classes_travel_are_kept_and_are_collected(runner, module, monkeypatch):
    made = Colour, Size, Record = classes()
    if module is not None:
        for cls in made:
            cls.__module__, cls.__qualname__ = module, cls.__name__
            monkeypatch.setattr(sys.modules[module], cls.__name__, cls, raising=False)

    def record_of(number: int) -> Record:
        # With a complex number the exchange makes a pickle, else it goes by the type.
        return Record(number, Colour.RED, Size(number), 1j if number % 2 else None)

    def itself(record: Record) -> Record:
        return record

    class Before(KeyedProcessFunction[int, Any, Any]):
        def process_element(self, value, ctx):
            typed, untyped = ctx.get_value_state("typed", Record), ctx.get_value_state("untyped")
            before = [typed.value(), untyped.value()]
            typed.update(value)
            untyped.update(value)
            return [] if before[0] is None else before

    def job(env):
        records = env.add_source(script_source(int)).uid("numbers").map(record_of)
        records.collect("sent")
        env.add_source(script_source(Record)).uid("records").rebalance().collect("pushed")
        records.rebalance().map(itself).collect("arrived")
        records.key_by(lambda record: 0).process_fn(Before()).uid("before").collect("before")

    for _ in range(2):  # The second job ships classes that the first has decoded.
        with runner.harness(job, parallelism=2) as harness:
            for number in range(4):
                harness.push([number], source="numbers")
                harness.push([record_of(number)], source="records")
                harness.run()
                harness.crash()
            expected = [record_of(number) for number in range(4)]

            assert harness.results("sent") == harness.results("pushed") == expected
            assert sorted(harness.results("arrived"), key=lambda r: r.number) == expected
            assert harness.results("before") == [r for r in expected[:3] for _ in range(2)]
