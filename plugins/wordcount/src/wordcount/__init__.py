"""The word count: lines in, one record ``{"word": …, "count": …}`` out per word.

The counts of a word are 1, 2, 3 and so on, without gaps. They are state: they survive crashes and
follow the word to another task when the parallelism changes. The job reads files or a socket; it
knows no third way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypedDict

from bicycle_sdk import (
    AsyncFunction,
    Context,
    DataStream,
    ParameterError,
    RichAsyncFunction,
    RuntimeContext,
    StreamEnvironment,
    bicycle_plugin,
    file_sink,
)

__all__ = ["WordCount", "WordCountParams", "WordCounter", "WordSplitter", "as_text", "wordcount"]


class WordCount(TypedDict):
    """A word and how often it was seen up to now."""

    word: str
    count: int


@dataclass(frozen=True, kw_only=True)
class WordCountParams:
    """The parameters of the word count: input and output.

    Attributes:
        input: Text file, glob or directory to read; needed with source=file.
        output: Directory for the JSON lines; needed with source=file.
        source: Read files, or listen on a socket.
        follow: Wait for appended lines and new files.
        host: Address of both sockets; with 0.0.0.0 other machines reach them, too.
        port: Port that takes the lines.
        sink_port: Port that sends the counts.
    """

    input: str = ""
    output: str = ""
    source: Literal["file", "socket"] = "file"
    follow: bool = False
    host: str = "127.0.0.1"
    port: int = 9999
    sink_port: int = 9998

    def __post_init__(self) -> None:
        if self.source == "file":
            for name, value in (("input", self.input), ("output", self.output)):
                if not value:
                    hint = f"--set {name}=…, or --set source=socket"
                    raise ParameterError(
                        name=name, plugin="wordcount", problem="missing", hint=hint
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


@bicycle_plugin(name="wordcount", version="1.0.0")
def wordcount(env: StreamEnvironment, params: WordCountParams) -> None:
    """Count words as they come."""
    counted = (
        _lines(env, params)
        .uid("lines-v1")
        .process_unordered(WordSplitter(), timeout=timedelta(seconds=30), capacity=100)
        .uid("splitter-v1")
        .key_by(_word)
        .process_ordered(WordCounter(), timeout=timedelta(seconds=60), capacity=50)
        .uid("counter-v1")
    )
    if params.source == "socket":
        counted.map(as_text).socket_sink(host=params.host, port=params.sink_port).uid("out-v1")
    else:
        counted.sink_to(file_sink(params.output)).uid("out-v1")


def _lines(env: StreamEnvironment, params: WordCountParams) -> DataStream[str]:
    if params.source == "socket":
        return env.socket_source(host=params.host, port=params.port)
    return env.read_text(params.input, follow=params.follow)


def _word(word: str) -> str:
    return word
