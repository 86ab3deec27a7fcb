"""What windows give: the type checkers must infer exactly these types."""

from typing import Any, NamedTuple, assert_type

from bicycle_sdk import (
    AggregateFunction,
    DataStream,
    LateRecord,
    StreamEnvironment,
    WindowContext,
    WindowedStream,
    WindowFunction,
    WindowResult,
)
from bicycle_sdk.windows import Count, CountTrigger, Distinct, Sum, TimeEvictor


class Sale(NamedTuple):
    shop: str
    cents: int


class Longest(AggregateFunction[Sale, int, float]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, accumulator: int, value: Sale) -> int:
        return max(accumulator, value.cents)

    def get_result(self, accumulator: int) -> float:
        return accumulator / 100


class Shops(WindowFunction[str, Sale, list[str]]):
    def process(self, elements: list[Sale], ctx: WindowContext[str]) -> list[list[str]]:
        return [[sale.shop for sale in elements]]


def shop_of(sale: Sale) -> str:
    return sale.shop


def cents_of(sale: Sale) -> int:
    return sale.cents


def both(sales: list[Sale], ctx: WindowContext[str]) -> list[tuple[str, int]]:
    return [(ctx.current_key(), len(sales))]


sales = StreamEnvironment().from_collection([Sale("a", 1)]).key_by(shop_of)
window = sales.tumbling_window(1_000).allowed_lateness(5).late_to("late")

assert_type(window, WindowedStream[str, Sale])
assert_type(window.count(), DataStream[WindowResult[str, int]])
assert_type(window.sum(cents_of), DataStream[WindowResult[str, int]])
assert_type(window.avg(cents_of), DataStream[WindowResult[str, float]])
assert_type(window.max(cents_of), DataStream[WindowResult[str, int]])
assert_type(window.distinct(shop_of), DataStream[WindowResult[str, int]])
assert_type(window.reduce(max), DataStream[WindowResult[str, Sale]])
assert_type(window.aggregate(Longest()), DataStream[WindowResult[str, float]])
assert_type(window.process(Shops()), DataStream[list[str]])
assert_type(window.process(both), DataStream[tuple[str, int]])
assert_type(window.trigger(CountTrigger(2)).evictor(TimeEvictor(5)), WindowedStream[str, Sale])
assert_type(sales.session_window(cents_of).count(), DataStream[WindowResult[str, int]])
assert_type(
    window.aggregate(Count[Sale](), Sum[Sale, int](cents_of)),
    DataStream[WindowResult[str, tuple[int, int]]],
)
assert_type(
    window.aggregate(Count[Sale](), Longest(), Distinct(shop_of)),
    DataStream[WindowResult[str, tuple[int, float, int]]],
)
assert_type(window.count().side_output("late", LateRecord[Sale]), DataStream[LateRecord[Sale]])
assert_type(window.count().map(lambda result: result.value), DataStream[int])
assert_type(window.aggregate(*[Count[Sale]()]), DataStream[WindowResult[str, tuple[Any, ...]]])
