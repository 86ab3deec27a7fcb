"""One operator of a job without an engine, built from a graph as on a worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.planning.stages import plan_stages
from bicycle_runtime.layouts.state import RangeState
from bicycle_runtime.operators.batch import Batch, ExchangeLineage
from bicycle_runtime.operators.functions.operator import (
    Advance,
    EpochTime,
    Operator,
    Stateful,
    Timed,
)
from bicycle_runtime.operators.spec import JobImage, PluginInfo
from bicycle_runtime.operators.tasks.program import build_program
from bicycle_runtime.records.keys import encode_key, key_group
from bicycle_runtime.state.settings import StateSettings
from bicycle_sdk import DataStream, StreamEnvironment, file_sink
from bicycle_sdk.contexts import WATERMARK_MIN

__all__ = ["OneTask", "operator_of", "resident_bytes"]

_GROUPS = 128
_BATCH_RECORDS = 4_096


def operator_of(
    form: Callable[[DataStream], DataStream], place: Path, state: StateSettings | None = None
) -> Operator:
    """Return the operator that a form adds to a stream of text lines.

    Args:
        form: A function that adds the operator, and may add others before it.
        place: Folder of the checkpoint storage.
        state: Settings of the state backend; None for the memory backend.
    """
    env = StreamEnvironment.builder().parallelism(1).build()
    form(env.read_text(".")).uid("call").sink_to(file_sink("."))
    graph = env.build_graph("calls")
    image = JobImage(
        job_id="calls",
        run_id="1",
        plugin=PluginInfo(name="calls", version="1"),
        plan=plan_stages(graph),
        payloads={name: cloudpickle.dumps(value) for name, value in env.payloads.items()},
        storage=LocalStorage(place, is_synced=False),
        readers={},
        writers=dict.fromkeys((vertex.id for vertex in graph.vertices), None),
        state=state or StateSettings(),
    )
    levels = range(image.plan.level_count)
    operators = [each for level in levels for each in build_program(image, level, 0).operators()]
    return next(operator for operator in operators if operator.spec.uid == "call")


class OneTask:
    """A task with one keyed operator, which runs epoch by epoch.

    Args:
        form: A function that adds the operator to a stream.
        place: Folder of the checkpoint storage.
        state: Settings of the state backend.
    """

    def __init__(
        self, form: Callable[[DataStream], DataStream], place: Path, state: StateSettings
    ) -> None:
        operator = operator_of(form, place, state)
        assert isinstance(operator, Stateful)
        self._operator: Any = operator
        self._state = RangeState(first_group=0, end_group=_GROUPS)
        self._epoch = 0
        self._watermark = WATERMARK_MIN

    def epoch(self, keys: Sequence[str], times: Sequence[int], watermark: int) -> int:
        """Run and seal an epoch with one record per key; return the count of timed results.

        Args:
            keys: The records, which are their own keys.
            times: Event time of each record in ms.
            watermark: Watermark at the end of the epoch in ms.
        """
        operator = self._operator
        self._epoch += 1
        operator.begin_epoch(EpochTime(epoch=self._epoch, now_ms=self._epoch, seed="s"))
        operator.restore(self._state)
        before = Advance(watermark=self._watermark, previous=self._watermark, now_ms=self._epoch)
        if isinstance(operator, Timed):
            operator.begin_time(before)
        for start in range(0, len(keys), _BATCH_RECORDS):
            part = slice(start, start + _BATCH_RECORDS)
            groups = [key_group(encode_key(key), group_count=_GROUPS) for key in keys[part]]
            lineage = ExchangeLineage(None, list(times[part]))
            operator.process(Batch(list(keys[part]), lineage, groups))
        after = Advance(watermark=watermark, previous=self._watermark, now_ms=self._epoch)
        result_count = 0
        if isinstance(operator, Timed):
            result_count = sum(len(batch.values) for batch in operator.advance(after))
            operator.next_event_ms()
        self._state = operator.commit(self._epoch, f"a{self._epoch}", is_interval_over=False)
        self._watermark = watermark
        return result_count

    def close(self) -> None:
        """Release the local folder of the state."""
        self._operator.release()


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
