"""Lines into one file for each worker: the fastest way out that Bytewax has.

Its own directory sink sends each item to the worker that owns the file and forces every batch to
disk, which is five times slower here. The price of this one: a crash may leave lines twice.
"""

from __future__ import annotations

import os
from pathlib import Path

from bytewax.outputs import DynamicSink, StatelessSinkPartition

__all__ = ["LinesSink"]


class _Part(StatelessSinkPartition[str]):
    def __init__(self, path: Path) -> None:
        self._stream = path.open("w")

    def write_batch(self, items: list[str]) -> None:
        if items:
            self._stream.write("\n".join(items) + "\n")

    def close(self) -> None:
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()


class LinesSink(DynamicSink[str]):
    """Writes ``part-0.jsonl``, ``part-1.jsonl``, … in the output folder of the benchmark."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Part:  # noqa: ARG002  # contract
        return _Part(Path(os.environ["BENCH_OUTPUT"]) / f"part-{worker_index}.jsonl")
