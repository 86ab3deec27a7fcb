"""Chains that fit: mypy and pyright accept every line, in strict mode."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict, assert_type

from bicycle_sdk import (
    AsyncFunction,
    AsyncIOBatchFunction,
    AsyncIOFunction,
    Context,
    DataStream,
    DeliveryGuarantee,
    KafkaSinkBuilder,
    KafkaSourceBuilder,
    KeyedProcessContext,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessContext,
    ProcessFunction,
    ReduceFunction,
    RichAsyncFunction,
    RuntimeContext,
    Secret,
    StreamEnvironment,
    col,
    dead_letter,
    file_sink,
    retry,
)
from bicycle_sdk.windows import Count


@dataclass(frozen=True)
class Click:
    user: str
    cents: int


class Splitter(AsyncFunction[str, str]):
    async def process(self, value: str, ctx: Context) -> list[str]:
        return value.split()


class Lengths(AsyncFunction[str, int]):
    def process(self, value: str, ctx: Context) -> tuple[int, ...]:
        return (len(value),)


class Counter(RichAsyncFunction[str, tuple[str, int]]):
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    async def open(self, ctx: RuntimeContext) -> None:
        ctx.metrics.counter("opened").inc()

    async def process(self, value: str, ctx: RuntimeContext) -> list[tuple[str, int]]:
        self.counts[value] = self.counts.get(value, 0) + 1
        return [(value, self.counts[value])]


class Router(ProcessFunction[str, str]):
    def process_element(self, value: str, ctx: ProcessContext) -> list[str]:
        ctx.side_output("long", value)
        return [value]


class PerKey(KeyedProcessFunction[str, Click, int]):
    def process_element(self, value: Click, ctx: KeyedProcessContext[str]) -> list[int]:
        assert_type(ctx.current_key(), str)
        return [value.cents]


class Lookup(AsyncIOFunction[str, Click]):
    async def async_invoke(self, value: str) -> list[Click]:
        return [Click(value, 1)]


class Embed(AsyncIOBatchFunction[str, float]):
    async def async_invoke_batch(self, values: list[str]) -> list[list[float]]:
        return [[float(len(value))] for value in values]


class Shout(MapFunction[str, str]):
    async def map(self, value: str) -> str:
        return value.upper()


class ByUser(KeySelector[Click, str]):
    def get_key(self, value: Click) -> str:
        return value.user


class Sum(ReduceFunction[int]):
    def reduce(self, a: int, b: int) -> int:
        return a + b


async def later(value: str) -> int:
    return len(value)


def numbers(batch: list[str]) -> list[int]:
    return [len(value) for value in batch]


env = StreamEnvironment.builder().parallelism(2).max_parallelism(64).build()
limit = timedelta(seconds=30)

lines = env.read_text("lines.txt").uid("lines")
words = lines.process_unordered(Splitter(), timeout=limit, capacity=10).uid("words")
clicks = env.read_jsonl("clicks.jsonl", type=Click)
loose = env.read_jsonl("clicks.jsonl")

assert_type(lines, DataStream[str])
assert_type(words, DataStream[str])
assert_type(clicks, DataStream[Click])
assert_type(loose, DataStream[dict[str, Any]])
assert_type(env.from_collection([1, 2]), DataStream[int])
assert_type(words.map(len), DataStream[int])
assert_type(words.map(later), DataStream[int])
assert_type(words.map(Shout()), DataStream[str])
assert_type(words.map(lambda word: (word, len(word))), DataStream[tuple[str, int]])
assert_type(words.flat_map(lambda word: [len(word)]), DataStream[int])
assert_type(words.filter(lambda word: word != ""), DataStream[str])
assert_type(words.filter(str.isalpha), DataStream[str])
assert_type(words.process(Lengths()), DataStream[int])
assert_type(words.map_batches(numbers), DataStream[int])
assert_type(words.process_fn(Router()), DataStream[str])
assert_type(words.process_fn(Router()).side_output("long", str), DataStream[str])
assert_type(words.async_io_ordered(Lookup(), timeout=limit, retry=retry(2)), DataStream[Click])
assert_type(words.async_io_batches(Embed(), max_size=32, timeout=limit), DataStream[float])
assert_type(words.key_by(lambda word: word).process(Counter()), DataStream[tuple[str, int]])
assert_type(words.key_by(lambda word: word).count(), DataStream[tuple[str, int]])
assert_type(words.count(), DataStream[int])
assert_type(clicks.key_by(ByUser()).sum(lambda click: click.cents), DataStream[tuple[str, int]])
assert_type(clicks.key_by(ByUser()).max_by(lambda click: click.cents), DataStream[Click])
assert_type(clicks.key_by(lambda click: click.user).process_fn(PerKey()), DataStream[int])
assert_type(words.map(len).key_by(lambda n: n % 2).reduce(Sum()), DataStream[int])
assert_type(words.map(len).key_by(lambda n: n % 2).reduce(lambda a, b: a + b), DataStream[int])
assert_type(words.key_by(len).aggregate(Count[str]()), DataStream[tuple[int, int]])
assert_type(words.union(lines, words.rebalance()), DataStream[str])
assert_type(words.rate_limit(0.5, burst=3), DataStream[str])
assert_type(words.partition_custom(lambda length, n: length % n, len), DataStream[str])
assert_type(words.split(lambda word: "a" if word else ["b", "c"]).select("a"), DataStream[str])

loop = env.from_collection([3]).iterate()
loop.feedback(loop.map(lambda n: n - 1).filter(lambda n: n > 0)).name("again")

words.on_error(retry(3, backoff=timedelta(seconds=1)).then(dead_letter()), max_error_rate=0.1)
words.on_error("skip").set_parallelism(2).sink_to(file_sink("out")).uid("out").name("files")
clicks.broadcast().print().disable_chaining()


class Row(TypedDict):
    user: str


class Named(AsyncFunction[Row, str]):
    name = "users"

    async def process(self, value: Row, ctx: Context) -> list[str]:
        return [value["user"]]


rows = env.read_csv("rows.csv", type=Row)
assert_type(rows, DataStream[Row])
assert_type(rows.process(Named()), DataStream[str])
assert_type(env.read_jsonl("rows.jsonl", type=dict[str, int]), DataStream[dict[str, int]])

clicked = (
    KafkaSourceBuilder[Click]("localhost:9092", topics=["clicks"])
    .starting_offsets({"clicks": {0: 17}})
    .sasl("PLAIN", "ada", Secret.env("PASSWORD"))
    .bounded()
)
read = env.add_source(clicked)
written = (
    KafkaSinkBuilder[Click]("localhost:9092", "clicks")
    .key(lambda click: click.user)
    .headers(lambda click: [("cents", str(click.cents).encode())])
    .delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
)

assert_type(read, DataStream[Click])
assert_type(env.add_source(clicked.build_connector()), DataStream[Click])
assert_type(env.kafka_source("localhost:9092", "lines"), DataStream[str])
assert_type(env.kafka_source("localhost:9092", "rows", "group", type=Row), DataStream[Row])
assert_type(
    env.add_source(KafkaSourceBuilder("localhost:9092", "raw", record_type=bytes)),
    DataStream[bytes],
)
assert_type(env.kafka_sink("localhost:9092", "clicks", type=Click), KafkaSinkBuilder[Click])
read.sink_to(written).uid("written")
read.sink_to(env.kafka_sink("localhost:9092", "clicks").partition(lambda _: 0))
read.kafka_sink("localhost:9092", "clicks").name("plain")


def expressions(env: StreamEnvironment) -> None:
    clicks = env.read_jsonl("clicks", type=Click).filter((col("cents") > 1) & ~(col("user") == "x"))
    assert_type(clicks, DataStream[Click])
    assert_type(
        clicks.map(user=col("user"), twice=col("cents") * 2, one=1), DataStream[dict[str, Any]]
    )
    assert_type(
        clicks.key_by(col("user"), col("cents")).count(), DataStream[tuple[tuple[Any, ...], int]]
    )
