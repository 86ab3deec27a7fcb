"""Chains that do not fit: mypy and pyright reject every line marked ``# wrong``, and no other."""

from __future__ import annotations

from datetime import timedelta

from bicycle_sdk import (
    AsyncFunction,
    AsyncIOBatchFunction,
    Context,
    KafkaSinkBuilder,
    KafkaSourceBuilder,
    MapFunction,
    ReduceFunction,
    RichAsyncFunction,
    RuntimeContext,
    StreamEnvironment,
)
from bicycle_sdk.sinks import DeltaSinkOptions, delta_sink, iceberg_sink


class Splitter(AsyncFunction[str, str]):
    async def process(self, value: str, ctx: Context) -> list[str]:
        return value.split()


class Counter(RichAsyncFunction[str, int]):
    async def process(self, value: str, ctx: RuntimeContext) -> list[int]:
        return [len(value)]


class Embed(AsyncIOBatchFunction[str, float]):
    async def async_invoke_batch(self, values: list[str]) -> list[list[float]]:
        return [[float(len(value))] for value in values]


class Double(MapFunction[int, int]):
    def map(self, value: int) -> int:
        return value * 2


class Sum(ReduceFunction[int]):
    def reduce(self, a: int, b: int) -> int:
        return a + b


class NoList(AsyncFunction[str, str]):
    async def process(self, value: str, ctx: Context) -> None:  # wrong
        value.split()


def is_long(text: str) -> bool:
    return len(text) > 3


env = StreamEnvironment()
limit = timedelta(seconds=30)
numbers = env.from_collection([1, 2])
words = env.read_text("lines.txt")

numbers.process(Splitter())  # wrong
numbers.rate_limit("5")  # wrong
numbers.partition_custom(lambda key, n: str(key), abs)  # wrong
numbers.key_by(lambda n: n).process(Counter())  # wrong
words.map(Double())  # wrong
words.map(lambda word: word + 1)  # wrong
numbers.filter(is_long)  # wrong
words.key_by(lambda word: word).reduce(Sum())  # wrong
words.union(numbers)  # wrong
words.map(len).map(str.upper)  # wrong
words.key_by(lambda word: [word])  # wrong
words.on_error("ignore")  # wrong
words.set_parallelism("2")  # wrong
words.process_ordered(Splitter(), timeout=30)  # wrong
words.reduce(lambda a, b: a + b)  # wrong
numbers.async_io_batches(Embed(), max_size=8, timeout=limit)  # wrong
words.async_io_ordered(Embed(), timeout=limit)  # wrong

texts = KafkaSourceBuilder[str]("localhost:9092", "lines")
texts.starting_offsets("middle")  # wrong
texts.deserializer("xml")  # wrong
texts.sasl("PLAIN", "ada", "word")  # wrong
texts.with_schema(object())  # wrong
env.add_source(texts).map(Double())  # wrong
numbers.sink_to(KafkaSinkBuilder[str]("localhost:9092", "lines"))  # wrong
KafkaSinkBuilder[str]("localhost:9092", "lines").key(is_long).delivery_guarantee("once")  # wrong
KafkaSinkBuilder[int]("localhost:9092", "lines").key(is_long)  # wrong

words.key_by(len).interval_join(numbers, 0, 1, max)  # wrong
words.key_by(len).join(words.key_by(len)).apply(Double())  # wrong
words.merge_by_time(numbers)  # wrong

delta_sink()  # wrong
delta_sink("out", roll_rows="5")  # wrong
delta_sink("out", rows_max=5)  # wrong
DeltaSinkOptions("out", compression="lz9")  # wrong
DeltaSinkOptions("out").roll_ms = 5  # wrong
iceberg_sink("sqlite:///lake.db", "a.b")  # wrong
