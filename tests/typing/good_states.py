"""States and timers as job authors use them: no line may be a type error."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from bicycle_sdk import (
    KeyedProcessContext,
    KeyedProcessFunction,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    OnTimerContext,
    OperatorListStateDescriptor,
    ProcessContext,
    ProcessFunction,
    ReducingStateDescriptor,
    RichAsyncFunction,
    RuntimeContext,
    StateTtl,
    UnionListStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)


class Lists(ProcessFunction[str, str]):
    seen = UnionListStateDescriptor("seen", str)
    own = OperatorListStateDescriptor("own", int)

    def process_element(self, value: str, ctx: ProcessContext) -> list[str]:
        assert_type(ctx.get_union_list_state(self.seen), ListState[str])
        assert_type(ctx.get_union_list_state("seen", str), ListState[str])
        assert_type(ctx.get_operator_list_state(self.own), ListState[int])
        return [value]


class Mean:
    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, accumulator: tuple[int, int], value: int) -> tuple[int, int]:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


class Declared(KeyedProcessFunction[str, int, str]):
    count = ValueStateDescriptor("count", int, default=0)
    last = ValueStateDescriptor("last", str, ttl=StateTtl(1_000, time="event"))
    seen = ListStateDescriptor("seen", float)
    stock = MapStateDescriptor("stock", str, int, ttl=timedelta(hours=1))
    total = ReducingStateDescriptor("total", int, max)

    def open(self, ctx: KeyedProcessContext[str]) -> None:
        self.counted: ValueState[int] = ctx.get_value_state(self.count)
        self.stocked: MapState[str, int] = ctx.get_map_state(self.stock)

    def process_element(self, value: int, ctx: KeyedProcessContext[str]) -> list[str]:
        self.counted.update(self.counted.value() + value)
        assert_type(ctx.get_value_state(self.last).value(), str | None)
        assert_type(ctx.get_list_state(self.seen).get(), list[float])
        assert_type(ctx.get_reducing_state(self.total).get(), int | None)
        assert_type(self.stocked.get("a"), int | None)
        assert_type(self.stocked.get("a", 0), int)
        assert_type([key for key, _ in self.stocked.range("a", "b")], list[str])
        ctx.timer_service.register_event_time_timer((ctx.timestamp or 0) + 1_000)
        return []

    def on_timer(self, timestamp_ms: int, ctx: OnTimerContext[str]) -> list[str]:
        return [ctx.current_key()]


class Named(RichAsyncFunction[str, str]):
    async def process(self, value: str, ctx: RuntimeContext) -> list[str]:
        assert_type(ctx.get_value_state("count", int, default=0).value(), int)
        assert_type(ctx.get_value_state("last", str).value(), str | None)
        assert_type(ctx.get_value_state("words", list[str], default=[]).value(), list[str])
        assert_type(ctx.get_value_state("any").value(), Any)
        assert_type(ctx.get_reducing_state("sum", int, lambda a, b: a + b).get(), int | None)
        assert_type(ctx.get_aggregating_state("mean", Mean()).get(), float | None)
        return [value]
