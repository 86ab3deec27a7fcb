"""Records and state keep the types of values at every depth, on the harness and on Spark alike."""

import dataclasses
import datetime
import enum
from typing import Any, TypedDict

from bicycle_runtime.records.codecs import same_bytes
from bicycle_runtime.testing import script_source
from bicycle_sdk import KeyedProcessFunction, RichAsyncFunction, ValueStateDescriptor


class Colour(enum.Enum):
    RED = "red"


class Row(TypedDict):
    name: str


@dataclasses.dataclass
class Point:
    x: float


@dataclasses.dataclass
class Point3(Point):
    z: int = 0


@dataclasses.dataclass
class Made:
    times: int = 0

    def __post_init__(self):
        self.times += 1


@dataclasses.dataclass
class Order:
    key: str
    point: Point
    row: Row
    amounts: list[float]
    made: Made
    rest: Any = None


def orders(count):
    rests = [(1, 2), {"at": datetime.date(2020, 1, 1)}, [Colour.RED], {3}, bytearray(b"a"), None]
    return [
        Order(
            key="ab"[number % 2],
            point=[Point(1.0), Point(2**53 + 1), Point3(1.0, z=2)][number % 3],
            row={"name": "n", "more": number},
            amounts=[0.5, 2**53 + 1, True],
            made=Made(number),
            rest=rests[number % len(rests)],
        )
        for number in range(count)
    ]


class Before(KeyedProcessFunction[str, Order, Order]):
    """Gives the order before of the same key."""

    last = ValueStateDescriptor("last", Order)

    def process_element(self, value, ctx):
        state = ctx.get_value_state(self.last)
        before = state.value()
        state.update(value)
        return [] if before is None else [before]


class Kept(RichAsyncFunction[Order, Order]):
    """Gives the order before, which is an attribute."""

    def __init__(self):
        self.last: dict[str, Order] = {}

    def process(self, value, ctx):
        before, self.last[value.key] = self.last.get(value.key), value
        return [] if before is None else [before]


def key_of(order: Order) -> str:
    return order.key


def itself(order: Order) -> Order:
    return order


def test_what_arrives_is_what_was_sent_and_what_comes_back_is_what_was_put(runner):
    def job(env):
        sent = env.add_source(script_source(Order)).uid("sent").map(itself)
        sent.rebalance().map(itself).collect("arrived")
        keyed = sent.key_by(key_of)
        keyed.process_fn(Before()).uid("before").collect("before")
        keyed.process(Kept()).uid("kept").collect("kept")
        timed = sent.assign_timestamps(lambda order: order.made.times * 1_000).key_by(key_of)
        windows = timed.tumbling_window(datetime.timedelta(hours=1))
        windows.process(lambda elements, ctx: elements).uid("windows").collect("windows")

    sent = orders(12)
    with runner.harness(job, parallelism=2) as harness:
        for start in range(0, 12, 3):
            harness.push(sent[start : start + 3])
            harness.run()
            harness.crash()
        harness.end()
        harness.run()

        def found(name):
            return sorted(
                map(same_bytes, sorted(harness.results(name), key=lambda o: o.made.times))
            )

        assert found("arrived") == sorted(map(same_bytes, sent))
        assert found("windows") == sorted(map(same_bytes, sent))
        assert found("before") == found("kept") == sorted(map(same_bytes, sent[:-2]))
