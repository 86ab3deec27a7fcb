"""Bytewax: running count of words with its recovery: state and input position survive a crash."""

from __future__ import annotations

import os
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.files import DirSource
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic
from bytewax_lines import LinesSink
from bytewax_times import note_record

_INPUT, _BATCH = Path(os.environ["BENCH_INPUT"]), int(os.environ["BENCH_BATCH"])


def to_words(lines: list[str]) -> list[tuple[str, str]]:
    note_record()
    return [(word, word) for line in lines for word in line.lower().split()]


class Counter(StatefulBatchLogic[str, str, int]):
    """Counts one word."""

    def __init__(self, count: int | None) -> None:
        self.count = count or 0

    def on_batch(self, values: list[str]) -> tuple[list[str], bool]:
        start = self.count + 1
        self.count += len(values)
        word = values[0]
        counts = range(start, self.count + 1)
        return [f'{{"word":"{word}","count":{count}}}' for count in counts], False

    def snapshot(self) -> int:
        return self.count


flow = Dataflow("words")
lines = op.input("lines", flow, DirSource(_INPUT, batch_size=_BATCH))
words = op.flat_map_batch("words", lines, to_words)
counts = op.stateful_batch("counts", words, Counter)
op.output("out", op.key_rm("texts", counts), LinesSink())
