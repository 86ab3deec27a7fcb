"""PyFlink: a running count of words, in value state of a keyed process function.

``python flink_words.py INPUT OUTPUT SETTINGS``; a line may hold one word or several.
"""

from __future__ import annotations

from collections.abc import Iterator

from flink_runs import FirstRecord, lines_of, setup, started, write
from pyflink.common import Types
from pyflink.datastream import FlatMapFunction, KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor


class ToWords(FlatMapFunction):
    """Gives the words of a line."""

    def __init__(self, times: str) -> None:
        self._first = FirstRecord(times)

    def flat_map(self, value: str) -> list[str]:
        self._first.note()
        return value.lower().split()


class Counter(KeyedProcessFunction):
    """Counts the words of a key, and writes each count by hand, which is right for plain words."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, _: KeyedProcessFunction.Context) -> Iterator[str]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield f'{{"word":"{value}","count":{count}}}'


def itself(word: str) -> str:
    return word


def main() -> None:
    env, source, output, settings = setup()
    words = lines_of(env, source).flat_map(ToWords(settings["times"]), Types.STRING())
    counts = words.key_by(itself, Types.STRING()).process(Counter(), Types.STRING())
    write(counts, output)
    started(env)


if __name__ == "__main__":
    main()
