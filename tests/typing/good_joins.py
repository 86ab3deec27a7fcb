"""Joins that fit: mypy and pyright accept every line, in strict mode."""

from __future__ import annotations

from typing import assert_type

from bicycle_sdk import (
    CoMapFunction,
    DataStream,
    JoinFunction,
    KeyedCoProcessFunction,
    KeyedProcessContext,
    StreamEnvironment,
)
from bicycle_sdk.windows import tumbling_windows


def number(value: int) -> int:
    return value


def length(value: str) -> int:
    return len(value)


def inner(left: int, right: str) -> float:
    return left / len(right)


def outer(left: int, right: str | None) -> float:
    return left / len(right or "x")


def full(left: int | None, right: str | None) -> bytes:
    return f"{left}{right}".encode()


class Joined(JoinFunction[int, str, bytes]):
    async def join(self, left: int, right: str) -> bytes:
        return b""


class Text(CoMapFunction[int, str, str]):
    def map1(self, value: int) -> str:
        return str(value)

    def map2(self, value: str) -> str:
        return value


class PerKey(KeyedCoProcessFunction[int, int, str, float]):
    def process_element1(self, value: int, ctx: KeyedProcessContext[int]) -> list[float]:
        return [value / ctx.current_key()]

    def process_element2(self, value: str, ctx: KeyedProcessContext[int]) -> list[float]:
        return []


async def ask(key: int) -> str | None:
    return str(key)


env = StreamEnvironment()
numbers = env.from_collection([1])
texts = env.from_collection(["a"])
left, right = numbers.key_by(number), texts.key_by(length)

assert_type(left.interval_join(right, -1, 1, inner), DataStream[float])
assert_type(left.interval_join(right, -1, 1, outer, how="left"), DataStream[float])
assert_type(left.interval_join(right, -1, 1, full, how="full"), DataStream[bytes])
assert_type(left.interval_join(right, -1, 1, inner, max_buffered=9), DataStream[float])
assert_type(left.as_of_join(right, outer, how="left", max_buffered=9), DataStream[float])
assert_type(left.window_join(right, tumbling_windows(9), Joined()), DataStream[bytes])
assert_type(left.join(right).window(9).apply(Joined()), DataStream[bytes])
assert_type(left.as_of_join(right, outer, how="left"), DataStream[float])
assert_type(left.table_join(right, inner), DataStream[float])
assert_type(left.connect(right).process(PerKey()), DataStream[float])
assert_type(numbers.connect(texts).map(Text()), DataStream[str])
assert_type(numbers.connect(texts).key_by(number, length).process(PerKey()), DataStream[float])
assert_type(numbers.lookup_join(number, ask, inner), DataStream[float])
assert_type(numbers.broadcast_join(texts, number, length, outer, how="left"), DataStream[float])
assert_type(numbers.merge_by_time(numbers), DataStream[int])
