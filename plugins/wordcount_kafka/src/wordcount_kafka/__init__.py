"""The word count over Kafka: three pipelines in one job, with optional ends.

Lines that a socket takes go to one topic; from there words are counted into a second topic, exactly
once; and from there ``word:count`` goes out through a socket. A record of the second topic is
``{"word": …, "count": …}`` with the word as its key, so the counts of a word are 1, 2, 3 and so on,
in order and without gaps.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypedDict

from bicycle_sdk import (
    AsyncFunction,
    Context,
    DeliveryGuarantee,
    KafkaSinkBuilder,
    KafkaSourceBuilder,
    ParameterError,
    RichAsyncFunction,
    RuntimeContext,
    StreamEnvironment,
    bicycle_plugin,
)

__all__ = [
    "WordCount",
    "WordCountKafkaParams",
    "WordCounter",
    "WordSplitter",
    "as_text",
    "wordcount_kafka",
]

PARTITION_COUNT = 4
OUTPUT_GROUP = "wordcount-output-group"


class WordCount(TypedDict):
    """A word and how often it was seen up to now."""

    word: str
    count: int


def _text(variable: str, otherwise: str) -> Callable[[], str]:
    return lambda: os.environ.get(variable) or otherwise


def _number(variable: str, otherwise: int) -> Callable[[], int]:
    def read() -> int:
        text = os.environ.get(variable) or str(otherwise)
        if text.isdecimal():
            return int(text)
        raise ParameterError(
            name=variable,
            plugin="wordcount_kafka",
            problem=f"the environment variable is {text!r}, expected a whole number",
            hint=f"set {variable} to a number, or remove it",
        )

    return read


@dataclass(frozen=True, kw_only=True)
class WordCountKafkaParams:
    """The parameters of the word count over Kafka: input, output and topics.

    Attributes:
        source: Take lines through a socket into the raw topic, or read that topic only.
        sink: Send the counts out through a socket, or leave them in their topic.
        brokers: Kafka brokers; default KAFKA_BROKERS or localhost:9092.
        raw_topic: Topic of the lines; default KAFKA_TOPIC_RAW or raw-lines.
        counts_topic: Topic of the counts; default KAFKA_TOPIC_COUNTS or word-counts.
        group_id: Group that reads the lines; default KAFKA_GROUP_ID or wordcount-kafka-group.
        transactional_id_prefix: Begins the names of transactions; another one for each such job.
        create_topics: Create the topics that the job writes to, when they are missing.
        bounded: End when all lines are counted that were in the raw topic at the first start.
        host: Address of both sockets; with 0.0.0.0 other machines reach them, too.
        source_port: Port that takes the lines; default SOURCE_PORT or 9999.
        sink_port: Port that sends the counts; default SINK_PORT or 9998.
        parallelism: Subtasks of each operator; default PARALLELISM or 2.
        splitters: Subtasks that read and split lines; as many as partitions are useful.
    """

    source: Literal["socket", "kafka"] = "socket"
    sink: Literal["socket", "kafka"] = "socket"
    brokers: str = field(default_factory=_text("KAFKA_BROKERS", "localhost:9092"))
    raw_topic: str = field(default_factory=_text("KAFKA_TOPIC_RAW", "raw-lines"))
    counts_topic: str = field(default_factory=_text("KAFKA_TOPIC_COUNTS", "word-counts"))
    group_id: str = field(default_factory=_text("KAFKA_GROUP_ID", "wordcount-kafka-group"))
    transactional_id_prefix: str = "wordcount-kafka-counts"
    create_topics: bool = True
    bounded: bool = False
    host: str = "127.0.0.1"
    source_port: int = field(default_factory=_number("SOURCE_PORT", 9999))
    sink_port: int = field(default_factory=_number("SINK_PORT", 9998))
    parallelism: int = field(default_factory=_number("PARALLELISM", 2))
    splitters: int = PARTITION_COUNT

    def __post_init__(self) -> None:
        if self.bounded and "socket" in (self.source, self.sink):
            raise ParameterError(
                name="bounded",
                plugin="wordcount_kafka",
                problem="a socket has no end",
                hint="--set source=kafka --set sink=kafka, or leave bounded out",
            )


class WordSplitter(AsyncFunction[str, str]):
    """Splits a line into lower-case words."""

    async def process(self, value: str, ctx: Context) -> list[str]:  # noqa: ARG002 - contract
        return value.lower().split()


@dataclass
class WordCounter(RichAsyncFunction[str, WordCount]):
    """Counts each word; ``counts`` is the state."""

    counts: dict[str, int] = field(default_factory=dict)

    async def process(self, value: str, ctx: RuntimeContext) -> list[WordCount]:  # noqa: ARG002 - contract
        count = self.counts[value] = self.counts.get(value, 0) + 1
        return [{"word": value, "count": count}]


def as_text(counted: WordCount) -> str:
    """Return ``word:count``, the line that a socket client sees."""
    return f"{counted['word']}:{counted['count']}"


@bicycle_plugin(name="wordcount_kafka", version="1.0.0")
def wordcount_kafka(env: StreamEnvironment, params: WordCountKafkaParams) -> None:
    """Count words from Kafka to Kafka, exactly once."""
    env.set_parallelism(params.parallelism).set_max_parallelism(16)
    env.set_checkpoint_interval(30_000)
    if params.source == "socket":
        _take_lines(env, params)
    _count_words(env, params)
    if params.sink == "socket":
        _send_counts(env, params)


def _take_lines(env: StreamEnvironment, params: WordCountKafkaParams) -> None:
    lines = env.socket_source(host=params.host, port=params.source_port).set_parallelism(1)
    raw = KafkaSinkBuilder[str](params.brokers, params.raw_topic)
    if params.create_topics:
        raw.create_topic(partitions=PARTITION_COUNT)
    lines.uid("socket-source-v1").sink_to(raw).uid("kafka-sink-raw-v1").set_parallelism(1)


def _count_words(env: StreamEnvironment, params: WordCountKafkaParams) -> None:
    raw = KafkaSourceBuilder[str](params.brokers, params.raw_topic).group_id(params.group_id)
    raw.starting_offsets("earliest")
    if params.bounded:
        raw.bounded()
    counts = (
        KafkaSinkBuilder[WordCount](params.brokers, params.counts_topic)
        .key(_word_of)
        .delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .message_time("written")  # Lines may be older than messages that the topic keeps.
        .transactional_id_prefix(params.transactional_id_prefix)
    )
    if params.create_topics:
        counts.create_topic(partitions=PARTITION_COUNT)
    (
        env.add_source(raw)
        .uid("kafka-source-raw-v1")
        .set_parallelism(params.splitters)
        .slot_sharing_group("processing")
        .process_unordered(WordSplitter(), timeout=timedelta(seconds=30), capacity=100)
        .uid("splitter-v1")
        .set_parallelism(params.splitters)
        .slot_sharing_group("processing")
        .key_by(_word)
        .slot_sharing_group("processing")
        .process_ordered(WordCounter(), timeout=timedelta(seconds=60), capacity=50)
        .uid("counter-v1")
        .sink_to(counts)
        .uid("kafka-sink-counts-v1")
    )


def _send_counts(env: StreamEnvironment, params: WordCountKafkaParams) -> None:
    counts = KafkaSourceBuilder[WordCount](params.brokers, params.counts_topic)
    (
        env.add_source(counts.group_id(OUTPUT_GROUP).starting_offsets("earliest"))
        .uid("kafka-source-counts-v1")
        .map(as_text)
        .uid("formatter-v1")
        .set_parallelism(1)
        .socket_sink(host=params.host, port=params.sink_port)
        .uid("socket-sink-v1")
        .set_parallelism(1)
    )


def _word(word: str) -> str:
    return word


def _word_of(counted: WordCount) -> str:
    return counted["word"]
